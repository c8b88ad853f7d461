"""Messages of drake-iiwa-driver and drake-schunk-driver, in rad, Nm, mm, N and microseconds."""

from stringline.real_robot.drivers.lcm.lcm_schema import LcmType, Member

_TIME = Member("utime", "int64_t")


def _joints(*names: str) -> tuple[Member, ...]:
    return tuple(Member(name, "double", "num_joints") for name in names)


IIWA_COMMAND = LcmType(
    "lcmt_iiwa_command",
    (
        _TIME,
        Member("num_joints", "int32_t"),
        *_joints("joint_position"),
        Member("num_torques", "int32_t"),
        Member("joint_torque", "double", "num_torques"),
    ),
)
IIWA_STATUS = LcmType(
    "lcmt_iiwa_status",
    (
        _TIME,
        Member("num_joints", "int32_t"),
        *_joints(
            "joint_position_measured",
            "joint_velocity_estimated",
            "joint_position_commanded",
            "joint_position_ipo",
            "joint_torque_measured",
            "joint_torque_commanded",
            "joint_torque_external",
        ),
    ),
)
IIWA_STATUS_TELEMETRY = LcmType(
    "lcmt_iiwa_status_telemetry",
    (
        Member("host_utime", "int64_t"),
        Member("iiwa_utime", "int64_t"),
        Member("estimated_dt_host_minus_iiwa", "int64_t"),
    ),
)
SCHUNK_COMMAND = LcmType(
    "lcmt_schunk_wsg_command",
    (_TIME, Member("target_position_mm", "double"), Member("force", "double")),
)
SCHUNK_STATUS = LcmType(
    "lcmt_schunk_wsg_status",
    (
        _TIME,
        Member("actual_position_mm", "double"),
        Member("actual_force", "double"),
        Member("actual_speed_mm_per_s", "double"),
    ),
)
