"""Stages that limit velocity and acceleration, and the speed of gripper, elbow, links and tools."""

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.keep_clear import KeepClear
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import Cycle, StageContext, StatelessStage

Vector = NDArray[np.float64]

_SOFT_START_SHARE = 0.1
# A cycle is in time if it begins less than half a period late. A read may wait in vain for one and
# a half periods; the device process has not stopped then.
_IN_TIME_PERIODS = 1.5
STOPPED_PERIODS = 2.5


class RestAfterGap(StatelessStage):
    """After a gap in its commands, an arm starts again from rest.

    Controllers and servos hold the last command, so an arm comes to rest during a gap. A next
    command at the speed before the gap would exceed the limit of acceleration. The gap ends at the
    position that the controller commands, or, for servos, at their last goal: a goal at the
    measured position would be a step by the tracking error.

    The gap begins when the last command was sent, not when it was decided. Otherwise arms to which
    a slow computer sends in time would stop in a step, as sudden as the motion after a gap.

    A command that was lost on its way is such a gap, too: a servo keeps the goal before. If that
    lasts, as where a servo refuses its goals, it is a fault.

    A gap in the cycles themselves, as after a suspension of the device process or of the computer,
    is a hold, and a fault if it was long.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self.start()

    def start(self) -> None:
        """Forgets the time of the last cycle and of the last commands."""
        self._cycle_s: float | None = None
        self._kept = np.full(len(self.limits.lower), np.nan)
        self._kept_since_s = np.zeros(len(self._kept))
        self._lost_s = np.full(len(self._kept), -np.inf)
        self._sent_s = np.full(len(self.limits.lower), np.inf)
        self._sends = np.zeros(len(self.limits.lower), dtype=np.bool_)

    def act(self, cycle: Cycle) -> None:
        """Measures the gap since the last cycle, and since the last command to each joint."""
        suspended_s = cycle.freshness.suspended_s
        self._judge_cycles(cycle, suspended_s)
        # Commands are spaced when they are sent. By the times of their decisions, an early one and
        # a late one would have a gap between them that the arms do not see.
        due_s = cycle.now + cycle.freshness.ahead_s
        self._sent_s = self._sent_s + np.where(self._sends, cycle.freshness.delayed_s, 0.0)
        sends = ~np.broadcast_to(np.asarray(cycle.waits), self._sent_s.shape)
        begins = sends & self._stands(cycle, due_s - self._sent_s + suspended_s)
        if begins.any():
            cycle.limiter.restart(begins, self._place(cycle))
        self._continue_kept(cycle, sends)
        self._sends = sends
        self._sent_s = np.where(sends, due_s, self._sent_s - suspended_s)

    def _continue_kept(self, cycle: Cycle, sends: NDArray[np.bool_]) -> None:
        """Lets joints begin at the goals that they still have, and judges for how long."""
        kept = cycle.state.kept_goals
        lost = np.isfinite(kept) & sends if len(kept) else np.zeros_like(sends)
        if not lost.any():
            return
        cycle.limiter.restart(lost, kept)
        # A goal that is rounded to the one before cannot be missed, so a loss is not of one cycle.
        old = (kept == self._kept) & (cycle.now - self._lost_s <= self.limits.longest_gap_s)
        self._kept_since_s = np.where(lost & ~old, cycle.now, self._kept_since_s)
        self._kept = np.where(lost, kept, self._kept)
        self._lost_s = np.where(lost, cycle.now, self._lost_s)
        age_s = float((cycle.now - self._kept_since_s)[lost].max())
        cycle.note(Reason.UNSENT, age_s)
        if not age_s <= self.limits.longest_gap_s:
            cycle.fault(Reason.UNSENT, age_s)

    def _stands(self, cycle: Cycle, gap_s: Vector) -> NDArray[np.bool_]:
        """Returns the joints (J,) that have come to rest, given the time since their commands."""
        if len(cycle.state.stands):
            return cycle.state.stands[self.context.arm_of_joint]
        return ~np.asarray(gap_s <= _IN_TIME_PERIODS * self.period_s)

    @staticmethod
    def _place(cycle: Cycle) -> Vector:
        """Returns the position (J,) at which the arms stand."""
        commanded = cycle.state.commanded
        return commanded if len(commanded) else cycle.limiter.position

    def _judge_cycles(self, cycle: Cycle, suspended_s: float) -> None:
        before = self._cycle_s
        self._cycle_s = cycle.now
        if before is None:
            return
        gap_s = cycle.now - before + suspended_s
        if not gap_s <= self.limits.longest_gap_s:
            cycle.fault(Reason.GAP, gap_s)
        elif not gap_s <= STOPPED_PERIODS * self.period_s:
            cycle.hold(Reason.GAP, gap_s)


class CommandsSent(StatelessStage):
    """An arm that is sent no commands for long is a fault: it stands, whatever its plan.

    Each command that is not sent is a hold, see `SafetyFilter.withdraw`.
    """

    def act(self, cycle: Cycle) -> None:
        """Compares the time without commands with its limit."""
        if not cycle.freshness.unsent_s <= self.limits.longest_gap_s:
            cycle.fault(Reason.UNSENT, cycle.freshness.unsent_s)


class SoftStart(StatelessStage):
    """When motion begins, its limits grow from a tenth to their full values.

    Only the time in which a plan is followed counts.
    """

    def act(self, cycle: Cycle) -> None:
        """Sets the share in force."""
        if cycle.followed_s < self.limits.soft_start_s:
            cycle.scale = (
                _SOFT_START_SHARE
                + (1 - _SOFT_START_SHARE) * cycle.followed_s / self.limits.soft_start_s
            )


class MotionLimits(StatelessStage):
    """Limits velocity and acceleration, with room to stop before every bound."""

    def act(self, cycle: Cycle) -> None:
        """Chooses the speed that follows the target best, or else brakes or retreats."""
        cycle.braking = cycle.speed = cycle.limiter.braking
        if cycle.wanted is not None:
            cycle.speed = cycle.limiter.propose(cycle.wanted, cycle.scale)
            return
        cycle.limiter.forget_target()
        if (retreat := cycle.retreat) is not None:
            back = cycle.limiter.settle(retreat.pose, cycle.scale)
            cycle.speed = np.where(retreat.joints, back, cycle.braking)


_ROUNDING_M = 1e-12
# An arm faster than this share of the limit is expected to be too fast in the next cycle.
_ABOUT = 0.9
# Shares of the estimated speed that are tried, in this order; with the last one, the arm brakes.
_TRIES = np.array([1.0, 0.5, 0.1, 0.0])


class CartesianSpeed(StatelessStage):
    """Limits the distance that the points of an arm (`LinkPoints`) travel from command to command.

    All revolute joints of an arm that is too fast are slowed by the same share of the way from
    braking to the requested speed, so the limit of acceleration holds. A speed is allowed only if
    braking after it keeps the limit as well: revolute joints that turn against each other and come
    to rest one after the other can make the gripper faster. So braking is allowed in the next
    cycle, for any target.

    It is the last stage, since stages before it choose speeds. A slower motion is checked for
    clearance here; if it lacks clearance, all arms brake.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._arms = context.link_points
        self._speeds = context.point_speeds
        self._arm_of_joint = context.arm_of_joint
        self._paths = context.braking_paths
        self._keep_clear = KeepClear(context)
        self._largest_m = (self.limits.cartesian_speed or np.inf) * self.period_s
        self._allowed_m = self._largest_m + _ROUNDING_M

    def start(self) -> None:
        """Forgets which arms were fast."""
        self._speeds.slowed[:] = False

    def act(self, cycle: Cycle) -> None:
        """Slows down the arms that are too fast."""
        if self.limits.cartesian_speed is None:
            return
        speed = self._slowed(cycle)
        cycle.speed = speed if self._stays_clear(cycle, speed) else cycle.braking

    def _slowed(self, cycle: Cycle) -> Vector:
        """Returns the speed (J,) at which no arm is too fast."""
        speed = cycle.speed
        braking = cycle.braking
        if not self._may_be_too_fast(speed, braking):
            self._speeds.slowed[:] = False
            return speed
        start = self._paths.start(cycle).points[0]
        path = self._points(cycle, speed)
        (fast,) = self._steps(start, path)
        fastest = self._speeds.fastest(fast)
        self._speeds.slowed[:] = fastest > _ABOUT * self._largest_m
        # An arm that brakes is not too fast, but for rounding.
        too_fast = (fastest > self._allowed_m) & self._changed(speed, braking)
        if not too_fast.any():
            return speed
        cycle.note(Reason.CARTESIAN_SPEED, float(fastest[too_fast].max()) / self.period_s)
        fast, slow = self._steps(start, path, self._points(cycle, braking))
        estimates = np.where(too_fast, self._speeds.shares(slow, fast), 1.0)
        return self._first_slow_enough(cycle, start, estimates)

    def _first_slow_enough(self, cycle: Cycle, start: Vector, estimates: Vector) -> Vector:
        """Returns the first speed (J,) of those tried, from estimated shares (A,), that is allowed.

        The share of an arm is that of the requested speed; the rest is braking.
        """
        speed = cycle.speed
        braking = cycle.braking
        level = np.zeros(len(estimates), dtype=np.int64)
        while True:
            shares = np.where(estimates < 1, estimates * _TRIES[level], 1.0)[self._arm_of_joint]
            slower = np.where(shares < 1, braking + shares * (speed - braking), speed)
            (steps,) = self._steps(start, self._points(cycle, slower))
            again = (level < len(_TRIES) - 1) & (estimates < 1)
            again &= self._speeds.fastest(steps) > self._allowed_m
            if not again.any():
                return slower
            level[again] += 1

    def _may_be_too_fast(self, speed: Vector, braking: Vector) -> bool:
        """Returns whether an arm might be too fast, by upper bounds of its lengths."""
        return any(
            np.abs(speed[one.revolute_joints]) @ one.reach * self.period_s > self._largest_m
            for one in self._arms
        )

    def _points(self, cycle: Cycle, speed: Vector) -> Vector:
        """Returns the points (T, P, 3) of all arms on the path of a speed (J,)."""
        path = self._paths.of(cycle, speed)
        return path.measured.points[: len(path.poses)]

    def _changed(self, speed: Vector, braking: Vector) -> NDArray[np.bool_]:
        """Returns the arms (A,) that do not brake."""
        return np.array([(speed != braking)[one.revolute_joints].any() for one in self._arms])

    @staticmethod
    def _steps(start: Vector, *paths: Vector) -> Vector:
        """Returns the motion (N, T, P, 3) of points in each period of N paths, metres.

        The points are at `start` (P, 3) before. The paths (T, P, 3) end at rest, so shorter ones
        are extended by rest.
        """
        longest = max(map(len, paths))
        steps = np.zeros((len(paths), longest, *start.shape))
        for own, path in zip(steps, paths, strict=True):
            own[: len(path)] = path
            own[1 : len(path)] -= path[:-1]
            own[0] -= start
        return steps

    def _stays_clear(self, cycle: Cycle, speed: Vector) -> bool:
        """Returns whether a speed (J,) that is slower than the cycle's keeps the arms clear."""
        return np.array_equal(speed, cycle.speed) or self._keep_clear.is_clear(cycle, speed)
