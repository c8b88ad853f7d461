"""One drake-iiwa-driver and its arms: its messages, its commands, and commands of other programs.

The program ends itself, and so the motion of its arms, if it receives a command within a quarter of
a second after its start. So no command is sent before its messages have arrived for longer than
that, or after they have ceased.
"""

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.interlocks import Interlock
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS
from stringline.real_robot.drivers.lcm.arrival_clock import ArrivalClock
from stringline.real_robot.drivers.lcm.channels import Channels
from stringline.real_robot.drivers.lcm.drake_types import IIWA_COMMAND
from stringline.real_robot.drivers.lcm.lcm_arm import LcmArm
from stringline.real_robot.drivers.lcm.lcm_inbox import StatusInbox
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink, LcmMessage
from stringline.real_robot.drivers.lcm.reassembly import Source
from stringline.real_robot.drivers.lcm.status import UNKNOWN_TIME, IiwaStatus

_LOST_AFTER = 10  # Periods of silence.
_GUARD_US = 300_000  # The program's own guard is 250 ms.
_FOREIGN_US = 500_000  # Nothing is sent for that long after a command of another program.
_PERIOD_TOLERANCE = 0.2
_STANDS_AFTER = 1.5  # Periods between the steps that two commands answer.
# Share of a period after a step at which a command would be too late for the next step.
_TOO_LATE = 0.8


class DrakeProgram:
    """A session with one program.

    Args:
        arms: Names of the arms, in the order of the program's robots.
        link: Link to its group, not open yet.
        period_s: Seconds between two commands; must be that of its first robot's messages.
        transit_s: A status that arrives so soon after a command is not answered, since it may be of
            a step before it: two commands for one step would be a jump.
        by_clock: Whether time passes for the arms as it does here; not in lock-step.
        read_only: Whether commands are discarded.

    Attributes:
        inbox: Its messages, decoded and ordered.
        status: The newest, or None before the first.
        pending: Whether the first robot has made a step since the last command.
        fresh: Whether it has made one since the last read; the driver resets it.
        misses: Consecutive reads without a step; the driver counts them.
        foreigner: Source of commands of another program, or None.
    """

    def __init__(
        self,
        arms: Sequence[str],
        link: LcmLink,
        channels: Channels,
        *,
        period_s: float,
        transit_s: float = 0.0,
        by_clock: bool = True,
        read_only: bool = False,
    ) -> None:
        self.arms = [LcmArm(name, period_s) for name in arms]
        self.link = link
        self.channels = channels
        self.inbox = StatusInbox(len(arms))
        self._period_s = period_s
        self._transit_s = transit_s
        self._arrivals = ArrivalClock() if by_clock else None
        self._read_only = read_only
        self._commanded_at = -math.inf
        self._answered_us: int | None = None
        self._stepped_us = 0
        self.status: IiwaStatus | None = None
        self.pending = self.fresh = False
        self.misses = 0
        self.foreigner: Source | None = None
        self._foreign_at: int | None = None

    def take(self, message: LcmMessage) -> None:
        """Takes a message of its group, on any channel."""
        if message.channel == self.channels.status:
            self._take_status(message)
        elif message.channel == self.channels.telemetry:
            unknown = self.inbox.shift_us is None
            self.inbox.take_telemetry(message)
            if unknown and self._arrivals is not None:
                self._arrivals.clear()  # The times before were those of the host.
        elif message.channel == self.channels.command and message.source != self.link.own:
            self.foreigner = message.source
            self._foreign_at = self._utime

    @property
    def _utime(self) -> int:
        return UNKNOWN_TIME if self.status is None else self.status.utime

    def _take_status(self, message: LcmMessage) -> None:
        last = self._utime
        status = self.inbox.take(message, lost=self._silent)
        if status is None:
            return
        first = self.status is None
        self.status = status
        if self._arrivals is not None and status.utime != UNKNOWN_TIME:
            if self._silent:
                self._arrivals.clear()  # The program may be another one.
            # The program's estimate of the difference of two clocks follows each delay of its host
            # for hundreds of steps, and its times follow the estimate; the controller's do not.
            self._stepped_us = status.utime - (self.inbox.shift_us or 0)
            self._arrivals.note(self._stepped_us, time.monotonic())
        for arm, report in zip(self.arms, status.arms, strict=True):
            arm.take(report)
            if self._silent:
                arm.enter()
            elif self._foreign or not self.ready:
                arm.let_go()
        # Until its clock is synchronised, each message of the program counts as a step.
        if first or status.utime != last or status.utime == UNKNOWN_TIME:
            self.fresh = True
            self.pending |= not self._too_soon

    @property
    def _too_soon(self) -> bool:
        """Whether a status that arrives now may be of a step before the last command arrived."""
        return time.monotonic() - self._commanded_at < self._transit_s

    @property
    def _too_late(self) -> bool:
        """Whether a command that is sent now may miss the next step.

        The arms would stand for that step, and the command, which continues a motion, would be a
        jump.
        """
        if self._arrivals is None:
            return False
        age_s = self._arrivals.age_s(self._stepped_us, time.monotonic())
        return age_s > _TOO_LATE * self._period_s

    @property
    def _silent(self) -> bool:
        return self.misses >= _LOST_AFTER

    @property
    def lost(self) -> bool:
        """Whether the program or its link is gone."""
        return self.link.lost or self._silent

    @property
    def accepts(self) -> bool:
        """Whether a command can be sent now."""
        return self.pending

    @property
    def stands(self) -> bool:
        """Whether steps were made without a new command, so that its arms stand at the last."""
        if self._answered_us is None:
            return False
        return self._utime - self._answered_us > _STANDS_AFTER * 1e6 * self._period_s

    @property
    def ready(self) -> bool:
        """Whether its clock has been synchronised for longer than its guard lasts."""
        known_since = self.inbox.ready_at
        return known_since is not None and self._utime - known_since >= _GUARD_US

    @property
    def _foreign(self) -> bool:
        """Whether another program has commanded the arms lately, by this program's time."""
        return self._foreign_at is not None and abs(self._utime - self._foreign_at) < _FOREIGN_US

    def refusals(self) -> dict[str, Interlock]:
        """Returns the interlock of each arm that lasts, whether it is moved or only read."""
        return {arm.name: max(arm.refusal, self._refusal) for arm in self.arms}

    @property
    def _refusal(self) -> Interlock:
        """The interlock of all of its arms."""
        lasting = {
            Interlock.UNSYNCHRONISED: not self.ready,
            Interlock.FOREIGN: self._foreign,
            Interlock.PERIOD: not self._keeps_period,
        }
        return max((one for one, lasts in lasting.items() if lasts), default=Interlock.NONE)

    def take_interlocks(self) -> dict[str, Interlock]:
        """Returns the interlock of each arm; events since the last call are reported once."""
        event = self.inbox.event
        self.inbox.event = Interlock.NONE
        about_all = max(event, self._refusal)
        found = {arm.name: max(arm.take_interlock(), about_all) for arm in self.arms}
        return dict.fromkeys(found, Interlock.NONE) if self._read_only else found

    def command(self, positions: Mapping[str, Vector]) -> list[str]:
        """Sends the filter's command of this cycle, (7,) rad by arm, unless that would be unsafe.

        The program gets one command for each of its steps, so that none runs ahead of it. Returns
        the names of the arms that were sent their command.
        """
        awaited = self.pending
        self.pending = False
        if not awaited or self._read_only or not self.ready or self._foreign:
            return []
        if not any(arm.in_motion for arm in self.arms) or not all(
            arm.report and arm.report.spoken for arm in self.arms
        ):
            return []  # The row of an arm that never sent a message is unknown.
        if self._too_late:
            return []
        accepted = [arm.name for arm in self.arms if arm.offer(positions[arm.name])]
        # The program expects a row for each arm: one without a command gets its own position.
        row = np.concatenate([arm.anchor for arm in self.arms])
        message = IIWA_COMMAND.encode({"utime": self._utime, "joint_position": row.tolist()})
        if not self.link.publish(self.channels.command, message):
            return []
        self._commanded_at = time.monotonic()
        self._answered_us = self._utime
        for arm in self.arms:
            arm.note_sent()
        return accepted

    def problem(self) -> str:
        """Returns the difference between its messages and the configuration; empty if none."""
        about = (
            f"{', '.join(arm.name for arm in self.arms)} on {self.link.address} "
            f"({self.channels.status}):"
        )
        if self.status is None and self.inbox.broken:
            return (
                f"{about} the messages are not a status of {JOINTS * len(self.arms)} joints. "
                f"{self.inbox.complaint}"
            )
        if self.status is None:
            return (
                f"{about} no driver program publishes a status. Check that drake-iiwa-driver and "
                f"its controller's application run, and that interface is this computer's address "
                f"on LCM's network."
            )
        if not self.inbox.period_us:
            return f"{about} the time of the driver program stands still."
        if not self._keeps_period:
            return (
                f"{about} the driver program makes a step every {1e-3 * self.inbox.period_us:g} "
                f"ms; this driver's period is {1e3 * self._period_s:g} ms. Change one of them."
            )
        return ""

    @property
    def _keeps_period(self) -> bool:
        """Whether its steps have the period of the commands, as far as it is known."""
        period_us = self.inbox.period_us
        wanted_us = 1e6 * self._period_s
        return not period_us or abs(period_us - wanted_us) <= _PERIOD_TOLERANCE * wanted_us
