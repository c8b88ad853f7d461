"""drake-iiwa-driver, emulated: an FRI client of its controllers, which is commanded over LCM.

After RobotLocomotion/drake-iiwa-driver, 5cbeb8a (2025), `kuka_driver.cc`, in position mode. It
passes the newest command on at each step, limited to one degree from the ends of the axes, except
for NaN, and holds it for ever. It ends itself (by an exception or an assertion in the original)
when a command arrives within its guard time or is too short, or when an external torque is too
large. An arm whose motion begins a second time is held in place, unless the program was started
with `--restart_fri`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.fri.fri_command import Command
from stringline.real_robot.drivers.fri.monitoring import Joints, Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.drake_types import IIWA_COMMAND, IIWA_STATUS_TELEMETRY
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.emulators.fri.controller import EmulatedController
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings

VERSION = version_of("1.15")

_KEPT = 0.99  # Share of the old difference between two clocks.
# One degree from the ends of the axes.
_LIMITS = np.radians([170.0, 120.0, 170.0, 120.0, 170.0, 120.0, 175.0]) - np.radians(1.0)
_STRONGEST_NM = 60.0 * np.array([1.0, 1.0, 1.0, 0.5, 0.2, 0.2, 0.1])
_CUTOFF_HZ = 40.0
_NAN = (math.nan,) * JOINTS
_ZEROS = (0.0,) * JOINTS
_ROWS = (
    "joint_position_measured",
    "joint_velocity_estimated",
    "joint_position_commanded",
    "joint_position_ipo",
    "joint_torque_measured",
    "joint_torque_commanded",
    "joint_torque_external",
)


class ClockFilter:
    """The low-pass filtered difference between the clocks of host and controller.

    Args:
        samples: Samples before it is known.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._taken = 0
        self._difference_us = 0.0

    @property
    def difference_us(self) -> int:
        """Host minus controller, microseconds."""
        return int(self._difference_us)

    def take(self, controller_us: int, host_us: int) -> None:
        """Takes two times of one moment, microseconds."""
        now = float(host_us - controller_us)
        self._difference_us = (
            now if not self._taken else _KEPT * self._difference_us + (1 - _KEPT) * now
        )
        self._taken = min(self._taken + 1, self._samples)

    def to_host(self, controller_us: int) -> int:
        """Returns a time of the controller by the host's clock, -1 while that is not known."""
        return self.difference_us + controller_us if self._taken >= self._samples else -1


@dataclass
class _Robot:
    """The program's state of one arm."""

    controller: EmulatedController
    state: SessionState = SessionState.IDLE
    entered: bool = False
    inhibited: bool = False
    hold: Joints = _ZEROS
    answers: int = 0
    stepped_us: int = -1
    rows: dict[str, Joints] = field(default_factory=lambda: dict.fromkeys(_ROWS, _ZEROS))


class EmulatedProgram:
    """The program for one arm or several.

    Args:
        controllers: Controllers of its arms, in its order.

    Attributes:
        ended: Reason for which it has ended itself; empty while it runs.
    """

    def __init__(
        self, controllers: Mapping[str, EmulatedController], settings: LcmSettings
    ) -> None:
        self._settings = settings
        self._robots = {arm: _Robot(controller) for arm, controller in controllers.items()}
        self._clock = ClockFilter(settings.clock_samples)
        self._controller_us = self._host_us = 0
        self._utime = -1
        self._first_us = -1
        self._started = False
        self._command: Joints | None = None
        self.ended = ""

    def begin(self) -> None:
        """Restarts without waiting: a new world begins."""
        self._command = None
        self.ended = ""
        for robot in self._robots.values():
            robot.entered = robot.inhibited = False

    def inhibited(self, arm: str) -> bool:
        """Whether it ignores commands to an arm."""
        return self._robots[arm].inhibited

    def receive(self, payload: bytes) -> None:
        """Takes an encoded command."""
        if self.ended:
            return
        try:
            found = IIWA_COMMAND.decode(payload)
        except LcmDecodeError:
            return  # LCM's library ignores messages that it cannot decode.
        row = found["joint_position"]
        assert isinstance(row, tuple)
        if not self._started:
            self.ended = "a command came within its guard time"
        elif len(row) < JOINTS * len(self._robots):
            self.ended = f"a command of {len(row)} joints"
        else:
            self._command = row

    def step(self, arm: str, data: bytes, host_us: int | None) -> None:
        """Takes an encoded message of an arm's controller, and answers it.

        `host_us` is the time of the host, microseconds; None: that of the controller.
        """
        if self.ended:
            return
        robot = self._robots[arm]
        message = Monitoring.of(VERSION, data)
        seconds, nanoseconds = message.time or (0, 0)
        stamp = seconds * 1_000_000 + nanoseconds // 1000
        if robot is next(iter(self._robots.values())):
            self._controller_us = stamp
            self._host_us = stamp if host_us is None else host_us
            self._clock.take(stamp, self._host_us)
            self._utime = self._clock.to_host(stamp)
        self._follow_session(robot, message)
        self._note(robot, message, stamp)
        if (np.abs(message.external_torque) > _STRONGEST_NM).any():
            self.ended = f"{arm} is in an unsafe state"
            return
        position = self._position(arm, robot, message)
        answer = Command(robot.answers, message.sequence, position)
        robot.answers += 1
        if message.session is not SessionState.IDLE:
            robot.controller.receive(answer.to_bytes(VERSION))

    def _follow_session(self, robot: _Robot, message: Monitoring) -> None:
        if message.session is SessionState.COMMANDING_ACTIVE is not robot.state:
            robot.hold = message.measured
            robot.inhibited = robot.entered and not self._settings.restart_fri
            robot.entered = True
        robot.state = message.session

    def _note(self, robot: _Robot, message: Monitoring, stamp: int) -> None:
        rows = robot.rows
        commanding = bool(message.ipo)
        velocity = rows["joint_velocity_estimated"]
        if robot.stepped_us >= 0 and stamp > robot.stepped_us:
            seconds = 1e-6 * (stamp - robot.stepped_us)
            new = seconds / (seconds + 1 / (2 * math.pi * _CUTOFF_HZ))
            before = rows["joint_position_measured"]
            velocity = tuple(
                (1 - new) * old + new * (now - then) / seconds
                for old, now, then in zip(velocity, message.measured, before, strict=True)
            )
        robot.stepped_us = stamp
        values = (
            message.measured,
            velocity,
            message.commanded,
            message.ipo if commanding else _NAN,
            message.torque,
            message.commanded_torque,
            message.external_torque,
        )
        robot.rows = dict(zip(_ROWS, values, strict=True))

    def _position(self, arm: str, robot: _Robot, message: Monitoring) -> Joints:
        if message.session is SessionState.COMMANDING_WAIT:
            return message.ipo
        if message.session is not SessionState.COMMANDING_ACTIVE:
            return message.commanded
        if robot.inhibited or self._command is None:
            return robot.hold
        at = JOINTS * list(self._robots).index(arm)
        # As in C++, this order of arguments passes NaN on.
        return tuple(
            max(min(value, limit), -limit)
            for value, limit in zip(self._command[at : at + JOINTS], _LIMITS.tolist(), strict=True)
        )

    def status(self) -> dict[str, int | Joints]:
        """Returns the fields of its next status, which ends its guard time when that is over."""
        if self._first_us < 0:
            self._first_us = self._controller_us
        self._started = self._controller_us - self._first_us >= 1e6 * self._settings.guard_s
        rows = {
            name: tuple(value for robot in self._robots.values() for value in robot.rows[name])
            for name in _ROWS
        }
        return {"utime": self._utime, **rows}

    def telemetry(self) -> bytes:
        """Returns its next message about clocks, encoded."""
        values = {"host_utime": self._host_us, "iiwa_utime": self._controller_us}
        return IIWA_STATUS_TELEMETRY.encode(
            {**values, "estimated_dt_host_minus_iiwa": self._clock.difference_us}
        )
