"""One arm over FRI: when it may be commanded, the position of commands, and the answers.

Rules over its controller's last message tell whether commands may move the arm.

After every change into a commanding state the first commands repeat the position that the
controller commands itself. From there on a command must be near the one before; a command that is
not is never sent.

Each message of a controller names the last answer that it has accepted. An arm whose controller has
no answer stands still. So commands do not continue along the path that was meant for the time in
between: they begin again, at rest, at the last accepted one. Lost motion is never made up for.

Commands are made by one clock and sent by another, as two controllers have no common one. They form
a path, a point each period; each answer advances by about one point along it, a few points behind
(`Playback`). Playing up to 1 % faster or slower keeps that distance, whichever clock is faster.
Thereby speed changes by up to 1.03 times its change along the path plus 2 % of the speed, and no
step is larger than the largest of the path.
"""

import math
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.gripper import Gripper, NoGripper
from stringline.real_robot.driver_interface.interlocks import (
    FIRST_STOP,
    TRACKING_ERROR_RAD,
    Interlock,
)
from stringline.real_robot.drivers.fri.controller_io import OutputGripper, RunInput
from stringline.real_robot.drivers.fri.enums import (
    CommandMode,
    ControlMode,
    DriveState,
    OperationMode,
    Overlay,
    Quality,
    SafetyState,
    SessionState,
)
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.messages import (
    Command,
    Inbox,
    Joints,
    Monitoring,
    usable,
    versions_of,
)
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS, KukaArm

_SESSIONS = {
    SessionState.IDLE: Interlock.IDLE,
    SessionState.MONITORING_WAIT: Interlock.MONITORING_WAIT,
    SessionState.MONITORING_READY: Interlock.MONITORING_READY,
    SessionState.COMMANDING_WAIT: Interlock.COMMANDING_WAIT,
}
Modes = Collection[OperationMode]


def safety(message: Monitoring, modes: Modes) -> Interlock:
    """The safety controller allows motion."""
    return Interlock.NONE if message.safety is SafetyState.NORMAL else Interlock.SAFETY


def operation_mode(message: Monitoring, modes: Modes) -> Interlock:
    """The operation mode is one in which the arm may be moved."""
    return Interlock.NONE if message.operation in modes else Interlock.OPERATION_MODE


def session(message: Monitoring, modes: Modes) -> Interlock:
    """The controller follows commands."""
    return _SESSIONS.get(message.session, Interlock.NONE)


def drives(message: Monitoring, modes: Modes) -> Interlock:
    """All drives are on. Outside a motion the brakes are, so the session is checked before."""
    active = message.drives and all(drive is DriveState.ACTIVE for drive in message.drives)
    return Interlock.NONE if active else Interlock.DRIVES


def command_mode(message: Monitoring, modes: Modes) -> Interlock:
    """The application accepts joint positions, as an overlay on its own motion."""
    accepts = message.command_mode is CommandMode.POSITION and message.overlay is Overlay.JOINT
    return Interlock.NONE if accepts else Interlock.COMMAND_MODE


def quality(message: Monitoring, modes: Modes) -> Interlock:
    """Enough answers arrive in time."""
    return Interlock.QUALITY if message.quality < Quality.GOOD else Interlock.NONE


# The gravest first.
RULES: tuple[Callable[[Monitoring, Modes], Interlock], ...] = (
    safety,
    operation_mode,
    session,
    drives,
    command_mode,
    quality,
)


def interlock_of(message: Monitoring, operation_modes: Modes) -> Interlock:
    """Returns the gravest interlock by a controller's last message."""
    return next((one for rule in RULES if (one := rule(message, operation_modes))), Interlock.NONE)


_KEPT = 64
_ROUND = 1 << 32


class _Answer(NamedTuple):
    number: int
    message: int
    position: Vector


class Answers:
    """The answers of one motion. Positions are (7,) rad."""

    def __init__(self) -> None:
        self._sent: deque[_Answer] = deque(maxlen=_KEPT)
        self._taken = _Answer(-1, 0, np.zeros(0))
        self._answered = 0
        self._usual = math.inf

    def begin(self, sequence: int, position: Vector) -> None:
        """Forgets earlier answers: a motion begins with the message `sequence`, at `position`."""
        self._sent.clear()
        self._taken = _Answer(-1, sequence, position)
        self._answered = sequence

    def note(self, number: int, sequence: int, position: Vector) -> None:
        """Notes answer `number` to message `sequence`, and its commanded position."""
        self._sent.append(_Answer(number, sequence, position))
        self._answered = sequence

    def missed(self, message: Monitoring) -> Vector | None:
        """Returns the last accepted position if the controller lacks an answer, or None.

        Some controllers may always name an answer one message later than others: the usual delay
        does not indicate a loss.
        """
        indices = [
            index for index, answer in enumerate(self._sent) if answer.number == message.reflected
        ]
        if indices:
            for _ in range(indices[0] + 1):
                self._taken = self._sent.popleft()
        behind = (self._answered - self._taken.message) % _ROUND
        if indices:
            self._usual = min(self._usual, behind)
        unanswered = (message.sequence - self._answered) % _ROUND > message.receive_multiplier
        if not unanswered and behind <= self._usual:
            return None
        return self._sent[-1].position if self._sent and self._usual else self._taken.position


Positions = NDArray[np.float64]

# Points between the last command and the next answer: enough for some jitter of either side.
_WANTED = 3.0
_GENTLE = 0.01  # Share by which it may play faster or slower.
_FAR_BEHIND = 4.0
_ROUNDING = 1e-12
# Bound on the change of speed in playback: shares of that of the path, and of the speed.
CHANGE_SHARE = 1.03
SPEED_SHARE = 0.02


class Playback:
    """A path and a position on it. Positions are (J,).

    Args:
        position: Beginning of the path, at rest.

    Attributes:
        dry: Whether the path ended in the middle of the last step.
    """

    def __init__(self, position: Positions) -> None:
        self._points = deque([position])
        self._share = 0.0
        self._largest = np.zeros_like(position)
        self._waits = True
        self.dry = False

    @property
    def backlog(self) -> float:
        """Points that are not played yet."""
        return len(self._points) - 1 - self._share

    @property
    def position(self) -> Positions:
        """The last position played."""
        if self._share == 0.0:
            return self._points[0]
        return np.asarray(self._points[0] + self._share * (self._points[1] - self._points[0]))

    def give(self, position: Positions) -> None:
        """Appends a point; during a rest, points that are not played are dropped."""
        if self.backlog > _FAR_BEHIND and all(
            np.array_equal(position, point) for point in list(self._points)[-2:]
        ):
            return
        self._largest = np.maximum(self._largest, np.abs(position - self._points[-1]))
        self._points.append(position)

    def play(self) -> Positions:
        """Advances by about one point, once there are enough of them, and returns the position."""
        backlog = self.backlog
        before = self.position
        self._waits = self._waits and backlog < _WANTED
        if self._waits:
            return before
        rate = 1.0 + min(max(_GENTLE * (backlog - _WANTED), -_GENTLE), _GENTLE)
        points = self._points.copy()
        share = self._share
        self._go(min(rate, backlog))
        if rate > 1.0 and self._is_large(self.position - before):
            self._points = points
            self._share = share
            rate = 1.0
            self._go(min(rate, backlog))
        self.dry = rate > backlog + _ROUNDING and bool((self.position != before).any())
        return self.position

    def _is_large(self, step: Positions) -> bool:
        return bool((np.abs(step) > self._largest + _ROUNDING).any())

    def _go(self, by: float) -> None:
        self._share += by
        while self._share >= 1.0 - _ROUNDING and len(self._points) > 1:
            self._points.popleft()
            self._share = max(self._share - 1.0, 0.0)


# A controller that has been silent for that many periods has ended its session, whatever the cause.
_LOST_AFTER = 10


class FriArm(KukaArm):
    """A session with one controller.

    Args:
        link: Its port, not open yet.
        period_s: Seconds between two answers.
        operation_modes: Modes in which it may be moved.
        read_only: Whether commands are discarded.
        own_clock: Whether it is answered at other times than commands are made.

    Attributes:
        message: The newest, or None before the first.
        pending: Whether an answer is due.
        fresh: Whether a message has arrived since the last read; the driver resets it.
        misses: Consecutive reads without a message; the driver counts them.
        velocity: (7,) rad/s.
    """

    def __init__(
        self,
        name: str,
        link: FriLink,
        version: FriVersion,
        *,
        period_s: float,
        operation_modes: Collection[OperationMode],
        gripper: Gripper | None = None,
        read_only: bool = False,
        own_clock: bool = False,
        run_input: RunInput | None = None,
    ) -> None:
        super().__init__(name, period_s)
        self.link = link
        self.inbox = Inbox(version)
        self._version = version
        self._modes = frozenset(operation_modes)
        self.gripper: Gripper = NoGripper() if gripper is None else gripper
        self._read_only = read_only
        self._own_clock = own_clock
        self._run_input = run_input
        self.message: Monitoring | None = None
        self.pending = False
        self.fresh = False
        self.misses = 0
        self._unanswered = 0
        self.velocity = np.zeros(JOINTS)
        self._playback = Playback(self._last)
        self._answers = Answers()

    @property
    def motion(self) -> tuple[Vector, Vector, Vector]:
        """(7,) position in rad, velocity in rad/s and external torque in Nm, as measured last."""
        message = self.message
        if message is None:
            return np.zeros(JOINTS), self.velocity, np.zeros(JOINTS)
        torque = np.array(message.external_torque or (0.0,) * JOINTS)
        return np.array(message.measured), self.velocity, torque

    @property
    def lost(self) -> bool:
        """Whether its controller or its port is gone."""
        return self.link.lost or self.misses >= _LOST_AFTER

    def collect(self, now: float) -> None:
        """Takes the messages that have arrived; `now` in seconds, by the clock of the commands."""
        for data in self.link.receive():
            message = self.inbox.take(data, now)
            if message is not None:
                self._take(message)

    def _take(self, message: Monitoring) -> None:
        last = self.message
        self.message = message
        if last is not None:
            self._compare(message, last)
        self._place(message, last)
        if self._lost_track:
            self._notice(Interlock.TRACKING_ERROR)
        if isinstance(self.gripper, OutputGripper):
            self.gripper.hear(message.inputs)
        if self._run_input is not None:
            self._run_input.hear(message.inputs)
        self._unanswered += 1
        self.fresh = True
        self.pending = self._unanswered >= message.receive_multiplier

    def _compare(self, message: Monitoring, last: Monitoring) -> None:
        periods = max(1, min(message.sequence - last.sequence, 100))
        period_s = periods * (message.send_period_ms * 1e-3 or self._period_s)
        self.velocity = (np.array(message.measured) - np.array(last.measured)) / period_s
        if message.operation is not last.operation:
            self._notice(Interlock.OPERATION_MODE)
        if _active(last) and (stop := interlock_of(message, self._modes)) >= FIRST_STOP:
            # The motion has ended; another may begin before the next read.
            self._notice(stop)

    def _place(self, message: Monitoring, last: Monitoring | None) -> None:
        """Sets the position at which commands continue."""
        missed = self._answers.missed(message)
        if not _active(message) or not _active(last):
            self._begin_at(np.array(message.ipo or message.measured))
            self._answers.begin(message.sequence, self._last)
            self._notice(Interlock.ENTERED)
            if isinstance(self.gripper, OutputGripper):
                self.gripper.enter()
        elif missed is not None:
            self._begin_at(missed)
            self._notice(Interlock.MISSED)

    @property
    def _lost_track(self) -> bool:
        return self.message is not None and bool(
            np.abs(np.array(self.message.measured) - self._last).max() > TRACKING_ERROR_RAD
        )

    @property
    def keeps_period(self) -> bool:
        """Whether its controller expects answers in the driver's period, as far as it is known."""
        expected_s = 0.0 if self.message is None else self.message.answer_period_s
        return not expected_s or math.isclose(expected_s, self._period_s)

    def problem(self) -> str:
        """Returns the difference between the controller's messages and the configuration."""
        about = f"{self.name} on {self.link.port}:"
        message = self.message
        name = self._version.name
        if message is None:
            return f"{about} {self._silence()}"
        if not self.keeps_period:
            return (
                f"{about} the controller expects an answer every "
                f"{1e3 * message.answer_period_s:g} ms; this driver's period is "
                f"{1e3 * self._period_s:g} ms. Change one of them."
            )
        if self._version.echoes and not message.commanded:
            return (
                f"{about} its messages lack the commanded position, which FRI {name} contains. Is "
                f"the controller's version 2.x? Set version."
            )
        if message.commanded and not self._version.echoes:
            return (
                f"{about} its messages contain the commanded position, which FRI {name} lacks. Is "
                f"the controller's version 1.x? Set version."
            )
        lacking = "" if self._run_input is None else self._run_input.problem(message.inputs)
        return f"{about} {lacking}" if lacking else ""

    def _silence(self) -> str:
        """Returns the probable cause of missing messages."""
        name = self._version.name
        if versions := versions_of(self.inbox.unusable):
            return (
                f"the controller sends FRI {' or '.join(versions)}; this driver's version is "
                f"{name}. Set version."
            )
        if self.inbox.broken:
            return f"the datagrams are not FRI {name} of an LBR. {self.inbox.complaint}"
        return (
            "no controller sends messages. Check that its application runs, that this address is "
            "its remote host, and that no firewall blocks UDP."
        )

    def _begin_at(self, position: Vector) -> None:
        self._last = position
        self._playback = Playback(position)

    @property
    def accepts(self) -> bool:
        """Whether a command can be sent now; if not, it is treated as if it had not been made."""
        return self.pending or self._own_clock

    @property
    def stands(self) -> bool:
        """False: after missed answers, commands begin again from rest by `Interlock.MISSED`."""
        return False

    def take_interlock(self) -> Interlock:
        """Returns the interlock of the arm; events since the last call are reported once."""
        if self.message is None:
            return Interlock.IDLE
        event = self._take_event()
        return Interlock.NONE if self._read_only else max(self.refusal, event)

    @property
    def refusal(self) -> Interlock:
        """The interlock that lasts, whether the arm is moved or only read."""
        if self.message is None:
            return Interlock.IDLE
        lasting = {
            Interlock.TRACKING_ERROR: self._lost_track,
            Interlock.PERIOD: not self.keeps_period,
        }
        return max(
            interlock_of(self.message, self._modes),
            Interlock.NONE,
            *(interlock for interlock, lasts in lasting.items() if lasts),
        )

    @property
    def note(self) -> str:
        """A remark if the controller's control mode is compliant, or empty."""
        message = self.message
        if message is None or message.control in (None, ControlMode.POSITION, ControlMode.NONE):
            return ""
        return (
            f"{self.name} is in {message.control.name} (tracking performance "
            f"{message.tracking:.2f}): it gives way when pushed."
        )

    def offer(self, position: Vector, opening: float) -> bool:
        """Takes the filter's command of this cycle, (7,) rad and an opening.

        A command far from the last one is refused. Returns whether it was taken.
        """
        if self._read_only or not _active(self.message) or not self.accepts:
            return False
        if not self._is_near(position):
            return False
        self._last = position.copy()
        if self._own_clock:
            self._playback.give(self._last)
        self.gripper.command(opening)
        return True

    def answer(self) -> bool:
        """Answers the newest message, if that is due; returns whether an answer was sent."""
        if not self.pending or self.message is None:
            return False
        self.pending = False
        self._unanswered = 0
        if self.message.session is SessionState.IDLE:
            return False
        active = _active(self.message)
        position = self._idle_position()
        if active:
            position = tuple((self._play() if self._own_clock else self._last).tolist())
        may_write = active and not self._read_only and self._version.has_io
        outputs = (
            self.gripper.outputs() if may_write and isinstance(self.gripper, OutputGripper) else ()
        )
        command = Command(self.sent, self.message.sequence, position, outputs)
        if not self.link.send(command.to_bytes(self._version)):
            return False
        if position:
            self._answers.note(self.sent, self.message.sequence, np.array(position))
        self.sent = (self.sent + 1) % (1 << 32)
        return True

    def _play(self) -> Vector:
        """Advances along the path of the commands; if it ends in motion, they begin there."""
        position = self._playback.play()
        if self._playback.dry:
            self._begin_at(position)
            self._notice(Interlock.MISSED)
        return position

    def _idle_position(self) -> Joints:
        """Returns the position that is sent while the controller accepts no commands, or ()."""
        assert self.message is not None
        if self.message.session is SessionState.COMMANDING_WAIT:
            return self.message.ipo
        if not self._version.echoes:
            return ()
        return self.message.commanded if usable(self.message.commanded) else self.message.measured


def _active(message: Monitoring | None) -> bool:
    """Returns whether commands move the arm."""
    return message is not None and message.session is SessionState.COMMANDING_ACTIVE
