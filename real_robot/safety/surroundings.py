"""Obstacles of the arms, and nearby poses that are clear of them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.collision_model import Hinges, cross
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_cycle import Cycle, StageContext

Vector = NDArray[np.float64]

_MARGIN_M = 1e-4  # Room beyond the required one for capsules that are pushed out.
_CORRECTIONS = 4  # Newton's method needs two or three, unless there is no way out.
_LARGEST_RAD = 0.2  # Largest change of a joint in a correction: slopes are local.
# Beyond this depth inside an obstacle capsules are pushed out less and less, at twice the depth not
# at all.
_DEEP_M = 0.1
# The cost of a change is the sum of the squared motion of the gripper and the squared rotations of
# the gripper and the joints (metres per radian), so that joints without effect stay. A joint at its
# limit has a very large cost.
_TURN_M = 0.1
_JOINT_M = 0.02
_STUCK = 1e6
# Directions that give less than this share of the room of the best one are damped: they would move
# an arm far away.
_DAMPING = 0.1
_FLAT = 1e-6  # Smallest squared slope, room per unit of cost, that is not rounding.


class Space(NamedTuple):
    """An obstacle.

    Attributes:
        reason: Reported when it acts.
        distance: Field of `Room` with the distances from it.
        clearance: Limit that they keep; empty: zero.
    """

    reason: Reason
    distance: str
    clearance: str = ""


SPACES: tuple[Space, ...] = (
    Space(Reason.TABLE, "heights", "table_clearance"),
    Space(Reason.BOX, "walls"),
    Space(Reason.OTHER_ARM, "between", "arm_clearance"),
    Space(Reason.SAME_ARM, "own", "self_clearance"),
    Space(Reason.OBSTACLE, "obstacles", "cell_clearance"),
)


class Surroundings:
    """S obstacles around C capsules of each of A arms with J joints in total."""

    def __init__(self, context: StageContext) -> None:
        self._embodiment = context.embodiment
        self._limits = context.limits
        self._clearance = context.clearance
        self._spaces = SPACES
        self._kept = np.array(
            [getattr(self._limits, space.clearance, 0.0) for space in SPACES], dtype=np.float64
        )[:, None, None]

    def spare(self, q: Vector) -> Vector:
        """Returns the clearance to spare (..., S, A, C) at poses (..., J), metres."""
        room = self._clearance.measure(q)
        distances = [getattr(room, space.distance) for space in self._spaces]
        return np.asarray(np.stack(distances, axis=-3) - self._kept)

    def note(self, cycle: Cycle, short: Vector) -> None:
        """Records the positive entries of the missing clearance (S, A, C), metres."""
        for space, lacking in zip(self._spaces, short, strict=True):
            if (lacking > 0).any():
                cycle.note(space.reason, float(lacking.max()))

    def pushed_out(
        self,
        q: Vector,
        arm: str,
        least: Vector,
        within: tuple[Vector, Vector] | None = None,
        *,
        corrections: int = _CORRECTIONS,
    ) -> Vector:
        """Returns a pose near `q` in which an arm has more clearance, if it lacks some.

        Damped Newton's method: each correction is the change with the smallest motion of the
        gripper that gives all capsules of the arm their missing clearance, to first order. Capsules
        deep inside an obstacle are left there.

        Args:
            q: (J,).
            arm: Name of the arm that moves.
            least: (S, C) clearance to spare that its capsules must have.
            within: (J,) smallest and (J,) largest pose; None: the joint limits.
            corrections: Largest number of corrections.

        Returns:
            (J,) within the bounds, continuous in `q` except where another way out becomes shorter.
        """
        place = self._embodiment.arms.index(arm)
        hinges = self._embodiment.hinges[arm]
        start = q
        lower, upper = within or (self._limits.lower, self._limits.upper)
        bounds = lower[hinges], upper[hinges]
        cost = np.zeros(0)
        share = 1.0
        for correction in range(corrections):
            spare = self.spare(q)[:, place]
            short = least - spare
            near = short > 0
            if not near.any():
                break
            if correction == 0:
                share = float(np.clip(2.0 - short.max() / _DEEP_M, 0.0, 1.0))
            if share == 0.0:
                break
            slopes = self._clearance.slopes(place)
            if correction == 0:
                cost = _cost(slopes.hinges)
            names = [(self._spaces[space].distance, int(i)) for space, i in np.argwhere(near)]
            lacking = short[near] + _MARGIN_M * (least[near] == 0)
            corrected = _corrected(q[hinges], bounds, slopes.of(names), lacking, cost)
            if np.array_equal(corrected, q[hinges]):
                break  # As with the base of the arm inside the other arm.
            q = q.copy()
            q[hinges] = corrected
        return np.asarray(start + share * (q - start))


def _cost(hinges: Hinges) -> Vector:
    """Returns the cost (H, H) of joint changes of an arm, m^2/rad^2."""
    axes, offsets, T_base_gripper = hinges
    moved = np.concatenate(
        [
            cross(axes, T_base_gripper[:3, 3]) + offsets,
            _TURN_M * cross(axes, T_base_gripper[:3, 0]),
            _TURN_M * cross(axes, T_base_gripper[:3, 1]),
        ],
        axis=-1,
    )
    return np.asarray(moved @ moved.T + _JOINT_M**2 * np.eye(len(moved)))


def _corrected(
    hinges: Vector, bounds: tuple[Vector, Vector], slopes: Vector, lacking: Vector, cost: Vector
) -> Vector:
    lower, upper = bounds
    change = _least_change(slopes, lacking, cost)
    stuck = (change > 0) & (hinges >= upper) | (change < 0) & (hinges <= lower)
    if stuck.any():
        change = _least_change(
            np.where(stuck, 0.0, slopes), lacking, cost + np.diag(stuck * _STUCK)
        )
    change = change * min(1.0, _LARGEST_RAD / max(float(np.abs(change).max()), _LARGEST_RAD))
    return np.clip(hinges + change, lower, upper)


def _least_change(slopes: Vector, lacking: Vector, cost: Vector) -> Vector:
    """Returns the cheapest change (H,) that gives at least `lacking` (N,) at slopes (N, H), damped.

    Capsules that the others give more than they lack are left out, so that none is drawn closer.
    """
    cheap = np.linalg.solve(cost, slopes.T)
    squares = slopes @ cheap
    squares += np.eye(len(squares)) * max(_DAMPING**2 * float(np.diag(squares).max()), _FLAT)
    needed = np.ones(len(lacking), dtype=bool)
    while True:
        weights = np.linalg.solve(squares[np.ix_(needed, needed)], lacking[needed])
        if (weights >= 0).all():
            return np.asarray(cheap[:, needed] @ weights)
        needed[np.flatnonzero(needed)[weights < 0]] = False
