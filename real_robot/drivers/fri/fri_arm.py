"""One arm over FRI: what its controller told last, where commands have to begin, and what it is answered.

After every change into a commanding state the first commands repeat the position that the
controller commands itself. From there on a command must be near the one before; one that is not is
never sent, whoever made it. When messages or answers were lost, commands begin anew at the last one
that the controller took: what was lost is never caught up with.
"""

import math
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.gripper import Gripper, NoGripper
from stringline.real_robot.driver_interface.interlocks import FIRST_STOP, STRAYED_RAD, Bar
from stringline.real_robot.drivers.fri.answers import Answers
from stringline.real_robot.drivers.fri.enums import ControlMode, OperationMode, SessionState
from stringline.real_robot.drivers.fri.fri_command import Command
from stringline.real_robot.drivers.fri.fri_inbox import Inbox, usable
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.fri_session import bar_of
from stringline.real_robot.drivers.fri.joint_values import JOINTS
from stringline.real_robot.drivers.fri.monitoring import Joints, Monitoring
from stringline.real_robot.drivers.fri.output_gripper import OutputGripper
from stringline.real_robot.drivers.fri.playback import Playback
from stringline.real_robot.drivers.fri.versions import FriVersion

Vector = NDArray[np.float64]

# No LBR's axis is faster than 180 degrees/s.
_FASTEST_RAD_S = np.pi
_ROUNDING_RAD = 1e-9


class FriArm:
    """A session with one controller.

    Args:
        name: Of the arm.
        link: Its port, not open yet.
        version: Of FRI.
        period_s: Between two answers.
        operation_modes: In which it may be moved.
        gripper: Beside it; None: it has none.
        read_only: Whether what it is told to do is thrown away.
        own_beat: Whether it is answered at other times than commands are made.

    Attributes:
        message: The newest, or None before the first.
        pending: Whether an answer is due.
        fresh: Whether a message came in since somebody took this back.
        misses: Reads in a row without a message; counted by whoever reads.
        sent: Answers so far.
        velocity: (7,) rad/s.
        gripper: Beside it.
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
        own_beat: bool = False,
    ) -> None:
        self.name = name
        self.link = link
        self.inbox = Inbox(version)
        self._version = version
        self._period_s = period_s
        self._modes = frozenset(operation_modes)
        self.gripper: Gripper = NoGripper() if gripper is None else gripper
        self._read_only = read_only
        self._own_beat = own_beat
        self.message: Monitoring | None = None
        self.pending = self.fresh = False
        self.misses = self.sent = self._unanswered = 0
        self.velocity = np.zeros(JOINTS)
        self._last: Vector = np.zeros(JOINTS)
        self._playback = Playback(self._last)
        self._answers = Answers()
        self._event = Bar.NONE

    def collect(self, now: float) -> None:
        """Takes what has come in.

        Args:
            now: Seconds, by the clock that also stamps commands.
        """
        for data in self.link.receive():
            message = self.inbox.take(data, now)
            if message is not None:
                self._take(message)

    def _take(self, message: Monitoring) -> None:
        last = self.message
        self.message = message
        measured = np.array(message.measured)
        if last is not None:
            periods = max(1, min(message.sequence - last.sequence, 100))
            period_s = periods * (message.send_period_ms * 1e-3 or self._period_s)
            self.velocity = (measured - np.array(last.measured)) / period_s
            if message.operation is not last.operation:
                self._notice(Bar.OPERATION_MODE)
            if _active(last) and (bar := bar_of(message, self._modes)) >= FIRST_STOP:
                self._notice(
                    bar
                )  # The motion has ended; another may have begun before anybody asks.
        self._place(message, last)
        if self._strayed:
            self._notice(Bar.STRAYED)
        if isinstance(self.gripper, OutputGripper):
            self.gripper.hear(message.inputs)
        self._unanswered += 1
        self.fresh = True
        self.pending = self._unanswered >= message.receive_multiplier

    def _place(self, message: Monitoring, last: Monitoring | None) -> None:
        """Finds out where commands have to go on from."""
        missed = self._answers.missed(message)
        if not _active(message) or not _active(last):
            self._begin_at(np.array(message.ipo or message.measured))
            self._answers.begin(message.sequence, self._last)
            self._notice(Bar.ENTERED)
            if isinstance(self.gripper, OutputGripper):
                self.gripper.enter()
        elif missed is not None:
            self._begin_at(missed)
            self._notice(Bar.MISSED)

    @property
    def _strayed(self) -> bool:
        return self.message is not None and bool(
            np.abs(np.array(self.message.measured) - self._last).max() > STRAYED_RAD
        )

    @property
    def keeps_period(self) -> bool:
        """Whether its controller wants an answer as often as commands are made, as far as it has said."""
        told_s = 0.0 if self.message is None else self.message.answer_period_s
        return not told_s or math.isclose(told_s, self._period_s)

    def problem(self) -> str:
        """Says what is not as expected about the controller's first message."""
        about = f"{self.name} on {self.link.port}:"
        message = self.message
        version = self._version
        if message is None and self.inbox.broken:
            return (
                f"{about} what comes in is not FRI {version.name} of an LBR. {self.inbox.complaint}"
            )
        if message is None:
            return (
                f"{about} no controller speaks. Does its application run, is this address its "
                f"remote host, and does a firewall "
                "let UDP in?"
            )
        if not self.keeps_period:
            return (
                f"{about} the controller wants an answer every {1e3 * message.answer_period_s:g} "
                f"ms; this driver's period is "
                f"{1e3 * self._period_s:g} ms. Change one of them."
            )
        if version.echoes and not message.commanded:
            return (
                f"{about} it does not tell what it was commanded, as FRI {version.name} does. Is "
                f"it 2.x? Set version."
            )
        if message.commanded and not version.echoes:
            return (
                f"{about} it tells what it was commanded, which FRI {version.name} does not. Is "
                f"it 1.x? Set version."
            )
        return ""

    def _begin_at(self, position: Vector) -> None:
        self._last = position
        self._playback = Playback(position)

    def _notice(self, event: Bar) -> None:
        self._event = max(self._event, event)

    @property
    def anchor(self) -> Vector:
        """(7,) where commands have to go on from."""
        return self._last

    @property
    def asked(self) -> bool:
        """Whether a command is taken now; if not, it is as if it had not been made."""
        return self.pending or self._own_beat

    def take_bar(self) -> Bar:
        """Returns what keeps commands from the arm; what has only happened since the last time is told once."""
        if self.message is None:
            return Bar.IDLE
        event = self._event
        self._event = Bar.NONE
        return Bar.NONE if self._read_only else max(self.refusal, event)

    @property
    def refusal(self) -> Bar:
        """What its controller says that keeps commands from it, whether it is moved or only read."""
        if self.message is None:
            return Bar.IDLE
        lasting = {Bar.STRAYED: self._strayed, Bar.PERIOD: not self.keeps_period}
        return max(
            bar_of(self.message, self._modes),
            Bar.NONE,
            *(bar for bar, lasts in lasting.items() if lasts),
        )

    @property
    def note(self) -> str:
        """How its controller follows positions, if it does so giving way; else nothing."""
        told = self.message
        if told is None or told.control in (None, ControlMode.POSITION, ControlMode.NONE):
            return ""
        return (
            f"{self.name} is in {told.control.name} (tracking performance {told.tracking:.2f}): "
            f"it gives way when pushed."
        )

    def offer(self, position: Vector, opening: float) -> None:
        """Takes the filter's command of this cycle; one that is far from the last is refused.

        Args:
            position: (7,) rad.
            opening: Of the gripper.
        """
        if self._read_only or not _active(self.message):
            return
        if not self.asked:
            # Nobody asks: what cannot be sent is no command, and the next one has to be near the
            # last that was.
            return
        if (
            not np.abs(position - self._last).max()
            <= _FASTEST_RAD_S * self._period_s + _ROUNDING_RAD
        ):
            self._notice(Bar.FAR)
            return
        self._last = position.copy()
        if self._own_beat:
            self._playback.give(self._last)
        self.gripper.command(opening)

    def answer(self) -> None:
        """Answers the newest message, if that is due."""
        if not self.pending or self.message is None:
            return
        self.pending = False
        self._unanswered = 0
        if self.message.session is SessionState.IDLE:
            return
        active = _active(self.message)
        position = self._idle_position()
        if active:
            position = tuple((self._play() if self._own_beat else self._last).tolist())
        may_write = active and not self._read_only and self._version.has_io
        outputs = (
            self.gripper.outputs() if may_write and isinstance(self.gripper, OutputGripper) else ()
        )
        command = Command(self.sent, self.message.sequence, position, outputs)
        if self.link.send(command.to_bytes(self._version)):
            if position:
                self._answers.note(self.sent, self.message.sequence, np.array(position))
            self.sent = (self.sent + 1) % (1 << 32)

    def _play(self) -> Vector:
        """Goes along the path of the commands; where it ends in full motion, they begin anew there."""
        position = self._playback.play()
        if self._playback.dry:
            self._begin_at(position)
            self._notice(Bar.MISSED)
        return position

    def _idle_position(self) -> Joints:
        """Returns what is sent while nothing may be commanded: what the controller said last, or nothing."""
        assert self.message is not None
        if self.message.session is SessionState.COMMANDING_WAIT:
            return self.message.ipo
        if not self._version.echoes:
            return ()
        return self.message.commanded if usable(self.message.commanded) else self.message.measured


def _active(message: Monitoring | None) -> bool:
    """Says whether commands move the arm."""
    return message is not None and message.session is SessionState.COMMANDING_ACTIVE
