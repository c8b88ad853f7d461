"""One drake-iiwa-driver and its arms: what it tells, what it may be told, and who else tells it something.

The program ends itself, and so its arms' motion, if it hears a command within a quarter of a second
after its start. So nothing is said to one that was not heard for longer than that, and nothing to
one that is not heard any more.
"""

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.driver_interface.interlocks import Bar
from stringline.real_robot.drivers.lcm.channels import Channels
from stringline.real_robot.drivers.lcm.drake_types import IIWA_COMMAND
from stringline.real_robot.drivers.lcm.lcm_arm import LcmArm
from stringline.real_robot.drivers.lcm.lcm_inbox import StatusInbox
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink, LcmMessage
from stringline.real_robot.drivers.lcm.reassembly import Source
from stringline.real_robot.drivers.lcm.status import JOINTS, UNKNOWN_TIME, IiwaStatus

Vector = NDArray[np.float64]

_LOST_AFTER = 10  # Periods of silence.
_GUARD_US = 300_000  # The program's own guard is 250 ms.
_FOREIGN_US = 500_000  # For that long after a command of somebody else nothing is said.
_PERIOD_TOLERANCE = 0.2


class DrakeProgram:
    """A session with one program.

    Args:
        arms: Names, in the order of the program's robots.
        link: To its group, not open yet.
        channels: Its own.
        period_s: Between two commands; must be that of its first robot's messages.
        transit_s: A status that comes so soon after a command is not answered, since it may be of a
            step before it: two commands for one step would be a jump.
        read_only: Whether what it is told to do is thrown away.

    Attributes:
        arms: What is known of them.
        link: As given.
        channels: As given.
        inbox: What came in.
        status: The newest, or None before the first.
        pending: Whether the first robot has made a step since the last command.
        fresh: Whether it has made one since somebody took this back.
        misses: Reads in a row without a step; counted by whoever reads.
        foreigner: Who else has published a command, or None.
    """

    def __init__(
        self,
        arms: Sequence[str],
        link: LcmLink,
        channels: Channels,
        *,
        period_s: float,
        transit_s: float = 0.0,
        read_only: bool = False,
    ) -> None:
        self.arms = [LcmArm(name, period_s) for name in arms]
        self.link = link
        self.channels = channels
        self.inbox = StatusInbox(len(arms))
        self._period_s = period_s
        self._transit_s = transit_s
        self._read_only = read_only
        self._commanded_at = -math.inf
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
            self.inbox.take_telemetry(message)
        elif message.channel == self.channels.command and message.source != self.link.own:
            self.foreigner = message.source
            self._foreign_at = self._utime

    @property
    def _utime(self) -> int:
        return UNKNOWN_TIME if self.status is None else self.status.utime

    def _take_status(self, message: LcmMessage) -> None:
        last = self._utime
        status = self.inbox.take(message, lost=self.lost)
        if status is None:
            return
        first = self.status is None
        self.status = status
        for arm, report in zip(self.arms, status.arms, strict=True):
            arm.take(report)
            if self.lost:
                arm.enter()
            elif self._foreign or not self.ready:
                arm.let_go()
        # Until the program knows the time, each of its messages counts as a step.
        if first or status.utime != last or status.utime == UNKNOWN_TIME:
            self.fresh = True
            self.pending |= not self._too_soon

    @property
    def _too_soon(self) -> bool:
        """Whether a step that is told now may have been made before the last command was there, which is then still to come."""
        return time.monotonic() - self._commanded_at < self._transit_s

    @property
    def lost(self) -> bool:
        """Whether it is gone, or cannot be heard."""
        return self.misses >= _LOST_AFTER

    @property
    def ready(self) -> bool:
        """Whether it has known the time for longer than its guard lasts."""
        known_since = self.inbox.ready_at
        return known_since is not None and self._utime - known_since >= _GUARD_US

    @property
    def _foreign(self) -> bool:
        """Whether somebody else has commanded the arms lately, by the program's own time."""
        return self._foreign_at is not None and abs(self._utime - self._foreign_at) < _FOREIGN_US

    def refusals(self) -> dict[str, Bar]:
        """Returns what keeps commands from each arm now, whether they are moved or only read."""
        return {arm.name: max(arm.refusal, self._refusal) for arm in self.arms}

    @property
    def _refusal(self) -> Bar:
        """What keeps commands from all of its arms."""
        lasting = {
            Bar.UNSYNCHRONISED: not self.ready,
            Bar.FOREIGN: self._foreign,
            Bar.PERIOD: not self._keeps_period,
        }
        return max((bar for bar, lasts in lasting.items() if lasts), default=Bar.NONE)

    def take_bars(self) -> dict[str, Bar]:
        """Returns what keeps commands from each arm; what has only happened since the last time is told once."""
        event = self.inbox.event
        self.inbox.event = Bar.NONE
        about_all = max(event, self._refusal)
        bars = {arm.name: max(arm.take_bar(), about_all) for arm in self.arms}
        return dict.fromkeys(bars, Bar.NONE) if self._read_only else bars

    def command(self, positions: Mapping[str, Vector]) -> list[str]:
        """Sends the filter's command of this cycle, unless the program must not be told anything.

        It is told one command for each of its steps, so that none runs ahead of it.

        Args:
            positions: (7,) rad, by arm.

        Returns:
            Names of the arms that were told theirs.
        """
        asked = self.pending
        self.pending = False
        if not asked or self._read_only or not self.ready or self._foreign:
            return []
        if not any(arm.in_motion for arm in self.arms) or not all(
            arm.report and arm.report.spoken for arm in self.arms
        ):
            return []  # For an arm that was never heard nobody knows a row.
        told = [arm.name for arm in self.arms if arm.offer(positions[arm.name])]
        # The program wants a row for each arm: one that takes no commands is told to be where it
        # is.
        row = np.concatenate([arm.anchor for arm in self.arms])
        message = IIWA_COMMAND.encode({"utime": self._utime, "joint_position": row.tolist()})
        if not self.link.publish(self.channels.command, message):
            return []
        self._commanded_at = time.monotonic()
        for arm in self.arms:
            arm.note_sent()
        return told

    def problem(self) -> str:
        """Says what is not as expected about what came in so far."""
        about = (
            f"{', '.join(arm.name for arm in self.arms)} on {self.link.address} "
            f"({self.channels.status}):"
        )
        if self.status is None and self.inbox.broken:
            return (
                f"{about} what comes in is no status of {JOINTS * len(self.arms)} joints. "
                f"{self.inbox.complaint}"
            )
        if self.status is None:
            return (
                f"{about} no driver program speaks. Does drake-iiwa-driver run, has its "
                f"controller's application been started, "
                "and is interface this computer's address on LCM's network?"
            )
        if not self.inbox.period_us:
            return f"{about} the time of the driver program does not go on."
        if not self._keeps_period:
            return (
                f"{about} the driver program makes a step every {1e-3 * self.inbox.period_us:g} "
                f"ms; this driver's period is "
                f"{1e3 * self._period_s:g} ms. Change one of them."
            )
        return ""

    @property
    def _keeps_period(self) -> bool:
        """Whether it makes a step as often as commands are made, as far as that is known."""
        period_us = self.inbox.period_us
        wanted_us = 1e6 * self._period_s
        return not period_us or abs(period_us - wanted_us) <= _PERIOD_TOLERANCE * wanted_us
