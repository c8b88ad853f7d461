"""Stages that keep the arms clear of the table, of walls, of obstacles and of each other.

`ClearTarget` moves targets without clearance to nearby poses that have it; `KeepClear` chooses a
speed whose path until rest is clear. Both find the nearest change of joints that gives distances
their room, a quadratic programme. It is solved by DAQP, a dual active-set method (Arnström,
Bemporad and Axehill, 2022), exactly and within microseconds at this size.
"""

from typing import NamedTuple

import daqp
import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.collision_model import Measured
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import (
    BrakingPath,
    Cycle,
    Gaps,
    StageContext,
    StatelessStage,
)

Vector = NDArray[np.float64]

# Directions that give less than about 1 % of the room of the usual ones are damped: they would move
# an arm far away. Squared metres per squared radian and unit of cost.
_DAMPING = 1e-4
_SOFT = 8  # DAQP's mark of a bound that may be missed, where there is no way to satisfy all.


def nearest_change(
    cost: Vector, aim: Vector, slopes: Vector, lacking: Vector, bounds: tuple[Vector, Vector]
) -> Vector:
    """Returns the change (H,) nearest to `aim` that gives distances the room that they lack.

    Minimises (x - aim)' cost (x - aim) with slopes x >= lacking and lower <= x <= upper. Room that
    the bounds do not allow is missed as little as possible; so are distances that no x changes.

    Args:
        cost: (H, H) positive definite.
        aim: (H,).
        slopes: (K, H) of the distances.
        lacking: (K,) room, negative where there is room to spare.
        bounds: (H,) lower and (H,) upper bounds.
    """
    lower, upper = bounds
    sense = np.zeros(len(aim) + len(lacking), dtype=np.int32)
    sense[len(aim) :] = _SOFT
    change, _, _, _ = daqp.solve(
        cost,
        -cost @ aim,
        slopes,
        np.concatenate([upper, np.full(len(lacking), np.inf)]),
        np.concatenate([lower, lacking]),
        sense,
        rho_soft=_DAMPING,
    )
    return np.asarray(np.minimum(np.maximum(change, lower), upper))


_TARGET_ROUNDING_M = 1e-6  # Upper bound of the effect of targets in float32.
_LARGEST_RAD = 0.2  # Largest change of a revolute joint in a cycle: slopes are local.
_TARGET_NEAR_M = 0.1  # Distances with more room to spare need no slope: a change is not larger.
# A target that has jumped by more than a step, and is not deeper in an obstacle, is where the
# search begins anew.
_DEEP_M = 0.1
# Room beyond the required one: more than detours are wrong by, which come near to the target.
_TARGET_MARGIN_M = 4e-4
_SAME_RAD = 1e-9  # A target that changes by less stays, so that arms come to rest.


class ClearTarget(StatelessStage):
    """Moves a target that lacks clearance to a nearby pose that has it.

    So an arm that is pressed against an obstacle slides along it, instead of stopping with all its
    joints at the contact. Each arm is checked against the present pose of the other one, so no arm
    is moved by the target of the other one. An arm that lacks clearance already need not leave, but
    gets no target that is closer.

    The clear pose is the one nearest to the target, measured by the motion of the gripper. Each
    cycle takes one step of sequential quadratic programming, from the pose of the last cycle, so
    the result is reached within a few cycles, while the arm is on its way.
    """

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._surroundings = context.surroundings
        self._arms = np.arange(len(context.embodiment.arms))
        self._own = context.arm_of_joint == self._arms[:, None]
        self._revolute = self._surroundings.revolute_joints
        self._arm_of_revolute = self._surroundings.arm_of_revolute
        self._first = np.searchsorted(self._arm_of_revolute, self._arms)
        self._bounds = self.limits.lower[self._revolute], self.limits.upper[self._revolute]
        self.start()

    def start(self) -> None:
        """Forgets the last clear pose, and the last target."""
        self._before: Vector | None = None
        self._asked: Vector | None = None

    def act(self, cycle: Cycle) -> None:
        """Moves the target of each arm."""
        if cycle.wanted is None:
            self.start()
            return
        here = cycle.limiter.position
        target = cycle.wanted
        before = here[self._revolute] if self._before is None else self._before
        measured = self._measured(here, target, before)
        spare = self._surroundings.spare(measured)
        now = spare[0]
        least = np.minimum(now - _TARGET_ROUNDING_M * (now < 0), 0.0)
        # (A, S, C): each arm at its target.
        short = least.swapaxes(0, 1) - spare[1 + self._arms, :, self._arms]
        depth = short.max(axis=(1, 2))
        blocked = depth > 0
        revolute = target[self._revolute]
        if blocked.any():
            short[~blocked] = 0.0
            self._surroundings.note(cycle, short.swapaxes(0, 1))
            jump = np.abs(revolute - (before if self._asked is None else self._asked))
            far = np.maximum.reduceat(jump, self._first) > _LARGEST_RAD
            anew = far & (depth < _DEEP_M)
            revolute = self._moved(
                measured, spare, least, blocked, anew, before=before, target=revolute
            )
            cycle.target = target.copy()
            cycle.target[self._revolute] = revolute
        self._before = revolute
        self._asked = target[self._revolute]

    def _measured(self, here: Vector, target: Vector, before: Vector) -> Measured:
        """Measures the arms here, and each one at its target and at its last clear pose (H,)."""
        start = target.copy()
        start[self._revolute] = before
        poses = np.where(self._own, np.stack([target, start])[:, None], here)
        return self._surroundings.measure(
            np.concatenate([here[None], poses.reshape(-1, len(here))])
        )

    def _moved(
        self,
        measured: Measured,
        spare: Vector,
        least: Vector,
        blocked: NDArray[np.bool_],
        anew: NDArray[np.bool_],
        *,
        before: Vector,
        target: Vector,
    ) -> Vector:
        """Returns the joints (H,) at the clear pose of blocked arms (A,), and at other targets.

        The step of arms in `anew` (A,) begins at their targets.
        """
        count = len(blocked)
        poses = 1 + self._arms + count * ~anew
        asked = np.zeros(1 + 2 * count, dtype=np.bool_)
        asked[poses[blocked]] = True
        gaps = self._surroundings.gaps(measured, spare, asked, _TARGET_NEAR_M)
        own = ((gaps.near.poses - 1) % count)[:, None] == self._arm_of_revolute
        start = np.where(anew[self._arm_of_revolute], target, before)
        lower, upper = self._bounds
        change = nearest_change(
            self._surroundings.cost(measured, poses[self._arm_of_revolute]),
            target - start,
            self._surroundings.slopes(measured, gaps) * own,
            self._surroundings.lacking(gaps, least, _TARGET_MARGIN_M),
            (np.maximum(lower - start, -_LARGEST_RAD), np.minimum(upper - start, _LARGEST_RAD)),
        )
        if np.abs(change).max() < _SAME_RAD:
            change[:] = 0.0
        return np.where(blocked[self._arm_of_revolute], start + change, target)


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
        speed: (J,) requested; revolute joints that no detour moves, and grippers, keep it.
        rest: (J,) rest pose of arms that move straight to their targets.
        movable: (H,) revolute joints of arms that make the detour.
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
        slopes: (K, H) their change by the rest positions of revolute joints, metres per radian.
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
        revolute = self._surroundings.revolute_joints
        both = np.stack([cycle.braking, cycle.speed])
        slow, fast = speeds.first_steps(self._paths.start(cycle), self.period_s * both[:, revolute])
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
        change = (growth[-1] * (cycle.speed - cycle.braking))[self._surroundings.revolute_joints]
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
        movable = np.isin(self._surroundings.arm_of_revolute, blocked)
        return Aim(cycle.speed, rest, movable, cycle.limiter.allowed(cycle.scale))

    def _gaps(
        self, path: BrakingPath, least: Vector, growth: Vector, margin: float = _MARGIN_M
    ) -> PathGaps:
        """Returns the gaps on a path; their slopes are those by the rest pose."""
        surroundings = self._surroundings
        revolute = surroundings.revolute_joints
        plain = np.arange(len(path.spare)) < len(path.poses)
        gaps = surroundings.gaps(path.measured, path.spare, plain, _NEAR_M)
        shares = (growth / growth[-1])[:, revolute]
        slopes = surroundings.slopes(path.measured, gaps) * shares[gaps.near.poses]
        return PathGaps(gaps, slopes, surroundings.lacking(gaps, least, margin), growth[-1])

    def _detour(self, path: BrakingPath, found: PathGaps, aim: Aim) -> Vector:
        """Returns the speed (J,) whose path has the required clearance to first order.

        Of all speeds within the bounds, it is the one that comes to rest nearest to the aim,
        measured by the motion of the grippers. `found` are the gaps on `path`.
        """
        revolute = self._surroundings.revolute_joints
        lower, upper = (
            np.where(aim.movable, (found.growth * (bound - path.speed))[revolute], 0.0)
            for bound in aim.bounds
        )
        fixed = ~aim.movable
        kept = (found.growth * (aim.speed - path.speed))[revolute]
        lower[fixed] = upper[fixed] = kept[fixed]
        last = np.full(len(revolute), len(path.poses) - 1)
        change = nearest_change(
            self._surroundings.cost(path.measured, last),
            (aim.rest - path.poses[-1])[revolute],
            found.slopes,
            found.lacking,
            (lower, upper),
        )
        speed = aim.speed.copy()
        speed[revolute] = path.speed[revolute] + change / found.growth[revolute]
        # Hinges of other arms keep their speeds exactly.
        other = revolute[fixed]
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
        revolute = self._embodiment.revolute_joints[self._embodiment.arms[place]]
        target = cycle.wanted
        if target is None:
            retreat = cycle.retreat
            assert retreat is not None
            target = np.where(retreat.joints, retreat.pose, braked)
        rest = np.where(self._own[place], limiter.rest(cycle.speed, cycle.scale), limiter.position)
        rest[revolute] = limiter.rest_towards(target, revolute, cycle.scale)
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
