"""Schunk's WSG over LCM, as drake-schunk-driver speaks for it: a target with a force out, position, speed and force in.

That program (RobotLocomotion/drake-schunk-driver, d07fcfc, 2024) looks at the newest command and
tells a status every 50 ms. It holds the last command for ever, passes on what is no number, bounds
a target from above only, and goes on telling the last position when the gripper itself has fallen
silent. When it is started it moves the fingers to their ends and forgets where they were sent. What
it lacks is made up for here.
"""

import logging
import math
import select
import time
from dataclasses import dataclass, replace

from stringline.real_robot.driver_interface.driver import NOT_ALONE, NOT_FOLLOWING, STARTED_ANEW
from stringline.real_robot.driver_interface.gripper import GripperState, within
from stringline.real_robot.drivers.lcm.drake_types import SCHUNK_COMMAND, SCHUNK_STATUS
from stringline.real_robot.drivers.lcm.lcm_link import (
    DEFAULT_ADDRESS,
    LOOPBACK,
    LcmLink,
    LcmMessage,
)
from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError
from stringline.real_robot.drivers.lcm.reassembly import Source

log = logging.getLogger(__name__)

COMMAND_CHANNEL = "SCHUNK_WSG_COMMAND"
STATUS_CHANNEL = "SCHUNK_WSG_STATUS"
# Its driver takes a target for reached unless the force asked for differs by more from the force
# that is felt.
DEAD_BAND_N = 5.0
_STRONGEST_N = 120.0  # More than any WSG 50 is built for.

_NEAR_MM = 5.0
_MOVED_MM = 1.0
_BEYOND_MM = (
    5.0  # A position so far outside of the stroke is in another unit, or of another gripper.
)
# From then on the arms hold, and a driver that is started meanwhile would go at once where it is
# sent.
_SILENT_TURNS = 3
# A status that is older than the last by less is one that came late; by more, its driver began
# anew.
_OLD_US = 1_000_000


@dataclass(frozen=True)
class WsgGripper:
    """How a WSG is reached and what its numbers mean.

    Attributes:
        address: `group:port` of LCM.
        interface: Address of this computer on the network of the group.
        ttl: 0: commands stay on this computer; 1: on its network.
        command_channel: Where it is told; `{arm}` stands for the arm's name.
        status_channel: Where it tells.
        closed_mm: Position at which the pads meet: opening 0.
        opened_mm: Position of opening 1.
        stroke_mm: Largest position that is ever sent.
        force_n: With which it grips.
        status_hz: How often it tells its state.
        follow_s: For how long it may stand still away from its target without a reason before that
            is an error; None: for ever.

    Raises:
        ValueError: They are out of range.
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
        """Refuses what no gripper has."""
        if not (
            0 <= self.closed_mm < self.opened_mm < 1000 and self.closed_mm < self.stroke_mm < 1000
        ):
            raise ValueError(
                f"A gripper with closed_mm {self.closed_mm}, opened_mm {self.opened_mm} and "
                f"stroke_mm {self.stroke_mm}; "
                "allowed: 0 <= closed_mm, and both of the others above it and below 1000."
            )
        if not DEAD_BAND_N < self.force_n <= _STRONGEST_N:
            raise ValueError(
                f"force_n is {self.force_n}; allowed: above {DEAD_BAND_N:g}, below which "
                f"drake-schunk-driver does not move, "
                f"and at most {_STRONGEST_N:g}."
            )
        if not 1 <= self.status_hz <= 1000:
            raise ValueError(f"status_hz is {self.status_hz}; allowed: 1 to 1000.")
        if self.follow_s is not None and not 0 < self.follow_s < 3600:
            raise ValueError(
                f"follow_s is {self.follow_s}; allowed: above 0 and below 3600, or null."
            )
        if self.command_channel == self.status_channel:
            raise ValueError(
                f"A gripper is told and tells on one channel, {self.command_channel}; they must "
                f"be two."
            )
        self.link("arm")

    def channels(self, arm: str) -> tuple[str, str]:
        """Returns the channels of an arm's gripper: of commands, and of its state."""
        return self.command_channel.replace("{arm}", arm), self.status_channel.replace("{arm}", arm)

    def link(self, arm: str) -> LcmLink:
        """Returns the place in the group from which an arm's gripper is told and heard, not open."""
        return LcmLink(self.address, self.interface, self.ttl, frozenset({self.channels(arm)[1]}))

    def gripper(self, arm: str, *, period_s: float, read_only: bool) -> "SchunkWsg":
        """Returns the gripper of an arm, not connected."""
        return SchunkWsg(self, arm, period_s=period_s, read_only=read_only)


class SchunkWsg:
    """A WSG beside an arm.

    Time is counted in reads, of which each takes a period: so a world in lock-step may stand still
    in between.

    Args:
        settings: What its numbers mean.
        arm: Its name.
        period_s: Between two reads.
        read_only: Whether nothing may leave.

    Attributes:
        link: To its driver.
        broken: Messages of its channel that were no usable state.
        stale: Those that were older than one before, or the same.
        strangers: Those of somebody else who speaks on its channel; they were left out.
        complaint: What was wrong with the last broken one.
    """

    def __init__(self, settings: WsgGripper, arm: str, *, period_s: float, read_only: bool) -> None:
        self._settings = settings
        self._read_only = read_only
        self._command_channel, self._status_channel = settings.channels(arm)
        self.link = settings.link(arm)
        self.servo = f"{arm}/gripper ({self._status_channel})"
        self.state = GripperState()
        self.broken = self.stale = self.strangers = 0
        self.complaint = ""
        self._reads_per_status = 1.0 / (period_s * settings.status_hz)
        self._source: Source | None = None
        self._utime = 0
        self._reads = 0  # Since it was heard last.
        self._target_mm: float | None = None
        self._wanted: float | None = None
        self._still_mm = math.inf
        self._still = 0
        self._estranged = False
        self._noticed = 0

    @property
    def wanted(self) -> float:
        """The last command, and before the first, or after its driver was started anew, where it stands."""
        return self.state.opening if self._wanted is None else self._wanted

    def connect(self, timeout_s: float) -> list[str]:
        """Joins the group and listens for two states of one and the same gripper."""
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
                (
                    f"{self.servo}: more than one gripper speaks on {where}. Give each a channel "
                    f"of "
                    f"its own."
                )
            ]
        if self._source is not None:
            return []
        if self.broken:
            return [f"{self.servo}: what comes in on {where} is not usable. {self.complaint}"]
        return [
            f"{self.servo}: nothing comes in on {where}. Does the gripper's driver run, has it "
            f"homed the fingers, and does it "
            "speak on this channel and interface?"
        ]

    def _forget(self) -> None:
        self._source = None
        self.broken = 0
        self.strangers = 0
        self._estranged = False
        self._noticed = 0

    def read(self) -> GripperState:
        """Takes what has come in."""
        self._reads += 1
        self._collect()
        # The next one is due after a period of its own, and late after one and a half.
        misses = max(0, int(self._reads / self._reads_per_status - 0.5))
        noticed = self._noticed
        self._noticed = 0
        self.state = replace(self.state, misses=misses, error=noticed | self._error())
        return self.state

    def command(self, opening: float) -> None:
        """Sends it to an opening; what is no number is left out, and so is what is far from fingers whose driver began anew."""
        if not math.isfinite(opening):
            return
        settings = self._settings
        opening = within(opening, self.wanted)
        range_mm = settings.opened_mm - settings.closed_mm
        if self._estranged and abs(opening - self.wanted) * range_mm > _NEAR_MM:
            self._noticed |= STARTED_ANEW
            return
        self._wanted = opening
        self._estranged = False
        target_mm = settings.closed_mm + opening * range_mm
        self._target_mm = min(target_mm, settings.stroke_mm)
        if not self._read_only and self.state.misses < _SILENT_TURNS:
            told = {
                "utime": time.monotonic_ns() // 1000,
                "target_position_mm": self._target_mm,
                "force": settings.force_n,
            }
            self.link.publish(self._command_channel, SCHUNK_COMMAND.encode(told))

    def close(self) -> None:
        """Leaves the group; the gripper's driver holds the last target for ever."""
        self.link.close()

    def _collect(self) -> None:
        for message in self.link.receive():
            try:
                status = self._checked(message)
            except LcmDecodeError as error:
                self.broken = self.broken + 1
                self.complaint = str(error)
                continue
            if self._is_news(message.source, int(status["utime"])):
                self._take(status)

    def _checked(self, message: LcmMessage) -> dict[str, float]:
        found = SCHUNK_STATUS.decode(message.payload)
        status = {
            name: float(value) for name, value in found.items() if isinstance(value, int | float)
        }
        if not all(map(math.isfinite, status.values())):
            raise LcmDecodeError(f"Its state is {status}; expected are finite numbers.")
        longest = max(self._settings.stroke_mm, self._settings.opened_mm)
        if not -_BEYOND_MM <= status["actual_position_mm"] <= longest + _BEYOND_MM:
            raise LcmDecodeError(
                f"It is open by {status['actual_position_mm']:g} mm; by its settings (stroke_mm, "
                f"opened_mm) that is at most "
                f"{longest:g} mm."
            )
        return status

    def _is_news(self, source: Source, utime: int) -> bool:
        """Says whether a state is of the gripper that is known, and newer than the last.

        Whoever speaks after a silence is that gripper again, unless another was heard beside it.
        """
        known = self._source in (None, source)
        silent = self._reads >= 2 * self._reads_per_status
        if not known and (self.strangers or not silent):
            if not self.strangers:
                log.warning(
                    "Somebody else speaks on the channel of %s and is not listened to: %s.",
                    self.servo,
                    source,
                )
            self.strangers += 1
            self._noticed |= NOT_ALONE if silent else 0
            return False
        if known and self._source is not None and 0 <= self._utime - utime < _OLD_US:
            self.stale += 1
            return False
        if self._source is not None and (not known or utime < self._utime):
            self._wanted = self._target_mm = (
                None  # It was started anew, and has forgotten where it was sent.
            )
            self._estranged = True
            self._noticed = self._noticed | STARTED_ANEW
        self._source = source
        self._utime = utime
        self._reads = 0
        return True

    def _take(self, status: dict[str, float]) -> None:
        settings = self._settings
        position_mm = status["actual_position_mm"]
        range_mm = settings.opened_mm - settings.closed_mm
        opening = within((position_mm - settings.closed_mm) / range_mm, self.state.opening)
        # The sign of the force follows the last motion, and says nothing of its direction.
        force = abs(status["actual_force"])
        self.state = GripperState(opening, status["actual_speed_mm_per_s"] / range_mm, force)
        if self._has_reason(position_mm, force) or abs(position_mm - self._still_mm) > _MOVED_MM:
            self._still_mm = position_mm
            self._still = 0
        else:
            self._still += 1

    def _has_reason(self, position_mm: float, force: float) -> bool:
        """Says whether a gripper may rest: there is no target, it is there, or it holds something."""
        target_mm = self._target_mm
        if self._read_only or target_mm is None or abs(target_mm - position_mm) <= _NEAR_MM:
            return True
        return target_mm < position_mm and force >= DEAD_BAND_N

    def _error(self) -> int:
        longest_s = self._settings.follow_s
        return (
            NOT_FOLLOWING
            if longest_s is not None and self._still > longest_s * self._settings.status_hz
            else 0
        )
