"""The stage that keeps the arms clear of the table, of walls, of obstacles and of each other."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.braking_paths import BrakingPath
from stringline.real_robot.safety.projection import nearest_change
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import StageContext, StatelessStage
from stringline.real_robot.safety.stage_cycle import Cycle
from stringline.real_robot.safety.surroundings import Gaps

Vector = NDArray[np.float64]

_ROUNDING_M = 1e-9
_SLOW = 1e-9  # Differences of speeds that are rounding.
_DETOURS = 2  # Number of detours along an obstacle that are tried.
_CLOSE_M = 0.005  # With more room to spare, no obstacle is expected to be met.
# Room beyond the required one on a detour, and on one that is found from a shorter path.
_MARGIN_M = 1e-4
_GUESS_MARGIN_M = 3e-4
_NEAR_M = 0.03  # Distances with more room to spare are not lost by a detour.
# Shares of the way from braking to the requested speed, tried in this order.
_SHARES = np.array([1.0, 0.5, 0.25, 0.0])


class Aim(NamedTuple):
    """What a detour comes near to.

    Attributes:
        speed: (J,) requested; hinges that no detour moves, and grippers, keep it.
        rest: (J,) rest pose of arms that move straight to their targets.
        movable: (H,) hinges of arms that make the detour.
        bounds: (J,) lowest and (J,) highest allowed speed.
    """

    speed: Vector
    rest: Vector
    movable: NDArray[np.bool_]
    bounds: tuple[Vector, Vector]


class PathGaps(NamedTuple):
    """K gaps on a path until rest.

    Attributes:
        gaps: The gaps.
        slopes: (K, H) their change by the rest positions of hinges, metres per radian.
        lacking: (K,) room that they lack, metres.
        growth: (J,) change of the rest position by the speed, seconds.
    """

    gaps: Gaps
    slopes: Vector
    lacking: Vector
    growth: Vector


class KeepClear(StatelessStage):
    """Keeps the next pose clear, and all poses after it if the arms brake then.

    So braking is clear in the next cycle as well, for any target; except for the space between two
    arms while no command can be sent to one of them, for an unknown time. Every mixture of two
    allowed speeds is allowed. An arm that lacks clearance already may move, but not closer than
    braking brings it.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._surroundings = context.surroundings
        self._paths = context.braking_paths
        self._speeds = context.point_speeds
        self._embodiment = context.embodiment
        self._arm_of_joint = context.arm_of_joint
        self._own = [self._arm_of_joint == place for place in range(len(context.embodiment.arms))]

    def act(self, cycle: Cycle) -> None:
        """Chooses the clear speed nearest to the requested one. Braking is never refused."""
        if cycle.wanted is None and cycle.retreat is None:
            return
        self._slow_points(cycle)
        path = self._guess(cycle) or self._paths.of(cycle, cycle.speed)
        if path.speed is not cycle.speed:
            self._slow_down(cycle, path, self._required(cycle))
        elif not (path.least >= 0).all():
            least = self._required(cycle)
            if (path.least < least).any():
                self._surroundings.note(cycle, least - path.least)
                self._slow_down(cycle, path, least)

    def _slow_points(self, cycle: Cycle) -> None:
        """Slows arms that `CartesianSpeed`, which decides, would slow again as in the last cycle.

        So it need not measure another path.
        """
        speeds = self._speeds
        if not speeds.slowed.any():
            return
        hinges = self._surroundings.hinges
        both = np.stack([cycle.braking, cycle.speed])
        slow, fast = speeds.first_steps(self._paths.start(cycle), self.period_s * both[:, hinges])
        shares = speeds.shares(slow[None], fast[None])
        slowed = speeds.slowed & (shares < 1)
        if slowed.any():
            fastest = speeds.fastest(fast[None])[slowed].max()
            cycle.note(Reason.CARTESIAN_SPEED, float(fastest) / self.period_s)
            share = np.where(slowed, shares, 1.0)[self._arm_of_joint]
            slower = cycle.braking + share * (cycle.speed - cycle.braking)
            cycle.speed = np.where(share < 1, slower, cycle.speed)

    def _guess(self, cycle: Cycle) -> BrakingPath | None:
        """Returns the path of a detour for arms that are close to an obstacle.

        It is found from the path of braking, without measuring the one of the requested speed. None
        if this one seems to be clear.
        """
        moves = cycle.speed != cycle.braking
        close = self._paths.room(cycle) < _CLOSE_M
        arms = [place for place, own in enumerate(self._own) if close[place] and moves[own].any()]
        if not arms:
            return None
        braking = self._paths.of(cycle, cycle.braking)
        growth = self._secants(cycle, braking)
        found = self._gaps(braking, self._required(cycle), growth, _GUESS_MARGIN_M)
        change = (growth[-1] * (cycle.speed - cycle.braking))[self._surroundings.hinges]
        short = found.lacking - found.slopes @ change
        if not (short > 0).any():
            return None
        self._surroundings.note_gaps(cycle, found.gaps, short)
        speed = self._detour(braking, found, self._aim(cycle, arms))
        return self._paths.of(cycle, speed)

    def _secants(self, cycle: Cycle, braking: BrakingPath) -> Vector:
        """Returns growths as `_growth`, from braking to the requested speed."""
        asked = cycle.limiter.stopping(cycle.speed, cycle.scale)
        faster = cycle.speed - cycle.braking
        count = len(braking.poses)
        ahead = np.minimum(np.arange(count), len(asked) - 1)
        ahead[-1] = len(asked) - 1
        moved = asked[ahead] - braking.poses
        differs = np.abs(faster) > _SLOW
        growth = self._growth(braking.poses)
        return np.where(differs, moved / np.where(differs, faster, 1.0), growth).clip(self.period_s)

    def is_clear(self, cycle: Cycle, speed: Vector) -> bool:
        """Returns whether a speed (J,) is as clear as this stage requires."""
        spare = self._paths.of(cycle, speed).least
        return bool((spare >= 0).all() or (spare >= self._required(cycle)).all())

    def _required(self, cycle: Cycle) -> Vector:
        """Returns the clearance to spare (S, A, C) that a path must have, metres."""
        braking = self._paths.of(cycle, cycle.braking)
        return np.minimum(braking.least - _ROUNDING_M, 0.0)

    def _along(self, cycle: Cycle, path: BrakingPath, least: Vector) -> tuple[Vector, BrakingPath]:
        """Returns a speed (J,) along the obstacles of arms that lack clearance, and its path.

        `path` is that of the requested speed, `least` (S, A, C) the required clearance.
        A share of the requested speed would not do: if that brings an arm closer, so does any share
        of it, and the arm would stand still.
        """
        near = np.any(path.least < least, axis=(0, 2))
        moves = cycle.speed != cycle.braking
        blocked = [place for place, own in enumerate(self._own) if near[place] and moves[own].any()]
        if not blocked:
            return path.speed, path
        aim = self._aim(cycle, blocked)
        for _ in range(_DETOURS):
            found = self._gaps(path, least, self._growth(path.poses))
            path = self._paths.of(cycle, self._detour(path, found, aim))
            if (path.least >= least).all():
                break
        return path.speed, path

    def _aim(self, cycle: Cycle, blocked: list[int]) -> Aim:
        """Returns where arms, given by their numbers, would come to rest if nothing was there."""
        braked = cycle.limiter.rest(cycle.braking, cycle.scale)
        rest = cycle.limiter.rest(cycle.speed, cycle.scale)
        for place in blocked:
            own = self._own[place]
            rest[own] = self._straight(cycle, place, braked)[own]
        movable = np.isin(self._surroundings.arm_of_hinge, blocked)
        return Aim(cycle.speed, rest, movable, cycle.limiter.allowed(cycle.scale))

    def _gaps(
        self, path: BrakingPath, least: Vector, growth: Vector, margin: float = _MARGIN_M
    ) -> PathGaps:
        """Returns the gaps on a path; their slopes are those by the rest pose."""
        surroundings = self._surroundings
        hinges = surroundings.hinges
        plain = np.arange(len(path.spare)) < len(path.poses)
        gaps = surroundings.gaps(path.measured, path.spare, plain, _NEAR_M)
        shares = (growth / growth[-1])[:, hinges]
        slopes = surroundings.slopes(path.measured, gaps) * shares[gaps.near.poses]
        return PathGaps(gaps, slopes, surroundings.lacking(gaps, least, margin), growth[-1])

    def _detour(self, path: BrakingPath, found: PathGaps, aim: Aim) -> Vector:
        """Returns the speed (J,) whose path has the required clearance to first order.

        Of all speeds within the bounds, it is the one that comes to rest nearest to the aim,
        measured by the motion of the grippers. `found` are the gaps on `path`.
        """
        hinges = self._surroundings.hinges
        lower, upper = (
            np.where(aim.movable, (found.growth * (bound - path.speed))[hinges], 0.0)
            for bound in aim.bounds
        )
        fixed = ~aim.movable
        kept = (found.growth * (aim.speed - path.speed))[hinges]
        lower[fixed] = upper[fixed] = kept[fixed]
        last = np.full(len(hinges), len(path.poses) - 1)
        change = nearest_change(
            self._surroundings.cost(path.measured, last),
            (aim.rest - path.poses[-1])[hinges],
            found.slopes,
            found.lacking,
            (lower, upper),
        )
        speed = aim.speed.copy()
        speed[hinges] = path.speed[hinges] + change / found.growth[hinges]
        # Hinges of other arms keep their speeds exactly.
        other = hinges[fixed]
        speed[other] = aim.speed[other]
        return np.minimum(np.maximum(speed, aim.bounds[0]), aim.bounds[1])

    def _growth(self, poses: Vector) -> Vector:
        """Returns how far joints move until each pose of a path (T, J), per unit of their speed."""
        moves = poses[1:] != poses[:-1]
        periods = np.ones(poses.shape)
        periods[1:] += np.cumsum(moves, axis=0)
        return self.period_s * periods

    def _straight(self, cycle: Cycle, place: int, braked: Vector) -> Vector:
        """Returns the rest pose (J,) of an arm that moves straight to its target; others stay.

        `place` is the index of the arm, `braked` (J,) the rest pose of braking joints.
        Joints that move independently, as in free space, would not do: those that are corrected for
        clearance would drift ever farther from their targets.
        """
        limiter = cycle.limiter
        hinges = self._embodiment.hinges[self._embodiment.arms[place]]
        target = cycle.wanted
        if target is None:
            retreat = cycle.retreat
            assert retreat is not None
            target = np.where(retreat.joints, retreat.pose, braked)
        rest = np.where(self._own[place], limiter.rest(cycle.speed, cycle.scale), limiter.position)
        rest[hinges] = limiter.rest_towards(target, hinges, cycle.scale)
        return rest

    def _slow_down(self, cycle: Cycle, path: BrakingPath, least: Vector) -> None:
        """Reduces the speed of arms that lack clearance; if no share has it, all arms brake."""
        wanted, path = self._along(cycle, path, least)
        cycle.speed = wanted
        level = np.zeros(least.shape[1], dtype=np.int64)
        while (near := np.any(path.least < least, axis=(0, 2))).any():
            if (level[near] == len(_SHARES) - 1).all():
                cycle.speed = cycle.braking
                return
            level[near] = np.minimum(level[near] + 1, len(_SHARES) - 1)
            share = _SHARES[level][self._arm_of_joint]
            cycle.speed = cycle.braking + share * (wanted - cycle.braking)
            path = self._paths.of(cycle, cycle.speed)
