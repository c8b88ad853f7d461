"""Both ends of LCM without a network: the emulated drake-iiwa-driver, and the driver's view."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stringline import IIWA14, IIWA14_BIMANUAL, SafetyLimits
from stringline.real_robot.driver_interface.interlocks import (
    FIRST_STOP,
    Interlock,
    describe_interlock,
)
from stringline.real_robot.drivers.lcm.drake_messages import (
    IIWA_COMMAND,
    IIWA_STATUS,
    IIWA_STATUS_TELEMETRY,
    ArmReport,
    Channels,
    IiwaStatus,
    StatusInbox,
)
from stringline.real_robot.drivers.lcm.drake_program import LcmArm
from stringline.real_robot.drivers.lcm.lcm_link import LcmMessage
from stringline.real_robot.emulators import emulate
from stringline.real_robot.emulators.fri.kuka_server import EmulatedCell
from stringline.real_robot.emulators.lcm.emulated_program import (
    VERSION,
    ClockFilter,
    EmulatedProgram,
    StatusFaults,
)
from stringline.real_robot.emulators.plants.plant import FirstOrderPlant
from stringline.real_robot.emulators.program.arm_check import LcmLine, command_row, lcm_check
from stringline.real_robot.emulators.program.capture_file import Captured
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings

HOME = IIWA14.home[:7]
PERIOD = 0.01


class Robot:
    """An emulated arm with its controller and its program, period by period."""

    def __init__(self, **settings: Any) -> None:
        self.cell = EmulatedCell(IIWA14, FirstOrderPlant(IIWA14, period_s=PERIOD), VERSION)
        self.controller = self.cell.controllers["arm"]
        self.program = EmulatedProgram(self.cell.controllers, LcmSettings(**settings))

    def period(self, count: int = 1) -> Mapping[str, Any]:
        status: dict[str, Any] = {}
        for _ in range(count):
            self.cell.advance()
            for data in self.controller.tick():
                self.program.step("arm", data, None)
            status = dict(self.program.status())
        return IIWA_STATUS.decode(IIWA_STATUS.encode(status))

    def command(self, *rows: float) -> None:
        self.program.receive(IIWA_COMMAND.encode({"utime": 0, "joint_position": rows}))

    def measured(self) -> np.ndarray:
        return np.array(self.period()["joint_position_measured"])

    def go(self, goal: np.ndarray, steps: int = 60) -> None:
        start = self.measured()
        for share in np.linspace(0.0, 1.0, steps):
            self.command(*(start + share * (goal - start)))
            self.period()


def test_its_clock_is_known_after_some_messages_and_the_interpolator_while_commanding() -> None:
    robot = Robot(clock_samples=30)
    statuses = [robot.period() for _ in range(60)]
    assert [one["utime"] for one in statuses[:29]] == [-1] * 29
    assert (np.diff([one["utime"] for one in statuses[29:]]) == 10_000).all()
    states = [math.isnan(one["joint_position_ipo"][0]) for one in statuses]
    assert states == sorted(states, reverse=True)
    assert not states[-1]
    clock = IIWA_STATUS_TELEMETRY.decode(robot.program.telemetry())
    assert clock["host_utime"] == clock["iiwa_utime"] == statuses[-1]["utime"]
    assert clock["estimated_dt_host_minus_iiwa"] == 0


def test_the_difference_of_two_clocks_is_filtered() -> None:
    clock = ClockFilter(2)
    clock.take(1000, 5000)
    assert clock.to_host(1000) == -1
    clock.take(2000, 6100)
    assert clock.difference_us == 4001
    assert clock.to_host(2000) == 6001


def test_commands_are_followed_and_the_last_one_is_held_for_ever() -> None:
    robot = Robot()
    robot.period(60)
    robot.go(HOME + 0.2)
    robot.period(300)
    assert np.allclose(robot.measured(), HOME + 0.2, atol=1e-6)
    status = robot.period()
    assert np.allclose(status["joint_velocity_estimated"], 0.0, atol=1e-3)
    assert np.allclose(status["joint_position_commanded"], HOME + 0.2)
    assert robot.controller.stops == []


def test_the_estimated_speed_is_that_of_the_arm() -> None:
    robot = Robot()
    robot.period(60)
    start = robot.measured()
    for step in range(60):
        robot.command(*(start + 0.005 * step))
        robot.period()
    assert np.allclose(robot.program.status()["joint_velocity_estimated"], 0.5, atol=0.02)


@pytest.mark.parametrize(
    ("rows", "words"), [((0.1,) * 6, "a command of 6 joints"), ((), "a command of 0 joints")]
)
def test_it_ends_itself_at_a_command_that_is_too_short(rows: tuple[float, ...], words: str) -> None:
    robot = Robot()
    robot.period(60)
    robot.command(*rows)
    assert robot.program.ended == words
    before = robot.controller.answers
    robot.command(*HOME)
    robot.period(5)
    assert robot.controller.answers == before  # The controller is left alone.


def test_it_ends_itself_at_a_command_within_its_guard_time_and_takes_longer_ones() -> None:
    robot = Robot(guard_s=0.25)
    robot.period(25)
    robot.program.receive(b"no command at all")
    assert robot.program.ended == ""
    robot.command(*HOME)
    assert robot.program.ended == "a command came within its guard time"
    patient = Robot(guard_s=0.25)
    patient.period(60)
    patient.command(*HOME, *HOME)
    assert patient.program.ended == ""


def test_it_keeps_a_degree_from_the_ends_of_axes_and_passes_nan_on() -> None:
    robot = Robot()
    robot.period(60)
    goal = HOME.copy()
    goal[5] = np.radians(125.0)
    robot.go(goal, 200)
    assert robot.period(100)["joint_position_measured"][5] == pytest.approx(np.radians(119.0))
    robot.command(*HOME[:6], math.nan)
    status = robot.period(3)
    assert "not finite" in robot.controller.stops[0]
    assert math.isnan(status["joint_position_ipo"][0])


@pytest.mark.parametrize("restart_fri", [False, True])
def test_an_arm_whose_motion_begins_again_is_held_unless_restart_is_allowed(
    *, restart_fri: bool
) -> None:
    robot = Robot(restart_fri=restart_fri)
    robot.period(60)
    robot.go(HOME + 0.1)
    robot.period(50)
    robot.controller.fault("leave")
    robot.controller.fault("restart")
    robot.period(60)
    assert robot.program.inhibited("arm") is not restart_fri
    robot.go(HOME + 0.2)
    robot.period(50)
    assert np.allclose(robot.measured(), HOME + (0.2 if restart_fri else 0.1), atol=1e-3)
    robot.program.begin()
    assert not robot.program.inhibited("arm")


def test_planned_faults_apply_to_that_many_statuses() -> None:
    lies, robot = StatusFaults(), Robot(clock_samples=1)
    robot.period(2)
    status = robot.program.status()
    honest = IIWA_STATUS.decode(lies.encode(status))
    joints = [f"joint_position_{name}" for name in ("measured", "measured", "commanded")]
    for kind, member in zip(("backwards", "nan", "push", "zeros"), ("utime", *joints), strict=True):
        lies.plan(kind, 1)
        assert IIWA_STATUS.decode(lies.encode(status))[member] != honest[member]
        assert IIWA_STATUS.decode(lies.encode(status))[member] == honest[member]
    lies.plan("joints", 2)
    assert [IIWA_STATUS.decode(lies.encode(status))["num_joints"] for _ in range(3)] == [6, 6, 7]
    lies.plan("freeze", 1)
    robot.period()
    assert IIWA_STATUS.decode(lies.encode(robot.program.status()))["utime"] == honest["utime"]
    with pytest.raises(ValueError, match="no fault of a status 'pusch'. Did you mean 'push'"):
        lies.plan("pusch", 1)


def test_impossible_settings_of_an_emulator_are_refused() -> None:
    for arguments, words in (
        (["--address", "1.2.3.4:5"], "address of LCM is '1.2.3.4:5'"),
        (
            ["--gripper", "of_the_arms", "--arms", "two", "--prefixes", "A,B,C"],
            "is not one for all of left, right, or one for each",
        ),
    ):
        with pytest.raises(SystemExit, match=words):
            emulate.main(["lcm", *arguments])


# The driver's side.

HERE, THERE = ("127.0.0.1", 1), ("127.0.0.1", 2)


def message(
    sequence: int,
    utime: int,
    source: tuple[str, int] = HERE,
    joints: int = 7,
    **rows: tuple[float, ...],
) -> LcmMessage:
    full = {member.name: (0.1,) * joints for member in IIWA_STATUS.members if member.size} | rows
    return LcmMessage("IIWA_STATUS", IIWA_STATUS.encode({"utime": utime, **full}), source, sequence)


def test_the_inbox_returns_only_new_and_usable_messages() -> None:
    inbox = StatusInbox(1)

    def take(*values: Any, lost: bool = False, **more: Any) -> bool:
        return inbox.take(message(*values, **more), lost=lost) is not None

    assert [take(sequence, -1) for sequence in (5, 6, 8)] == [True] * 3
    assert inbox.ready_at is None
    assert take(2**31, 100)
    assert inbox.ready_at == 100
    assert not take(2**31, 200)
    assert not take(2**31 - 1, 200)
    assert inbox.stale == 2
    assert not take(2**31 + 1, 100)
    assert inbox.frozen == 1
    assert inbox.event is Interlock.NONE
    assert not take(2**31 + 2, 99)
    assert inbox.event is Interlock.CLOCK
    assert not take(1, 300, THERE)
    assert inbox.event is Interlock.TWO_PROGRAMS
    inbox.event = Interlock.NONE
    assert take(2**31 + 3, 50, lost=True)  # A clock that was set back is believed after a silence.
    assert inbox.ready_at == 50
    assert take(1, 10, THERE, lost=True)
    assert inbox.event is Interlock.RESTARTED
    assert take(2**32 - 1, 20, THERE, lost=True)
    assert take(0, 30, THERE)  # The counter wraps around.
    for name, value in (("joints", 6), ("joint_torque_external", (math.nan,) * 7)):
        wrong: dict[str, Any] = {name: value}
        assert not take(1, 40, THERE, **wrong)
    assert inbox.broken == 2
    assert "joint_torque_external" in inbox.complaint


def test_the_period_is_that_of_the_controllers_clock_if_it_is_published() -> None:
    inbox = StatusInbox(1)
    for step in range(9):
        inbox.take(message(2 * step, 5000 * step), lost=False)
    assert inbox.period_us == 5000
    for step in range(7):
        times = {
            "host_utime": 0,
            "iiwa_utime": 4000 * (step // 2 * 2),
            "estimated_dt_host_minus_iiwa": 0,
        }
        inbox.take_telemetry(
            LcmMessage("IIWA_STATUS_TELEMETRY", IIWA_STATUS_TELEMETRY.encode(times), HERE, 0)
        )
    assert inbox.period_us == 5000  # Not often enough yet.
    for step in range(12):
        times = {"host_utime": 0, "iiwa_utime": 4000 * step, "estimated_dt_host_minus_iiwa": 0}
        for source in (HERE, THERE):
            inbox.take_telemetry(
                LcmMessage("IIWA_STATUS_TELEMETRY", IIWA_STATUS_TELEMETRY.encode(times), source, 0)
            )
    assert inbox.period_us == 4000
    inbox.take_telemetry(LcmMessage("IIWA_STATUS_TELEMETRY", b"", HERE, 0))
    assert inbox.broken == 1


def test_the_steps_of_several_arms_have_the_time_of_the_first() -> None:
    inbox = StatusInbox(2)
    found = [
        inbox.take(message(step, utime, joints=14), lost=False)
        for step, utime in enumerate((10, 10, 20, 20))
    ]
    assert [one.utime for one in found if one is not None] == [10, 10, 20, 20]
    assert all(len(one.arms) == 2 for one in found if one is not None)


def report(measured: float = 0.1, commanded: float = 0.1, ipo: float = 0.1) -> ArmReport:
    values = {
        "joint_position_measured": measured,
        "joint_position_commanded": commanded,
        "joint_position_ipo": ipo,
    }
    rows: dict[str, Any] = {name: (value,) * 7 for name, value in values.items()}
    return IiwaStatus.of(message(1, 1, **rows).payload, 1).arms[0]


def led(steps: int = 20, step: float = 0.01) -> LcmArm:
    """Returns an arm that has followed so many steps, two behind."""
    arm, position = LcmArm("arm", PERIOD), np.full(7, 0.1)
    arm.take(report())
    assert arm.take_interlock() is Interlock.ENTERED
    for index in range(steps):
        position = position + step
        assert arm.offer(position)
        arm.note_sent()
        arm.take(
            report(
                measured=0.1 + step * max(index - 3, 0), commanded=0.1 + step * max(index - 2, 0)
            )
        )
        assert arm.take_interlock() is Interlock.NONE
    return arm


def test_an_arm_that_follows_its_commands_continues() -> None:
    arm = led()
    assert arm.sent == 20
    assert np.allclose(arm.anchor, 0.3)


def test_a_command_far_from_the_last_or_nan_is_never_accepted() -> None:
    arm = led()
    for far in (arm.anchor + 0.032, np.full(7, np.nan), np.full(7, np.inf), np.zeros(7)):
        assert not arm.offer(far)
        assert arm.take_interlock() is Interlock.FAR
        assert np.allclose(arm.anchor, 0.3)
    assert arm.offer(arm.anchor + 0.031)


@pytest.mark.parametrize(
    ("report", "bar", "anchor"),
    [
        (report(commanded=0.1, measured=0.1), Interlock.IGNORED, 0.1),
        (report(commanded=0.35, measured=0.3), Interlock.IGNORED, 0.35),
        (
            report(commanded=0.28, measured=-0.1),
            Interlock.TRACKING_ERROR,
            0.3,
        ),  # It is not the controller's doing: commands stay.
        (report(commanded=0.28, measured=0.25, ipo=math.nan), Interlock.NO_MOTION, 0.25),
        (
            report(commanded=0.0, measured=0.25),
            Interlock.NO_MOTION,
            0.25,
        ),  # Zeros are not its commanded position.
    ],
)
def test_an_arm_that_ignores_commands_begins_again_at_its_controllers_position(
    report: ArmReport, bar: Interlock, anchor: float
) -> None:
    arm = led()
    arm.take(report)
    assert np.allclose(arm.anchor, anchor)
    assert arm.offer(arm.anchor + 0.001) is (bar is not Interlock.NO_MOTION)
    assert arm.take_interlock() is bar
    assert bar >= FIRST_STOP
    assert describe_interlock(bar) != describe_interlock(99)


def test_after_a_stop_commands_begin_at_the_arms_position_and_never_at_the_old_target() -> None:
    arm = led()
    arm.take(report(commanded=0.28, measured=0.25, ipo=math.nan))
    assert not arm.offer(np.full(7, 0.31))
    arm.take(report(commanded=0.24, measured=0.24))
    assert (
        arm.take_interlock() is Interlock.NO_MOTION
    )  # It is reported although the motion has begun again meanwhile.
    assert np.allclose(arm.anchor, 0.24)
    assert not arm.offer(np.full(7, 0.31))


def test_channels_are_those_of_the_program_unless_others_are_named() -> None:
    assert Channels.of(None).names == ("IIWA_COMMAND", "IIWA_STATUS", "IIWA_STATUS_TELEMETRY")
    assert Channels.of({"status": "LEFT"}).status == "LEFT"


def test_captured_commands_are_checked_against_the_limits_by_arm(tmp_path: Path) -> None:
    limits, file = (
        SafetyLimits.of(IIWA14_BIMANUAL, cartesian_speed=None, speed_share=0.5),
        tmp_path / "IIWA.bin",
    )
    lines = [
        LcmLine(file, place, lcm_check(IIWA14_BIMANUAL, arm, limits, PERIOD))
        for place, arm in enumerate(("left", "right"))
    ]
    step = limits.acceleration[0] * PERIOD**2
    goes = np.cumsum([0.0, *np.linspace(step, limits.velocity[0] * PERIOD, 4)])

    def capture(place: float, *, passed_on: bool = True) -> None:
        row = (place, *HOME[1:], *HOME)
        data = IIWA_COMMAND.encode({"utime": 0, "joint_position": row})
        with file.open("ab") as stream:
            stream.write(Captured(7, passed_on, data).to_bytes())

    def found() -> list[tuple[int, int]]:
        for line in lines:
            line.take(0)
        return [(line.check.goals, line.check.violations) for line in lines]

    for place in goes:
        capture(place)
    assert found() == [(5, 0), (5, 0)]
    capture(1.0, passed_on=False)
    capture(1.0)  # Another path.
    with file.open("ab") as stream:
        stream.write(b"\x01")  # Not all of it is there yet.
    assert found() == [(6, 0), (6, 0)]
    file.write_bytes(file.read_bytes()[:-1])
    capture(1.0 + 3 * step)
    assert found() == [(7, 1), (7, 0)]
    with file.open("ab") as stream:
        stream.write(Captured(9, False, b"").to_bytes())  # A new world.
    capture(0.5)
    assert found() == [(8, 1), (8, 0)]
    assert command_row(b"none") == ()
