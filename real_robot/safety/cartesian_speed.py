"""The stage that limits the speed of gripper, elbow, links and tools."""

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.keep_clear import KeepClear
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import StageContext, StatelessStage
from stringline.real_robot.safety.stage_cycle import Cycle

Vector = NDArray[np.float64]

_ROUNDING_M = 1e-12
# An arm faster than this share of the limit is expected to be too fast in the next cycle.
_ABOUT = 0.9
# Shares of the estimated speed that are tried, in this order; with the last one, the arm brakes.
_TRIES = np.array([1.0, 0.5, 0.1, 0.0])


class CartesianSpeed(StatelessStage):
    """Limits the distance that the points of an arm (`LinkPoints`) travel from command to command.

    All hinges of an arm that is too fast are slowed by the same share of the way from braking to
    the requested speed, so the limit of acceleration holds. A speed is allowed only if braking
    after it keeps the limit as well: hinges that turn against each other and come to rest one
    after the other can make the gripper faster. So braking is allowed in the next cycle, for any
    target.

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
            np.abs(speed[one.hinges]) @ one.reach * self.period_s > self._largest_m
            for one in self._arms
        )

    def _points(self, cycle: Cycle, speed: Vector) -> Vector:
        """Returns the points (T, P, 3) of all arms on the path of a speed (J,)."""
        path = self._paths.of(cycle, speed)
        return path.measured.points[: len(path.poses)]

    def _changed(self, speed: Vector, braking: Vector) -> NDArray[np.bool_]:
        """Returns the arms (A,) that do not brake."""
        return np.array([(speed != braking)[one.hinges].any() for one in self._arms])

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
