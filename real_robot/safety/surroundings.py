"""Obstacles of the arms, and nearby poses that are clear of them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.clearance import Clearance, Room
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_cycle import Cycle, StageContext

Vector = NDArray[np.float64]

_MARGIN_M = 1e-4  # Room beyond the required one for capsules that are pushed out.
_NUDGE_RAD = 1e-4
_CORRECTIONS = 8
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
        spare: Computes the clearance to spare (..., A, C) of each capsule, metres.
    """

    reason: Reason
    spare: Callable[[Room, SafetyLimits], Vector]


TABLE = Space(Reason.TABLE, lambda room, limits: room.heights - limits.table_clearance)
WALLS = Space(Reason.BOX, lambda room, limits: room.walls)
OTHER_ARM = Space(Reason.OTHER_ARM, lambda room, limits: room.between - limits.arm_clearance)
SPACES: tuple[Space, ...] = (TABLE, WALLS, OTHER_ARM)


class Surroundings:
    """S obstacles around C capsules of each of A arms with J joints in total."""

    def __init__(self, context: StageContext) -> None:
        self._embodiment = context.embodiment
        self._limits = context.limits
        limits = context.limits
        self._clearance = Clearance(
            self._embodiment, limits.table_height, limits.box, exact_up_to=limits.arm_clearance
        )
        self._spaces = SPACES

    def spare(self, q: Vector) -> Vector:
        """Returns the clearance to spare (..., S, A, C) at poses (..., J), metres."""
        room = self._clearance.measure(q)
        return np.stack([space.spare(room, self._limits) for space in self._spaces], axis=-3)

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
        nudges = _NUDGE_RAD * np.concatenate([np.zeros((1, len(q))), np.eye(len(q))[hinges]])
        cost = np.zeros(0)
        share = 1.0
        for correction in range(corrections):
            spare = self.spare(q + nudges)[:, :, place]
            short = least - spare[0]
            near = short > 0
            if not near.any():
                break
            if correction == 0:
                share = float(np.clip(2.0 - short.max() / _DEEP_M, 0.0, 1.0))
                cost = self._cost(q + nudges, arm)
            if share == 0.0:
                break
            slopes = (spare[1:, near] - spare[0, near]).T / _NUDGE_RAD
            lacking = short[near] + _MARGIN_M * (least[near] == 0)
            q = q.copy()
            q[hinges] = _corrected(q[hinges], bounds, slopes, lacking, cost)
        return np.asarray(start + share * (q - start))

    def _cost(self, nudged: Vector, arm: str) -> Vector:
        """Returns the cost (H, H) of joint changes of an arm, m^2/rad^2, from poses (1 + H, J)."""
        T_base_gripper = self._embodiment.forward_kinematics(nudged)[arm]
        points = np.concatenate(
            [T_base_gripper[:, :3, 3:], _TURN_M * T_base_gripper[:, :3, :2]], axis=-1
        )
        moved = (points[1:] - points[0]).reshape(len(nudged) - 1, -1) / _NUDGE_RAD
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
