"""One emulated controller: its messages, the commands that it accepts, and its safety stops.

Its session runs an application: a motion with a joint overlay. It rates its connection by a rule;
KUKA's own rule is not public, and this one is an assumption. In the operation mode T1 it supervises
the Cartesian speed of its arm. A gripper is an analogue output, or a valve with one bit or two.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.iiwa14 import FLANGE_Z, GRIPPER_Z
from stringline.real_robot.drivers.fri.controller_io import IoValue
from stringline.real_robot.drivers.fri.enums import (
    CommandMode,
    ControlMode,
    DriveState,
    IoDirection,
    IoType,
    OperationMode,
    Overlay,
    Quality,
    SafetyState,
    SessionState,
)
from stringline.real_robot.drivers.fri.messages import Command, Monitoring, usable
from stringline.real_robot.drivers.fri.protobuf import FriDecodeError
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.emulators.program.faulty_channel import KINDS, FaultyChannel
from stringline.real_robot.ipc.array_messages import Json


@dataclass(frozen=True)
class QualityRule:
    """Thresholds on the share of answers in time.

    Attributes:
        window: Number of answers that count.
        fair: Smallest share for FAIR.
        good: Smallest share for GOOD.
        excellent: Smallest share for EXCELLENT.
        most_missed: Consecutive answers that may be missing; with one more the connection is POOR.
    """

    window: int = 20
    fair: float = 0.5
    good: float = 0.8
    excellent: float = 0.95
    most_missed: int = 4

    def __post_init__(self) -> None:
        """Checks the order of the thresholds."""
        if (
            self.window < 1
            or self.most_missed < 0
            or not 0 <= self.fair <= self.good <= self.excellent <= 1
        ):
            raise ValueError(
                f"A rule of quality needs window >= 1, most_missed >= 0 and 0 <= fair <= good <= "
                f"excellent <= 1; got {self}."
            )


class QualityMeter:
    """Rates a connection by a rule; a new one has had no answers."""

    def __init__(self, rule: QualityRule) -> None:
        self._rule = rule
        self.reset()

    def reset(self) -> None:
        """Begins again."""
        self._seen: deque[bool] = deque([False] * self._rule.window, self._rule.window)
        self._missed = self._rule.most_missed + 1

    def note(self, answered: bool) -> None:
        """Notes whether an answer arrived in time."""
        self._seen.append(answered)
        self._missed = 0 if answered else self._missed + 1

    @property
    def quality(self) -> Quality:
        """Quality of the connection."""
        rule = self._rule
        share = sum(self._seen) / self._rule.window
        if self._missed > rule.most_missed or share < rule.fair:
            return Quality.POOR
        if share < rule.good:
            return Quality.FAIR
        return Quality.GOOD if share < rule.excellent else Quality.EXCELLENT


T1_SPEED = 0.25  # m/s
_ROUNDING = 1e-9


def t1_speed(*, unlimited: bool) -> float:
    """Returns the largest speed in T1, m/s."""
    return np.inf if unlimited else T1_SPEED


class T1Supervision:
    """Measures the speed of flange and gripper (TCP) from one commanded position to the next.

    A real controller measures the arm, whose speed may briefly exceed that of its commands.

    Args:
        arm: Name of the arm, of seven revolute joints.
        largest: Largest speed, m/s; infinite: any.
    """

    def __init__(self, embodiment: Embodiment, arm: str, largest: float) -> None:
        self._embodiment = embodiment
        self._arm = arm
        self.largest = largest

    def excess(self, before: Vector, after: Vector, seconds: float) -> float:
        """Returns the speed between two positions (7,) if it is too large, or 0, m/s."""
        if not np.isfinite(self.largest):
            return 0.0
        q = np.tile(self._embodiment.home, (2, 1))
        q[:, self._embodiment.revolute_joints[self._arm]] = (before, after)
        T_base_gripper = self._embodiment.forward_kinematics(q)[self._arm]
        gripper = T_base_gripper[:, :3, 3]
        flange = gripper - (GRIPPER_Z - FLANGE_Z) * T_base_gripper[:, :3, 0]
        moved = np.diff(np.stack([gripper, flange], axis=1), axis=0)
        speed = float(np.linalg.norm(moved, axis=-1).max()) / seconds
        return speed if speed > self.largest + _ROUNDING else 0.0


# Names of inputs and outputs in the emulated controllers' project.
GRIPPER_OUTPUT = "Gripper.Opening"
GRIPPER_INPUT = "Gripper.MeasuredOpening"
# The same gripper with a valve, and a bit for each direction.
GRIPPER_OPEN = "Gripper.Open"
GRIPPER_CLOSE = "Gripper.Close"
GRIPPER_IS_OPEN = "Gripper.IsOpen"
# A pedal of hold-to-run.
RUN_PEDAL = "Run.Pedal"

_AS_GOOD_AS_OPEN = 0.95
# States of a valve's bits, to open and to close: not set by a client yet, so that they follow the
# gripper; and neither.
UNSET = ()
NEUTRAL = (0.0, 0.0)


def opening_of(outputs: Sequence[IoValue], before: float) -> float:
    """Returns the target opening, 0 to 1, by the outputs that a client has written.

    It stays at `before` without an output, or if a valve gets both bits or neither.
    """
    given = {one.name: one.value for one in outputs if math.isfinite(one.value)}
    if GRIPPER_OUTPUT in given:
        return min(max(given[GRIPPER_OUTPUT], 0.0), 1.0)
    if GRIPPER_OPEN not in given:
        return before
    opens = bool(given[GRIPPER_OPEN])
    closes = bool(given.get(GRIPPER_CLOSE, not opens))  # With one bit alone a spring closes.
    return before if opens == closes else float(opens)


def bits_of(outputs: Sequence[IoValue], before: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the valve's bits after a client has written outputs."""
    given = {one.name: float(bool(one.value)) for one in outputs if math.isfinite(one.value)}
    if GRIPPER_OUTPUT in given:
        return UNSET
    if GRIPPER_OPEN not in given:
        return before
    return given[GRIPPER_OPEN], given.get(GRIPPER_CLOSE, 1.0 - given[GRIPPER_OPEN])


def inputs_of(
    measured: float, wanted: float, bits: tuple[float, ...], pedal: float = 0.0
) -> tuple[IoValue, ...]:
    """Returns the inputs and outputs in each message, by the measured and the wanted opening."""
    is_open = float(measured >= _AS_GOOD_AS_OPEN)
    as_wanted = float(wanted >= 0.5)
    opens, closes = bits or (as_wanted, 1.0 - as_wanted)
    return (
        IoValue(GRIPPER_INPUT, IoType.ANALOG, IoDirection.INPUT, measured),
        IoValue(GRIPPER_IS_OPEN, IoType.BOOLEAN, IoDirection.INPUT, is_open),
        IoValue(RUN_PEDAL, IoType.BOOLEAN, IoDirection.INPUT, pedal),
        IoValue(GRIPPER_OUTPUT, IoType.ANALOG, IoDirection.OUTPUT, wanted),
        IoValue(GRIPPER_OPEN, IoType.BOOLEAN, IoDirection.OUTPUT, opens),
        IoValue(GRIPPER_CLOSE, IoType.BOOLEAN, IoDirection.OUTPUT, closes),
    )


# An application waits before it begins its motion, and the controller before it follows a client.
_READY_PERIODS = 5
_WAIT_PERIODS = 5


@dataclass(frozen=True, eq=False)
class ControllerSettings:
    """Settings of a controller.

    Attributes:
        lower: (7,) lower axis limits, rad.
        upper: (7,) upper axis limits, rad.
        fastest: (7,) rad/s; a command that is farther from the last than this allows causes a
            safety stop.
        t1: Supervision of the Cartesian speed in T1.
        send_period_ms: Milliseconds between two messages.
        restarts: Whether the application begins its motion again after an interruption.
    """

    version: FriVersion
    lower: Vector
    upper: Vector
    fastest: Vector
    send_period_ms: int
    receive_multiplier: int
    restarts: bool
    rule: QualityRule
    t1: T1Supervision


class EmulatedSession:
    """Changes its state as Sunrise does.

    Attributes:
        wants_motion: Whether the application is in its motion or about to begin it.
    """

    def __init__(self, *, restarts: bool) -> None:
        self._restarts = restarts
        self.wants_motion = True
        self.state = SessionState.MONITORING_WAIT
        self._periods = 0

    @property
    def commanding(self) -> bool:
        """Whether a motion is in progress."""
        return self.state in (SessionState.COMMANDING_WAIT, SessionState.COMMANDING_ACTIVE)

    def advance(self, quality: Quality, *, may_move: bool, follows: bool) -> None:
        """Advances by a period.

        `may_move`: the safety controller allows motion. `follows`: the client repeats the
        controller's position, as it must before it may command.
        """
        self._periods += 1
        good = quality >= Quality.GOOD
        match self.state:
            case SessionState.MONITORING_WAIT if good:
                self._go(SessionState.MONITORING_READY)
            case SessionState.MONITORING_READY if not good:
                self._go(SessionState.MONITORING_WAIT)
            case SessionState.MONITORING_READY if (
                may_move and self.wants_motion and self._periods >= _READY_PERIODS
            ):
                self._go(SessionState.COMMANDING_WAIT)
            case SessionState.COMMANDING_WAIT | SessionState.COMMANDING_ACTIVE if not good:
                self.break_off(SessionState.MONITORING_WAIT)
            case SessionState.COMMANDING_WAIT if follows and self._periods >= _WAIT_PERIODS:
                self._go(SessionState.COMMANDING_ACTIVE)
            case _:
                pass

    def break_off(self, state: SessionState = SessionState.MONITORING_READY) -> None:
        """Ends a motion in progress."""
        if self.commanding:
            self._go(state)
            self.wants_motion = self._restarts

    def _go(self, state: SessionState) -> None:
        self.state = state
        self._periods = 0


_OF_THE_ARM = ("stop", "release", "leave", "restart", "t1", "t2", "aut", "period", "load")
EVENTS = ("cut", "mend", *_OF_THE_ARM, "neutral", "pedal_down", "pedal_up", "power")
FAULTS = tuple(f"{prefix}{kind}" for prefix in ("", "answer_") for kind in KINDS) + EVENTS

_REPEATED_RAD = 1e-6
_EPOCH_S = 1_700_000_000
_START_MS = 60_000  # Of a controller; its clock runs on.


class EmulatedController:
    """The controller of one arm.

    Attributes:
        target: (7,) target of the arm, rad.
        opening: Target of the gripper.
        answered: Whether the newest message was answered.
        answers: Datagrams received in this episode; the server resets it.
        stops: Reasons for which the arm was stopped, oldest first.
        out: Channel to the client.
        back: Channel from the client.
    """

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._session = EmulatedSession(restarts=settings.restarts)
        self._meter = QualityMeter(settings.rule)
        self._safety = SafetyState.NORMAL
        self._operation = OperationMode.T1
        self._send_period_ms = settings.send_period_ms
        self._stamp_ms = 0
        self._load_nm = 0.0
        self._pedal = 0.0
        self._bits: tuple[float, ...] = UNSET
        self._sequence = 0
        self._last_command = -1
        self._reflected = 0
        self.answered = False
        self._follows = False
        self._periods_since_command = 0
        self._since_asked = 0
        self._measured = np.zeros(JOINTS)
        self._velocity = np.zeros(JOINTS)
        self._torque = np.zeros(JOINTS)
        self._measured_opening = 1.0
        self._ipo: Vector = np.zeros(JOINTS)
        self.target: Vector = np.zeros(JOINTS)
        self.opening = 1.0
        self.answers = 0
        self.stops: list[str] = []
        self._asked = self._in_time = 0
        self.out = FaultyChannel()
        self.back = FaultyChannel()

    @property
    def state(self) -> SessionState:
        """State of the session."""
        return self._session.state

    def report(self) -> dict[str, Json]:
        """Returns the statistics of `ControllerReport`."""
        return {
            "periods": self._asked,
            "in_time": self._in_time,
            "stops": list(self.stops),
            "state": self.state.name,
        }

    def sense(self, position: Vector, torque: Vector, opening: float) -> None:
        """Measures the state of arm and gripper."""
        self._measured = position
        self._torque = torque
        self._measured_opening = opening
        if not self._session.commanding:
            self.target = position.copy()

    def begin(self, position: Vector, opening: float) -> list[bytes]:
        """Moves the arm to a new world, which interrupts a motion and ends a safety stop.

        Returns the messages about it, oldest first.
        """
        was = self.state
        self._safety = SafetyState.NORMAL
        self._session.break_off()
        self.sense(position, np.zeros(JOINTS), opening)
        self.opening = opening
        self._bits = UNSET
        messages = [self._message()]
        if was is SessionState.COMMANDING_ACTIVE:
            self._session.state = was
            self._session.wants_motion = True
            self._hold()
            messages.append(self._message())
        return messages

    def skip(self, periods: int) -> None:
        """Lets the controller's clock run on for periods that the emulator was too late for."""
        self._stamp_ms += periods * self._send_period_ms

    def tick(self, *, judged: bool = True) -> list[bytes]:
        """Advances by a period and returns the datagrams that reach the client.

        Only if `judged`, a missing answer counts against the connection.
        """
        for data in self.back.pass_period():
            self._execute(data)
        self._since_asked += 1
        self._asked += 1
        self._in_time += self.answered
        if self.answered or (judged and self._since_asked >= self._settings.receive_multiplier):
            self._meter.note(self.answered)
            self._since_asked = 0
        if self.state is SessionState.MONITORING_WAIT and not self.answered:
            # The next client may be another one, which counts from the start.
            self._last_command = -1
        was = self._session.commanding
        may_move = self._safety is SafetyState.NORMAL
        self._session.advance(self._meter.quality, may_move=may_move, follows=self._follows)
        if self._session.commanding != was:
            self._hold()
        self._periods_since_command += 1
        return [*self.out.pass_period(), *self.out.carry(self._message())]

    def _hold(self) -> None:
        """Stands still at the position of the arm, where the next motion begins."""
        self._ipo = self.target = self._measured.copy()
        self._periods_since_command = 0
        self._follows = False

    def _message(self) -> bytes:
        settings = self._settings
        self._sequence = (self._sequence + 1) % (1 << 32)
        self.answered = False
        commanding = self._session.commanding
        active = self.state is SessionState.COMMANDING_ACTIVE
        self._stamp_ms += self._send_period_ms
        drive = DriveState.ACTIVE if commanding else DriveState.OFF
        message = Monitoring(
            sequence=self._sequence,
            reflected=self._reflected,
            session=self.state,
            quality=self._meter.quality,
            send_period_ms=self._send_period_ms,
            receive_multiplier=settings.receive_multiplier,
            safety=self._safety,
            drives=(drive,) * JOINTS,
            operation=self._operation,
            control=ControlMode.POSITION if commanding else ControlMode.NONE,
            measured=tuple(self._measured.tolist()),
            torque=tuple(self._torque.tolist()),
            commanded=tuple(self.target.tolist()) if settings.version.echoes else (),
            commanded_torque=(0.0,) * JOINTS,
            external_torque=(self._load_nm, *(0.0,) * (JOINTS - 1)),
            inputs=inputs_of(self._measured_opening, self.opening, self._bits, self._pedal)
            if settings.version.has_io
            else (),
            time=(_EPOCH_S + self._stamp_ms // 1000, self._stamp_ms % 1000 * 1_000_000),
            ipo=tuple(self._ipo.tolist()) if commanding else (),
            command_mode=CommandMode.POSITION if commanding else CommandMode.NONE,
            overlay=Overlay.JOINT if commanding else Overlay.NONE,
            tracking=1.0 if active else 0.0,
        )
        return message.to_bytes(settings.version)

    def receive(self, data: bytes) -> bool:
        """Receives a datagram; returns whether a command was accepted because of it."""
        self.answers += 1
        return any([self._execute(arrived) for arrived in self.back.carry(data)])

    def _execute(self, data: bytes) -> bool:
        """Executes a new command that answers the newest message; returns whether it was one."""
        try:
            command = Command.of(self._settings.version, data)
        except FriDecodeError:
            return False
        if command.sequence <= self._last_command or command.reflected != self._sequence:
            return False
        self._last_command = command.sequence
        self._reflected = command.sequence
        self.answered = True
        if self._session.commanding and not usable(command.position):
            self.stop(f"a command of {len(command.position)} joints, or not finite")
        elif self.state is SessionState.COMMANDING_WAIT:
            self._follows = bool(
                np.abs(np.array(command.position) - self._ipo).max() <= _REPEATED_RAD
            )
        elif self.state is SessionState.COMMANDING_ACTIVE:
            self._move(np.array(command.position), command)
        return True

    def _move(self, position: Vector, command: Command) -> None:
        settings = self._settings
        seconds = 1e-3 * self._send_period_ms * max(self._periods_since_command, 1)
        allowed = settings.fastest * seconds + _REPEATED_RAD
        steps = np.abs(position - self.target)
        if (steps > allowed).any():
            self.stop(
                f"axis {1 + int((steps - allowed).argmax())} was to jump by {steps.max():.4f} rad"
            )
            return
        if (position < settings.lower).any() or (position > settings.upper).any():
            self.stop("a command beyond an axis limit")
            return
        t1 = settings.t1
        if self._operation is OperationMode.T1 and (
            speed := t1.excess(self.target, position, seconds)
        ):
            self.stop(f"the gripper was to move at {speed:.3f} m/s; T1: {t1.largest:g}")
            return
        self.target = position
        self._periods_since_command = 0
        self.opening = opening_of(command.outputs, self.opening)
        self._bits = bits_of(command.outputs, self._bits)

    def stop(self, why: str) -> None:
        """Stops the arm, as its safety controller does."""
        self.stops.append(why)
        self._safety = SafetyState.STOP1_ON_PATH
        self._session.break_off()
        self._hold()

    def fault(self, kind: str, count: int = 0) -> None:
        """Begins or ends a fault.

        A fault of the connection (`drop`, `late`, `duplicate`, `reorder`, `corrupt`) applies to the
        next `count` messages, or with the prefix `answer_` to the next answers. `cut` and `mend`:
        the connection; `stop` and `release`: the safety controller; `leave`: the motion ends;
        `restart`: the application; `t1`, `t2`, `aut`: the operation mode; `period`: the send period
        becomes `count` ms; `load`: a torque of `count` Nm on the first axis; `neutral`: the
        gripper's valve gets neither bit; `pedal_down`, `pedal_up`: the input `Run.Pedal`; `power`:
        the controller is switched off and on, which ends its session, safety stops and faults, sets
        period, mode and outputs as at the start, and counts its messages from the start.

        Raises:
            ValueError: The fault is unknown.
        """
        if kind not in FAULTS:
            raise unknown_name("fault", kind, FAULTS)
        match kind:
            case "cut" | "mend":
                self.out.cut = self.back.cut = kind == "cut"
            case "stop":
                self.stop("by script")
            case "release":
                self._safety = SafetyState.NORMAL
            case "leave":
                self._session.break_off()
                self._session.wants_motion = False
                self._hold()
            case "restart":
                self._session.wants_motion = True
            case "t1" | "t2" | "aut":
                self._operation = OperationMode[kind.upper()]
            case "period":
                self._send_period_ms = max(count, 1)
            case "load":
                self._load_nm = float(count)
            case "neutral" | "pedal_down" | "pedal_up":
                self._bits = NEUTRAL if kind == "neutral" else self._bits
                self._pedal = {"pedal_down": 1.0, "pedal_up": 0.0}.get(kind, self._pedal)
            case "power":
                self._switch_off_and_on()
            case _:
                channel = self.back if kind.startswith("answer_") else self.out
                channel.plan(kind.removeprefix("answer_"), count)

    def _switch_off_and_on(self) -> None:
        """Forgets all but the state of the arm and the wall clock, which runs on."""
        fresh = EmulatedController(self._settings)
        fresh.sense(self._measured, self._torque, self._measured_opening)
        fresh.answers = self.answers
        fresh.stops = self.stops
        fresh._stamp_ms = self._stamp_ms + _START_MS
        vars(self).update(vars(fresh))
