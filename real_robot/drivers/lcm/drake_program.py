"""One drake-iiwa-driver and its arms: its messages, its commands, and commands of other programs.

The program ends itself, and so the motion of its arms, if it receives a command within a quarter of
a second after its start. So no command is sent before its messages have arrived for longer than
that, or after they have ceased. The age of its messages is measured although their times are those
of another clock.

It passes every command on at each step, the newest, and holds the last for ever. So a command must
be near the one before, or it is never sent; and the position that the controller reports as
commanded must be among those sent lately. An arm whose command is lost or late stands for a step,
and the next one would be a jump. So each command must come back from the group at once, as all
members receive it. And once the controller reports that it lacks a command, nothing is sent until
all have arrived that may still be on their way; then commands begin, at rest, at the position that
the controller reports.

LCM acknowledges nothing. But each status tells the position that the controller commands, and so
which command was the last that took effect: a command that should be reported and is not was lost,
or is still on its way.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.real_robot.driver_interface.interlocks import TRACKING_ERROR_RAD, Interlock
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS, KukaArm
from stringline.real_robot.drivers.lcm.drake_messages import (
    IIWA_COMMAND,
    UNKNOWN_TIME,
    ArmReport,
    Channels,
    IiwaStatus,
    StatusInbox,
)
from stringline.real_robot.drivers.lcm.lcm_link import LcmLink, LcmMessage, Source

_KEPT_DIFFERENCES = 500  # Messages; the clocks drift apart by microseconds meanwhile.
_JUMP_S = 1.0


class ArrivalClock:
    """Measures ages by the messages that arrived fastest.

    The difference of the two clocks is unknown. Its smallest value over the last messages contains
    the shortest delay, so ages are relative to that of the fastest message.
    """

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=_KEPT_DIFFERENCES)
        self._utime = 0

    def note(self, utime: int, now_s: float) -> None:
        """Takes a message's time, microseconds, and the local time of its arrival, seconds."""
        difference = now_s - 1e-6 * utime
        ahead = bool(self._differences) and difference < self._differences[-1] - _JUMP_S
        if ahead or utime < self._utime:  # Another clock, or one that was set.
            self.clear()
        # A message that is seconds late may be of a clock that was set back by less than the time
        # that has passed. It is taken for one that waited while this process stood still: then
        # nothing is sent until messages are in time, or the last ones were as late.
        self._differences.append(difference)
        self._utime = utime

    def clear(self) -> None:
        """Forgets all messages, as of another clock."""
        self._differences.clear()

    def age_s(self, utime: int, now_s: float) -> float:
        """Returns the age of a message at a local time; infinite before the first."""
        if not self._differences:
            return math.inf
        return now_s - 1e-6 * utime - min(self._differences)


# The controller commands a sent position within that time. drake-iiwa-driver keeps a degree from
# the ends of the axes.
_FOLLOWED_WITHIN_S = 0.1
_FOLLOWED_RAD = 0.02
# A controller reports a command at most that many steps later.
_MOST_BEHIND = 2
_KEPT_COMMANDS = 8
# Reported positions are those of the commands but for rounding.
_SAME_RAD = 1e-9


class LcmArm(KukaArm):
    """An arm of a driver program.

    Attributes:
        report: The newest, or None before the first.
    """

    def __init__(self, name: str, period_s: float) -> None:
        super().__init__(name, period_s)
        self.report: ArmReport | None = None
        self._sent_lately: deque[Vector] = deque(
            maxlen=max(4, round(_FOLLOWED_WITHIN_S / period_s))
        )
        self._reported = ReportedCommands(self._last)
        self._begin_at(self._last)

    @property
    def motion(self) -> tuple[Vector, Vector, Vector]:
        """(7,) position in rad, velocity in rad/s and external torque in Nm, as measured last."""
        report = self.report
        if report is None:
            return np.zeros(JOINTS), np.zeros(JOINTS), np.zeros(JOINTS)
        return report.measured, report.velocity, report.external

    @property
    def in_motion(self) -> bool:
        """Whether its controller is in a motion that accepts commands."""
        return self.report is not None and self.report.in_motion

    def take(self, report: ArmReport) -> None:
        """Takes a report of its program."""
        was_in_motion = self.in_motion
        self.report = report
        if not report.in_motion:
            if was_in_motion:
                self._notice(Interlock.NO_MOTION)
            self.let_go()
        elif not was_in_motion:
            self.enter()
        elif not self._led:
            self.let_go()
        elif not self._follows(report.commanded):
            self.let_go()
            self._notice(Interlock.IGNORED)
        if self._lost_track:
            # Its commands continue: the commanded position lags behind them, and must not become
            # their beginning.
            self._notice(Interlock.TRACKING_ERROR)

    @property
    def _lost_track(self) -> bool:
        report = self.report
        if report is None or not report.in_motion:
            return False
        return bool(np.abs(report.measured - report.commanded).max() > TRACKING_ERROR_RAD)

    def _follows(self, commanded: Vector) -> bool:
        sent = np.array(self._sent_lately)
        low = sent.min(axis=0) - _FOLLOWED_RAD
        high = sent.max(axis=0) + _FOLLOWED_RAD
        return bool(((commanded >= low) & (commanded <= high)).all())

    def enter(self) -> None:
        """Begins again, which is an event."""
        self.let_go()
        self._notice(Interlock.ENTERED)

    def let_go(self) -> None:
        """Begins again: in a motion at the commanded position, or else at the measured one."""
        if self.report is not None:
            self._begin_at(self.report.commanded if self.report.in_motion else self.report.measured)

    def _begin_at(self, position: Vector) -> None:
        self._last = position
        self._led = False
        self._reported.begin(position)
        self._sent_lately.clear()
        self._sent_lately.append(position)

    def take_interlock(self) -> Interlock:
        """Returns the interlock of the arm; events since the last call are reported once."""
        return max(self._take_event(), self.refusal)

    @property
    def refusal(self) -> Interlock:
        """The interlock that lasts."""
        if not self.in_motion:
            return Interlock.NO_MOTION
        return Interlock.TRACKING_ERROR if self._lost_track else Interlock.NONE

    def offer(self, position: Vector) -> bool:
        """Takes the filter's command of this cycle, (7,) rad; returns whether it was accepted.

        A command far from the last one is refused, and the last one stays.
        """
        if not self.in_motion or not self._is_near(position):
            return False
        self._last = position.copy()
        self._sent_lately.append(self._last)
        self._reported.note(self._last)
        return True

    def lacks_commands(self, steps: int) -> bool:
        """Returns whether its controller has not got a command that it should have got by now.

        `steps` is the number of its steps since the status before.
        """
        if self.report is None or not self._led:
            return False
        return self._reported.missing(self.report.commanded, steps)

    def notice(self, event: Interlock) -> None:
        """Keeps an event of its program for `take_interlock`."""
        self._notice(event)

    def note_sent(self) -> None:
        """Notes that its command was sent."""
        self._led = self.in_motion
        self.sent += 1


class ReportedCommands:
    """The last commands to one arm. Positions are (7,) rad.

    Args:
        position: Position at which commands begin.
    """

    def __init__(self, position: Vector) -> None:
        self._usual = _MOST_BEHIND
        self.begin(position)

    def begin(self, position: Vector) -> None:
        """Forgets earlier commands: they begin at a position at which the arm stands."""
        self._sent = deque([position], maxlen=_KEPT_COMMANDS)
        self._steps = 0

    def note(self, position: Vector) -> None:
        """Notes a command that was sent."""
        self._sent.append(position)
        self._steps = 0

    def missing(self, reported: Vector, steps: int = 1) -> bool:
        """Returns whether a command that should be reported by now is not.

        How many steps later a controller reports a command is learnt from the motion. At rest all
        commands are alike, and nothing can be missing.

        Args:
            reported: Position that the controller commands, by the status of a step.
            steps: Steps of the controller since the status before.
        """
        self._steps += steps
        away = [float(np.abs(one - reported).max()) for one in self._sent]
        nearest = [at for at, one in enumerate(away) if one <= min(away) + _SAME_RAD]
        behind = len(away) - 1 - nearest[-1]
        if len(nearest) == 1 and self._steps == 1:
            self._usual = min(self._usual, max(behind, 1))
        for _ in range(nearest[-1]):
            self._sent.popleft()
        # Without a command in the last steps, the controller has caught up by as many.
        return behind > max(self._usual - (self._steps - 1), 0)


_LOST_AFTER = 10  # Periods of silence.
_GUARD_US = 300_000  # The program's own guard is 250 ms.
_FOREIGN_US = 500_000  # Nothing is sent for that long after a command of another program.
_PERIOD_TOLERANCE = 0.2
_STANDS_AFTER = 1.5  # Periods between the steps that two commands answer.
# Share of a period after a step at which a command would be too late for the next step.
_TOO_LATE = 0.8
# Commands that may be on their way have arrived after that time in which the controller's own
# command has not changed.
_QUIET_S = 0.05
# So many lost or late commands within that time are a fault.
_MOST_LOST = 3
_LOST_WITHIN_US = 1_000_000


class Settling:
    """The time until commands that were sent have arrived, or are lost.

    Args:
        steps: Steps in which the controllers' own command must not have changed.
    """

    def __init__(self, steps: int) -> None:
        self._needed = self._left = steps
        self._commanded: Vector | None = None

    def step(self, commanded: Vector) -> bool:
        """Takes what the controllers command at a step; returns whether all is quiet."""
        changed = self._commanded is None or not np.array_equal(commanded, self._commanded)
        self._left = self._needed if changed else self._left - 1
        self._commanded = commanded
        return self._left <= 0


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
        heard: Whether the last command has come back from the group; always in lock-step.
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
        self._arrived_s = self._answered_s = 0.0
        self._steps = 0  # Since the last command.
        self._unbroken = False
        self._settling: Settling | None = None
        self._lost_at: deque[int] = deque(maxlen=_MOST_LOST)
        self._message = b""
        self._awaited = 0
        self.heard = True
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
            self._take_telemetry(message)
        elif message.channel != self.channels.command:
            return
        elif message.source == self.link.own:
            self.heard |= (message.sequence - self._awaited) % (1 << 32) < 1 << 31
        else:
            self.foreigner = message.source
            self._foreign_at = self._utime

    def _take_telemetry(self, message: LcmMessage) -> None:
        unknown = self.inbox.step_us is None
        self.inbox.take_telemetry(message)
        if self.inbox.step_us is None or self._arrivals is None:
            return
        if unknown:
            self._arrivals.clear()  # The times before were those of the host.
        self._stepped_us = self.inbox.step_us
        self._arrivals.note(self._stepped_us, time.monotonic())

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
        self._arrived_s = time.monotonic()
        self._unbroken &= not self.inbox.skipped
        if self._arrivals is not None and status.utime != UNKNOWN_TIME:
            self._note_age(self._arrivals, status)
        for arm, report in zip(self.arms, status.arms, strict=True):
            arm.take(report)
            if self._silent:
                arm.enter()
            elif self._foreign or not self.ready:
                arm.let_go()
        if self._silent:
            self._wait_for_arrivals()
        # Until its clock is synchronised, each message of the program counts as a step.
        if first or status.utime != last or status.utime == UNKNOWN_TIME:
            self._look_for_commands(status.utime - last)
            self.fresh = True
            self.pending |= not self._too_soon

    def _note_age(self, arrivals: ArrivalClock, status: IiwaStatus) -> None:
        """Notes the time of the step that a status tells.

        The program's estimate of the difference of two clocks follows each delay and each setting
        of its host's clock for hundreds of steps, and the times of its statuses follow the
        estimate. Those of the controller do not; they come just after each status.
        """
        if self._silent:
            arrivals.clear()  # The program may be another one.
        if self.inbox.step_us is None:
            self._stepped_us = status.utime
            arrivals.note(self._stepped_us, self._arrived_s)
        else:
            self._stepped_us = self.inbox.step_us + round(1e6 * self._period_s)

    def _look_for_commands(self, gap_us: int) -> None:
        """Looks, at a step, for commands that the controllers should have got and have not."""
        steps = 1 if self._unbroken else max(1, round(1e-6 * gap_us / self._period_s))
        self._steps += steps
        if self._settling is None and any([arm.lacks_commands(steps) for arm in self.arms]):
            self._settle(Interlock.IGNORED)
        settling = self._settling
        if settling is None:
            return
        if settling.step(np.concatenate([arm.anchor for arm in self.arms])):
            self._settling = None
            return
        for arm in self.arms:
            arm.let_go()
            arm.notice(Interlock.MISSED)

    def _wait_for_arrivals(self) -> None:
        """Sends nothing until the controllers' own commands have not changed for some steps.

        After silence, as of a busy computer, the first status may be of a step before the program
        took the last commands. One that begins at what it reports would let the arms jump back. The
        silence was longer than commands are on their way, so a few steps are enough.
        """
        if self._answered_us is not None:
            self._settling = Settling(_MOST_BEHIND + 1)

    def _settle(self, event: Interlock) -> None:
        """Sends nothing until all commands have arrived; `event`: if that happens too often."""
        for arm in self.arms:
            arm.let_go()
            arm.notice(Interlock.MISSED)
        self._settling = Settling(max(2, math.ceil(_QUIET_S / self._period_s)))
        self._lost_at.append(self._utime)
        often = len(self._lost_at) == _MOST_LOST
        if often and self._utime - self._lost_at[0] < _LOST_WITHIN_US:
            for arm in self.arms:
                arm.notice(event)
            self._lost_at.clear()

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
        """Whether steps were made without a new command, so that its arms stand at the last.

        A clock that was set makes no gap: no message is missing, and the step came in time.
        """
        if self._answered_us is None:
            return False
        longest_s = _STANDS_AFTER * self._period_s
        gap = self._utime - self._answered_us > 1e6 * longest_s
        if self._arrivals is None:
            return gap
        late = self._arrived_s - self._answered_s > longest_s
        if not self._unbroken:
            return gap or late
        return self._steps > 1 or (gap and late)

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
        if self._too_late or self._settling is not None:
            return []
        accepted = [arm.name for arm in self.arms if arm.offer(positions[arm.name])]
        # The program expects a row for each arm: one without a command gets its own position.
        row = np.concatenate([arm.anchor for arm in self.arms])
        self._message = IIWA_COMMAND.encode({"utime": self._utime, "joint_position": row.tolist()})
        self._awaited = self.link.next_sequence
        self.heard = self._arrivals is None
        if not self.link.publish(self.channels.command, self._message):
            self.heard = True  # Nothing is on its way.
            return []
        self._commanded_at = time.monotonic()
        self._answered_us = self._utime
        self._answered_s = self._arrived_s
        self._steps = 0
        self._unbroken = True
        for arm in self.arms:
            arm.note_sent()
        return accepted

    def send_again(self) -> None:
        """Sends the last command again, which has not come back from the group."""
        self.link.publish(self.channels.command, self._message)

    def give_up(self) -> None:
        """Takes the last command for lost or late: see `_settle`."""
        self.heard = True
        self._settle(Interlock.UNTIMELY)

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
        """Whether its steps have the period of the commands, as far as it is known.

        Steps that are missed make the time between two of them longer, but uneven.
        """
        period_us = self.inbox.period_us
        wanted_us = 1e6 * self._period_s
        if not period_us or not self.inbox.regular:
            return True
        return abs(period_us - wanted_us) <= _PERIOD_TOLERANCE * wanted_us
