"""Schunk's WSG over LCM: commands and states of drake-schunk-driver.

That program (RobotLocomotion/drake-schunk-driver, d07fcfc, 2024) takes the newest command and
publishes a status every 50 ms. It holds the last command for ever, passes NaN on, limits a target
from above only, and repeats the last position when the gripper itself does not answer. At its start
it moves the fingers to their ends and discards their target. The checks that it lacks are here.
"""

import logging
import math
import select
import time
from dataclasses import dataclass, replace

from stringline.real_robot.driver_interface.driver import NOT_ALONE, NOT_FOLLOWING, STARTED_ANEW
from stringline.real_robot.driver_interface.gripper import GripperState, within
from stringline.real_robot.drivers.lcm.drake_messages import SCHUNK_COMMAND, gripper_status
from stringline.real_robot.drivers.lcm.lcm_link import (
    DEFAULT_ADDRESS,
    LOOPBACK,
    LcmDecodeError,
    LcmLink,
    Source,
)

log = logging.getLogger(__name__)

COMMAND_CHANNEL = "SCHUNK_WSG_COMMAND"
STATUS_CHANNEL = "SCHUNK_WSG_STATUS"
# Its driver ignores a target unless the commanded force differs by more from the measured one.
DEAD_BAND_N = 5.0
_STRONGEST_N = 120.0  # More than any WSG 50 is built for.
_NEAR_MM = 5.0
_MOVED_MM = 1.0
# After so many missing statuses the arms hold, and nothing is sent: a driver that starts meanwhile
# would execute a command at once.
_SILENT_TURNS = 3
# A status that is older than the last by less was late; by more, its driver was restarted.
_OLD_US = 1_000_000


@dataclass(frozen=True)
class WsgGripper:
    """Settings of a WSG.

    Attributes:
        address: `group:port` of LCM.
        interface: Address of this computer on the network of the group.
        ttl: 0: commands stay on this computer; 1: on its network.
        command_channel: Channel of commands; `{arm}` stands for the name of the arm.
        status_channel: Channel of states.
        closed_mm: Position at which the pads meet: opening 0.
        opened_mm: Position of opening 1.
        stroke_mm: Largest position that is sent.
        force_n: Gripping force.
        status_hz: States per second.
        follow_s: Seconds for which it may stand still away from its target without a reason before
            that is an error; if None, for ever.

    Raises:
        ValueError: A setting is out of range.
    """

    address: str = DEFAULT_ADDRESS
    interface: str = LOOPBACK
    ttl: int = 0
    command_channel: str = COMMAND_CHANNEL
    status_channel: str = STATUS_CHANNEL
    closed_mm: float = 0.0
    opened_mm: float = 110.0
    stroke_mm: float = 110.0
    force_n: float = 40.0
    status_hz: float = 20.0
    follow_s: float | None = 2.0

    def __post_init__(self) -> None:
        """Checks the settings."""
        if not (
            0 <= self.closed_mm < self.opened_mm < 1000 and self.closed_mm < self.stroke_mm < 1000
        ):
            raise ValueError(
                f"A gripper with closed_mm {self.closed_mm}, opened_mm {self.opened_mm} and "
                f"stroke_mm {self.stroke_mm}; allowed: 0 <= closed_mm, and both of the others "
                f"above it and below 1000."
            )
        if not DEAD_BAND_N < self.force_n <= _STRONGEST_N:
            raise ValueError(
                f"force_n is {self.force_n}; allowed: above {DEAD_BAND_N:g}, below which "
                f"drake-schunk-driver does not move, and at most {_STRONGEST_N:g}."
            )
        if not 1 <= self.status_hz <= 1000:
            raise ValueError(f"status_hz must be a number from 1 to 1000 (got {self.status_hz}).")
        if self.follow_s is not None and not 0 < self.follow_s < 3600:
            raise ValueError(
                f"follow_s is {self.follow_s}; allowed: above 0 and below 3600, or null."
            )
        if self.command_channel == self.status_channel:
            raise ValueError(
                f"The channels of commands and states are both {self.command_channel}; they must "
                f"differ."
            )
        self.link("arm")

    def channels(self, arm: str) -> tuple[str, str]:
        """Returns the channels of an arm's gripper: commands and states."""
        return self.command_channel.replace("{arm}", arm), self.status_channel.replace("{arm}", arm)

    def link(self, arm: str) -> LcmLink:
        """Returns the link for the gripper of an arm, not open."""
        return LcmLink(self.address, self.interface, self.ttl, frozenset({self.channels(arm)[1]}))

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> "SchunkWsg":
        """Returns the gripper of an arm, not connected."""
        return SchunkWsg(self, arm, period_s=period_s, read_only=read_only)


class SchunkWsg:
    """A WSG beside an arm.

    Time is counted in reads, one per period, so that a world in lock-step may stand still in
    between.

    Attributes:
        broken: Number of unusable messages.
        stale: Number of messages that were older than one before, or duplicates.
        strangers: Number of messages of other publishers on its channel, which are dropped.
        complaint: Error of the last unusable one.
    """

    def __init__(self, settings: WsgGripper, arm: str, *, period_s: float, read_only: bool) -> None:
        self._settings = settings
        self._read_only = read_only
        self._command_channel, self._status_channel = settings.channels(arm)
        self.link = settings.link(arm)
        self.servo = f"{arm}/gripper ({self._status_channel})"
        self.state = GripperState()
        self.stale = 0
        self.complaint = ""
        self._reads_per_status = 1.0 / (period_s * settings.status_hz)
        self._utime = 0
        self._reads = 0  # Since its last state.
        self._target_mm: float | None = None
        self._wanted: float | None = None
        self._first: float | None = None
        self._still_mm = math.inf
        self._still = 0
        self._forget()

    @property
    def wanted(self) -> float:
        """Opening that commands continue: the last one, or the measured one without any."""
        known = (one for one in (self._wanted, self._first) if one is not None)
        return next(known, self.state.opening)

    def connect(self, timeout_s: float) -> list[str]:
        """Joins the group and waits for two states of one gripper."""
        settings = self._settings
        deadline = time.monotonic() + timeout_s
        self._forget()
        try:
            self.link.open()
        except ValueError as error:
            return [f"{self.servo}: {error}"]
        needed_until = deadline
        while (left := needed_until - time.monotonic()) > 0:
            select.select([self.link], [], [], left)
            heard = self._source is not None
            self._collect()
            if self._source is not None and not heard:
                needed_until = min(deadline, time.monotonic() + 1.5 / settings.status_hz)
        self._reads = 0
        where = f"{self._status_channel} of {settings.address} on {settings.interface}"
        if self.strangers:
            return [
                f"{self.servo}: more than one gripper publishes on {where}. Each needs a channel "
                f"of its own."
            ]
        if self._source is not None:
            return []
        if self.broken:
            return [f"{self.servo}: the messages on {where} are not usable. {self.complaint}"]
        return [
            f"{self.servo}: no message arrives on {where}. Check that the gripper's driver runs, "
            f"has homed the fingers, and publishes on this channel and interface."
        ]

    def _forget(self) -> None:
        self._source: Source | None = None
        self.broken = 0
        self.strangers = 0
        self._estranged = False
        self._noticed = 0

    def read(self) -> GripperState:
        """Receives the states that have arrived, and returns the last."""
        self._reads += 1
        self._collect()
        # The next one is late after one and a half periods of the states.
        misses = max(0, int(self._reads / self._reads_per_status - 0.5))
        noticed = self._noticed
        self._noticed = 0
        self.state = replace(self.state, misses=misses, error=noticed | self._error())
        return self.state

    def command(self, opening: float) -> None:
        """Sends a target; ignores NaN and, after a restart, targets far from the fingers.

        The first targets repeat where the fingers stand. They are not sent: an object may keep the
        fingers there, and its driver's own target, which is unknown here, grips it.
        """
        if not math.isfinite(opening):
            return
        settings = self._settings
        opening = within(opening, self.wanted)
        range_mm = settings.opened_mm - settings.closed_mm
        off_mm = abs(opening - self.wanted) * range_mm
        if self._estranged and off_mm > _NEAR_MM:
            self._noticed |= STARTED_ANEW
            return
        repeats = self._wanted is None and off_mm <= (_MOVED_MM if self._first is None else 0.0)
        if repeats and not self._estranged:
            self._first = opening
            return
        self._estranged = False
        self._wanted = opening
        target_mm = settings.closed_mm + opening * range_mm
        self._target_mm = min(target_mm, settings.stroke_mm)
        if not self._read_only and self.state.misses < _SILENT_TURNS:
            values = {
                "utime": time.monotonic_ns() // 1000,
                "target_position_mm": self._target_mm,
                "force": settings.force_n,
            }
            self.link.publish(self._command_channel, SCHUNK_COMMAND.encode(values))

    def close(self) -> None:
        """Leaves the group; the gripper's driver holds the last target for ever."""
        self.link.close()

    def _collect(self) -> None:
        longest_mm = max(self._settings.stroke_mm, self._settings.opened_mm)
        for message in self.link.receive():
            try:
                status = gripper_status(message.payload, longest_mm)
            except LcmDecodeError as error:
                self.broken += 1
                self.complaint = str(error)
                continue
            if self._is_news(message.source, int(status["utime"])):
                self._take(status)

    def _is_news(self, source: Source, utime: int) -> bool:
        """Returns whether a state is of the known gripper, and newer than the last.

        After a silence another source is accepted, unless two have published at the same time.
        """
        known = self._source in (None, source)
        silent = self._reads >= 2 * self._reads_per_status
        if not known and (self.strangers or not silent):
            if not self.strangers:
                log.warning(
                    "Another program publishes as %s and is ignored: %s.", self.servo, source
                )
            self.strangers += 1
            self._noticed |= NOT_ALONE if silent else 0
            return False
        if known and self._source is not None and 0 <= self._utime - utime < _OLD_US:
            self.stale += 1
            return False
        if self._source is not None and (not known or utime < self._utime):
            # It was restarted, and has forgotten its target.
            self._wanted = self._first = None
            self._target_mm = None
            self._estranged = True
            self._noticed |= STARTED_ANEW
        self._source = source
        self._utime = utime
        self._reads = 0
        return True

    def _take(self, status: dict[str, float]) -> None:
        settings = self._settings
        position_mm = status["actual_position_mm"]
        range_mm = settings.opened_mm - settings.closed_mm
        opening = within((position_mm - settings.closed_mm) / range_mm, self.state.opening)
        # The sign of the force is that of the last motion, not that of the force.
        force = abs(status["actual_force"])
        self.state = GripperState(opening, status["actual_speed_mm_per_s"] / range_mm, force)
        if self._has_reason(position_mm, force) or abs(position_mm - self._still_mm) > _MOVED_MM:
            self._still_mm = position_mm
            self._still = 0
        else:
            self._still += 1

    def _has_reason(self, position_mm: float, force: float) -> bool:
        """Returns whether it may rest: without a target, at its target, or with an object."""
        target_mm = self._target_mm
        if self._read_only or target_mm is None or abs(target_mm - position_mm) <= _NEAR_MM:
            return True
        return target_mm < position_mm and force >= DEAD_BAND_N

    def _error(self) -> int:
        longest_s = self._settings.follow_s
        if longest_s is None or self._still <= longest_s * self._settings.status_hz:
            return 0
        return NOT_FOLLOWING
