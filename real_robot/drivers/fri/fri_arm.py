"""One arm over FRI: its controller's last message, the position of commands, and the answers.

After every change into a commanding state the first commands repeat the position that the
controller commands itself. From there on a command must be near the one before; a command that is
not is never sent. When messages or answers were lost, commands continue at the last one that the
controller accepted: lost motion is never made up for.
"""

import math
from collections.abc import Collection

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.gripper import Gripper, NoGripper
from stringline.real_robot.driver_interface.interlocks import FIRST_STOP, STRAYED_RAD, Interlock
from stringline.real_robot.drivers.fri.answers import Answers
from stringline.real_robot.drivers.fri.enums import ControlMode, OperationMode, SessionState
from stringline.real_robot.drivers.fri.fri_command import Command
from stringline.real_robot.drivers.fri.fri_inbox import Inbox, usable, versions_of
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.fri_session import interlock_of
from stringline.real_robot.drivers.fri.monitoring import Joints, Monitoring
from stringline.real_robot.drivers.fri.output_gripper import OutputGripper
from stringline.real_robot.drivers.fri.playback import Playback
from stringline.real_robot.drivers.fri.run_input import RunInput
from stringline.real_robot.drivers.fri.versions import FriVersion
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS, KukaArm

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
        if self._strayed:
            self._notice(Interlock.STRAYED)
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
    def _strayed(self) -> bool:
        return self.message is not None and bool(
            np.abs(np.array(self.message.measured) - self._last).max() > STRAYED_RAD
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
        lasting = {Interlock.STRAYED: self._strayed, Interlock.PERIOD: not self.keeps_period}
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
