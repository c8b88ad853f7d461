"""One emulated controller: its messages, the commands that it accepts, and its safety stops."""

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.drivers.fri.enums import (
    CommandMode,
    ControlMode,
    DriveState,
    OperationMode,
    Overlay,
    SafetyState,
    SessionState,
)
from stringline.real_robot.drivers.fri.fri_command import Command
from stringline.real_robot.drivers.fri.fri_inbox import usable
from stringline.real_robot.drivers.fri.monitoring import Monitoring
from stringline.real_robot.drivers.fri.protobuf_wire import FriDecodeError
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.emulators.fri.connection_quality import QualityMeter
from stringline.real_robot.emulators.fri.emulated_outputs import (
    NEUTRAL,
    UNSET,
    bits_of,
    inputs_of,
    opening_of,
)
from stringline.real_robot.emulators.fri.emulated_session import ControllerSettings, EmulatedSession
from stringline.real_robot.emulators.program.faulty_channel import KINDS, FaultyChannel
from stringline.real_robot.ipc.array_messages import Json

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
