"""drake-iiwa-driver, emulated: an FRI client of its controllers, which is commanded over LCM.

After RobotLocomotion/drake-iiwa-driver, 5cbeb8a (2025), `kuka_driver.cc`, in position mode. It
passes the newest command on at each step, limited to one degree from the ends of the axes, except
for NaN, and holds it for ever. It ends itself (by an exception or an assertion in the original)
when a command arrives within its guard time or is too short, or when an external torque is too
large. An arm whose motion begins a second time is held in place, unless the program was started
with `--restart_fri`.

In its multicast group other programs may interfere, and faults of its statuses follow a script.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.fri.enums import SessionState
from stringline.real_robot.drivers.fri.messages import Command, Joints, Monitoring
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.drake_messages import (
    IIWA_COMMAND,
    IIWA_STATUS,
    IIWA_STATUS_TELEMETRY,
    Channels,
)
from stringline.real_robot.drivers.lcm.lcm_link import LcmDecodeError, LcmLink
from stringline.real_robot.emulators.fri.controller import EVENTS as CONTROLLER_EVENTS
from stringline.real_robot.emulators.fri.controller import EmulatedController
from stringline.real_robot.emulators.program.capture_file import Captured, CaptureFile
from stringline.real_robot.emulators.program.emulator_settings import LcmSettings
from stringline.real_robot.emulators.program.faulty_channel import KINDS, FaultyChannel
from stringline.real_robot.ipc.array_messages import Json

STATUS_FAULTS = ("freeze", "backwards", "nan", "joints", "push", "zeros")
_BACKWARDS_US = 1_000_000
_PUSH_RAD = 0.5


class StatusFaults:
    """Changes the next statuses.

    Their time stands still or goes backwards; a joint is not a number, is missing, or was pushed;
    the commanded positions are all zero.
    """

    def __init__(self) -> None:
        self._left: Counter[str] = Counter()
        self._utime = 0

    def plan(self, kind: str, count: int) -> None:
        """Makes the next `count` statuses wrong.

        Raises:
            ValueError: The fault is unknown.
        """
        if kind not in STATUS_FAULTS:
            raise unknown_name("fault of a status", kind, STATUS_FAULTS)
        self._left[kind] += max(count, 1)

    def encode(self, status: dict[str, int | Joints]) -> bytes:
        """Returns the message that is published instead of a status."""
        utime = status["utime"]
        measured = status["joint_position_measured"]
        commanded = status["joint_position_commanded"]
        assert isinstance(utime, int)
        assert isinstance(measured, tuple)
        assert isinstance(commanded, tuple)
        if self._takes("freeze"):
            utime = self._utime
        self._utime = utime
        if self._takes("backwards"):
            utime -= _BACKWARDS_US
        if self._takes("nan"):
            measured = (math.nan, *measured[1:])
        if self._takes("push"):
            measured = (measured[0] + _PUSH_RAD, *measured[1:])
        if self._takes("zeros"):
            commanded = (0.0,) * len(commanded)
        rows = {
            **status,
            "utime": utime,
            "joint_position_measured": measured,
            "joint_position_commanded": commanded,
        }
        if self._takes("joints"):
            rows = {name: row[:-1] if isinstance(row, tuple) else row for name, row in rows.items()}
        return IIWA_STATUS.encode(rows)

    def _takes(self, kind: str) -> bool:
        if not self._left[kind]:
            return False
        self._left[kind] -= 1
        return True


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

        `host_us` is the time of the host, microseconds; if None, that of the controller.
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


EVENTS = ("cut", "mend", "foreign", "twin", "crash", "revive")
_OF_CONTROLLER = tuple(name for name in CONTROLLER_EVENTS if name not in EVENTS)
FAULTS = (
    *KINDS,
    *(f"command_{kind}" for kind in KINDS),
    *STATUS_FAULTS,
    *EVENTS,
    *_OF_CONTROLLER,
)


class FaultyLink(LcmLink):
    """A link with faults of the datagrams that it sends.

    Attributes:
        channel: Faults on the way out.
    """

    channel: FaultyChannel

    def _send(self, data: bytes) -> bool:
        return all([super(FaultyLink, self)._send(one) for one in self.channel.carry(data)])

    def publish_unless_cut(self, channel: str, payload: bytes) -> None:
        """Publishes a message to which no fault but a cut applies."""
        if not self.channel.cut:
            for data in self._packed(channel, payload):
                super()._send(data)

    def send_late(self) -> None:
        """Advances by a period and sends the late datagrams."""
        for data in self.channel.pass_period():
            super()._send(data)


class DriverProgramEmulator:
    """The program with its connections.

    Args:
        controllers: Controllers of its arms, in its order.
        address: `group:port` of LCM.
        capture: File that records the commands that reach the program, or None.

    Attributes:
        received: Commands of the client in this episode.
    """

    def __init__(
        self,
        controllers: Mapping[str, EmulatedController],
        address: str,
        channels: Channels,
        settings: LcmSettings,
        capture: Path | None,
    ) -> None:
        self.arms = tuple(controllers)
        self.address = address
        self._channels = channels
        self._settings = settings
        self._capture = CaptureFile(capture)
        self._others = LcmLink(self.address, channels=frozenset())
        self._others.open()
        self._link = FaultyLink(self.address, channels=frozenset({self._channels.command}))
        self.reboot(controllers)

    def reboot(self, controllers: Mapping[str, EmulatedController]) -> None:
        """Begins again as another process, which publishes from another port."""
        self._controllers = dict(controllers)
        self._link.channel = FaultyChannel()
        self._commands = FaultyChannel()
        self._faults = StatusFaults()
        self._link.open()
        self.program = EmulatedProgram(self._controllers, self._settings)
        self.received = self._periods = self._asked = self._in_time = 0
        self._answered = False
        self._foreign = self._twin = 0
        self._capture.clear()

    def skip(self, arm: str, periods: int) -> None:
        """Counts periods without commands, for which this process was too late."""
        if arm == self.arms[0]:
            self._periods += periods

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._link.fileno()

    def begin(self) -> None:
        """Begins an episode: commands before it do not count."""
        self.serve()
        self.program.begin()
        self.received = 0
        # The gap shows readers of the capture that commands begin again.
        self._periods += 2
        if not self._capture.empty:
            self._capture.write(Captured(self._periods, False, b"").to_bytes())

    def serve(self) -> None:
        """Receives the commands that have arrived."""
        for message in self._link.receive():
            if message.source == self._others.own:
                self.program.receive(message.payload)
                continue
            self.received += 1
            self._answered = True
            for arrived in self._commands.carry(message.payload):
                self._take(arrived)

    def _take(self, payload: bytes) -> None:
        """Passes a command on to the program."""
        passed_on = any(self._passed_on(arm) for arm in self.arms)
        self._capture.write(Captured(self._periods, passed_on, payload).to_bytes())
        self.program.receive(payload)

    def _passed_on(self, arm: str) -> bool:
        active = self._controllers[arm].state is SessionState.COMMANDING_ACTIVE
        return active and not self.program.inhibited(arm) and not self.program.ended

    def tick(self, arms: tuple[str, ...], host_us: int | None, *, counted: bool) -> None:
        """Advances by a period of some of its arms, and publishes the status.

        If `counted`, a period without a new command counts as not answered in time. `host_us` is
        that of `EmulatedProgram.step`.
        """
        self.serve()
        for late in self._commands.pass_period():
            self._take(late)
        self._link.send_late()
        if self._foreign:
            self._foreign -= 1
            self._command_as_another_client()
        if self.arms[0] in arms:
            self._periods += 1
            if counted:
                self._asked += 1
                self._in_time += self._answered
            self._answered = False
        messages = {
            arm: self._controllers[arm].tick(judged=bool(self.program.ended)) for arm in arms
        }
        for arm, datagrams in messages.items():
            for data in datagrams:
                self.program.step(arm, data, host_us)
        self.publish()

    def publish(self) -> None:
        """Publishes the status of the arms, as after each step."""
        if self.program.ended:
            return
        channels = self._channels
        status = self._faults.encode(self.program.status())
        self._link.publish(channels.status, status)
        self._link.publish_unless_cut(channels.telemetry, self.program.telemetry())
        if self._twin:
            self._twin -= 1
            self._others.publish(channels.status, status)

    def _command_as_another_client(self) -> None:
        row = self.program.status()["joint_position_commanded"]
        self._others.publish(
            self._channels.command, IIWA_COMMAND.encode({"utime": 0, "joint_position": row})
        )
        self.serve()

    def fault(self, arm: str, kind: str, count: int) -> None:
        """Begins or ends a fault.

        A fault of the connection (`drop`, `late`, `duplicate`, `reorder`, `corrupt`) applies to the
        next `count` datagrams, or with the prefix `command_` to the next commands; `freeze`,
        `backwards`, `nan`, `joints`, `push` and `zeros` to the next statuses. For the next periods
        there are `foreign` commands, or a `twin` that publishes the same statuses. `cut` and
        `mend`: the connection; `crash` and `revive`: the program. Others are those of an FRI
        controller.

        Raises:
            ValueError: The fault is unknown.
        """
        match kind:
            case "cut" | "mend":
                self._link.channel.cut = self._commands.cut = kind == "cut"
            case "foreign":
                self._foreign = max(count, 1)
            case "twin":
                self._twin = max(count, 1)
            case "crash":
                self.program.ended = "by script"
            case "revive":
                self._link.open()
                self.program = EmulatedProgram(self._controllers, self._settings)
            case _ if kind in STATUS_FAULTS:
                self._faults.plan(kind, count)
            case _ if kind in _OF_CONTROLLER:
                self._controllers[arm].fault(kind, count)
            case _ if kind in FAULTS:
                commands = kind.startswith("command_")
                channel = self._commands if commands else self._link.channel
                channel.plan(kind.removeprefix("command_"), count)
            case _:
                raise unknown_name("fault", kind, FAULTS)

    def report(self, arm: str) -> dict[str, Json]:
        """Returns the statistics of an arm: see `ProgramReport`."""
        controller = self._controllers[arm]
        return {
            "periods": self._asked,
            "in_time": self._in_time,
            "stops": list(controller.stops),
            "state": controller.state.name,
            "ended": self.program.ended,
            "inhibited": self.program.inhibited(arm),
        }

    def close(self) -> None:
        """Leaves the group."""
        self._link.close()
        self._others.close()
        self._capture.close()
