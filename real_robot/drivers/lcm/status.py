"""The status messages of drake-iiwa-driver and drake-schunk-driver, checked."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.drake_types import IIWA_STATUS, SCHUNK_STATUS
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError

UNKNOWN_TIME = -1
# A position so far outside the stroke has another unit, or is of another gripper.
_BEYOND_MM = 5.0
# Rows of an arm, in this order.
_ROWS = (
    "joint_position_measured",
    "joint_velocity_estimated",
    "joint_position_commanded",
    "joint_position_ipo",
    "joint_torque_measured",
    "joint_torque_external",
)
_MAY_BE_NAN = ("joint_position_ipo",)


@dataclass(frozen=True, eq=False)
class ArmReport:
    """The part of a message about one arm.

    Attributes:
        measured: (7,) rad.
        velocity: (7,) rad/s, low-pass filtered.
        commanded: (7,) rad, the last command to the controller.
        ipo: (7,) rad, commanded by the controller itself; NaN while it accepts no commands.
        torque: (7,) Nm, measured.
        external: (7,) Nm that the arm's model does not explain.
    """

    measured: Vector
    velocity: Vector
    commanded: Vector
    ipo: Vector
    torque: Vector
    external: Vector

    @property
    def spoken(self) -> bool:
        """Whether the program has received a message of the arm's controller; zeros before that."""
        return bool(self.measured.any() or self.torque.any() or self.ipo.any())

    @property
    def in_motion(self) -> bool:
        """Whether the controller is in a motion that accepts commands, and reports its command."""
        return bool(self.spoken and self.tells_command and np.isfinite(self.ipo).all())

    @property
    def tells_command(self) -> bool:
        """Whether its command is known: zeros count only if the arm is at zero."""
        return bool(self.commanded.any() or not self.measured.any())


@dataclass(frozen=True, eq=False)
class IiwaStatus:
    """One status message.

    Attributes:
        utime: Time of the first arm's controller by the program's clock, microseconds; -1 until it
            is known.
        arms: In the program's order.
    """

    utime: int
    arms: tuple[ArmReport, ...]

    @classmethod
    def of(cls, payload: bytes, arms: int) -> Self:
        """Decodes a message about that many arms.

        Raises:
            LcmDecodeError: It is not a status, has another number of joints, or a value is NaN.
        """
        values = IIWA_STATUS.decode(payload)
        utime = values["utime"]
        joints = values["num_joints"]
        if joints != JOINTS * arms:
            raise LcmDecodeError(f"A status of {joints} joints; expected are {JOINTS * arms}.")
        rows = {
            name: np.array(values[name], dtype=np.float64).reshape(arms, JOINTS) for name in _ROWS
        }
        for name, row in rows.items():
            if name not in _MAY_BE_NAN and not np.isfinite(row).all():
                raise LcmDecodeError(f"{name} is {row.tolist()}; expected are finite numbers.")
        assert isinstance(utime, int)
        return cls(
            utime, tuple(ArmReport(*(rows[name][arm] for name in _ROWS)) for arm in range(arms))
        )


def gripper_status(payload: bytes, longest_mm: float) -> dict[str, float]:
    """Decodes a status of drake-schunk-driver.

    `longest_mm` is the largest position by the settings of the gripper.

    Raises:
        LcmDecodeError: It is not a status, or a value is not finite or out of range.
    """
    found = SCHUNK_STATUS.decode(payload)
    status = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    if not all(map(math.isfinite, status.values())):
        raise LcmDecodeError(f"Its state is {status}; expected are finite numbers.")
    position_mm = status["actual_position_mm"]
    if not -_BEYOND_MM <= position_mm <= longest_mm + _BEYOND_MM:
        raise LcmDecodeError(
            f"It is open by {position_mm:g} mm; by its settings (stroke_mm, opened_mm) that is at "
            f"most {longest_mm:g} mm."
        )
    return status
