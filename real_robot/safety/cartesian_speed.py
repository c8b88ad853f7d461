"""The stage that limits the speed of gripper, elbow and links."""

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.keep_clear import KeepClear
from stringline.real_robot.safety.link_points import LinkPoints
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_cycle import Cycle, StageContext, StatelessStage

Vector = NDArray[np.float64]

_ROUNDING_M = 1e-12
# Share of the limit that a reduced speed aims at: the estimate of the share is linear.
_AIM = 0.99
# Shares of the estimated speed that are tried, in this order, before the arms brake.
_TRIES = (1.0, 0.5, 0.1)


class CartesianSpeed(StatelessStage):
    """Limits the distance that the points of an arm (`LinkPoints`) travel from command to command.

    All hinges of an arm that is too fast are slowed by the same share of the way from braking to
    the requested speed, so the limit of acceleration holds. A speed is allowed only if braking
    after it keeps the limit as well: hinges that turn against each other and come to rest one
    after the other can make the gripper faster. So braking is allowed in the next cycle, for any
    target.

    It is the last stage, since stages before it choose speeds. A slower motion that has not been
    checked for clearance is checked here; if it lacks clearance, all arms brake.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        chains = context.embodiment.chains
        self._arms = [LinkPoints(context.embodiment, chain) for chain in chains]
        self._keep_clear = KeepClear(context)
        self._largest_m = (self.limits.cartesian_speed or np.inf) * self.period_s

    def act(self, cycle: Cycle) -> None:
        """Slows down the arms that are too fast."""
        if self.limits.cartesian_speed is None:
            return
        speed = cycle.speed.copy()
        for points in self._arms:
            own = points.hinges
            braking = cycle.braking[own]
            if not np.array_equal(speed[own], braking):
                share = self._share(cycle, points)
                speed[own] = braking + share * (speed[own] - braking)
        cycle.speed = speed if self._stays_clear(cycle, speed) else cycle.braking

    def _share(self, cycle: Cycle, points: LinkPoints) -> float:
        """Returns the share, 0 to 1, of the requested speed of an arm; the rest is braking."""
        speed = cycle.speed
        if np.abs(speed[points.hinges]) @ points.reach * self.period_s <= self._largest_m:
            return 1.0
        stopping = cycle.limiter.stopping
        braking = cycle.braking
        fast, slow = self._steps(
            cycle, points, stopping(speed, cycle.scale), stopping(braking, cycle.scale)
        )
        squares = _dot(fast, fast)
        allowed = (self._largest_m + _ROUNDING_M) ** 2
        if squares.max() <= allowed:
            return 1.0
        cycle.note(Reason.CARTESIAN_SPEED, float(np.sqrt(squares.max())) / self.period_s)
        estimate = _largest_share(slow, fast, _AIM * self._largest_m)
        for share in estimate * np.array(_TRIES):
            path = stopping(braking + share * (speed - braking), cycle.scale)
            (steps,) = self._steps(cycle, points, path)
            if _dot(steps, steps).max() <= allowed:
                return float(share)
        return 0.0

    @staticmethod
    def _steps(cycle: Cycle, points: LinkPoints, *paths: Vector) -> Vector:
        """Returns the motion (N, T, P, 3) of the points in each period of N paths, metres.

        The paths (T, J) end at rest, so shorter ones are extended by rest.
        """
        longest = max(map(len, paths))
        rows = np.concatenate([_extended(path, longest) for path in paths])
        places = points.positions(np.concatenate([cycle.limiter.position[None], rows]))
        along = places[1:].reshape(len(paths), longest, *places.shape[1:])
        steps = along.copy()
        steps[:, 1:] -= along[:, :-1]
        steps[:, 0] -= places[0]
        return steps

    def _stays_clear(self, cycle: Cycle, speed: Vector) -> bool:
        """Returns whether a speed (J,) that is slower than that of the cycle keeps the arms clear.

        A speed that was found clear with room to spare needs no second check: no capsule can be
        farther from its place on the faster path than all hinges can move it.
        """
        if np.array_equal(speed, cycle.speed):
            return True
        slower, faster = (
            cycle.limiter.stopping(each, cycle.scale) for each in (speed, cycle.speed)
        )
        longest = max(len(slower), len(faster))
        apart = np.abs(_extended(slower, longest) - _extended(faster, longest)).max(axis=0)
        moved = sum(float(apart[arm.hinges] @ arm.reach) for arm in self._arms)
        return moved < cycle.room or self._keep_clear.is_clear(cycle, speed)


def _extended(path: Vector, length: int) -> Vector:
    """Returns a path (T, J) that rests at its end until it is so long."""
    return path if len(path) == length else path[np.minimum(np.arange(length), len(path) - 1)]


def _largest_share(slow: Vector, fast: Vector, largest_m: float) -> float:
    """Returns the largest share of the way from slow to fast steps (T, P, 3) within a length."""
    way = fast - slow
    # |slow + share * way|^2 = largest^2
    a = _dot(way, way)
    b = _dot(slow, way)
    c = np.minimum(_dot(slow, slow) - largest_m**2, 0.0)
    too_fast = _dot(fast, fast) > largest_m**2
    shares = (-b + np.sqrt(b * b - a * c))[too_fast] / a[too_fast]
    return float(np.clip(shares.min(initial=1.0), 0.0, 1.0))


def _dot(a: Vector, b: Vector) -> Vector:
    return np.asarray(np.einsum("...i,...i->...", a, b))
