"""What arms keep off, and poses near by in which they do."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.clearance import Clearance, Room
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_cycle import Cycle, Setting

Vector = NDArray[np.float64]

_MARGIN_M = 1e-4  # What is pushed out gets so much more room than it has to have.
_NUDGE_RAD = 1e-4
_CORRECTIONS = 8
_LARGEST_RAD = 0.2  # Of a hinge in a correction: farther away the slopes are others.
# What is deeper inside of something than that is pushed out less and less, and twice as deep not at
# all.
_DEEP_M = 0.1
# A change costs the squares of how far the gripper moves, and of how far it and hinges turn (in
# metres for a radian), so that hinges which are not needed stay; and very much where a hinge is at
# its limit.
_TURN_M = 0.1
_HINGE_M = 0.02
_STUCK = 1e6
# Directions that give so little room, as a share of the best one, are hardly taken: they would take
# an arm far away.
_DAMPING = 0.1
_FLAT = 1e-6  # Room for a cost of 1, squared: from less than that no slope is read, it is rounding.


class Space(NamedTuple):
    """Something that arms keep off.

    Attributes:
        reason: What is said when it acts.
        spare: From clearances, how much nearer (..., A, C) each capsule may come, metres.
    """

    reason: Reason
    spare: Callable[[Room, SafetyLimits], Vector]


TABLE = Space(Reason.TABLE, lambda room, limits: room.heights - limits.table_clearance)
WALLS = Space(Reason.BOX, lambda room, limits: room.walls)
OTHER_ARM = Space(Reason.OTHER_ARM, lambda room, limits: room.between - limits.arm_clearance)
SPACES: tuple[Space, ...] = (TABLE, WALLS, OTHER_ARM)


class Surroundings:
    """S spaces around C capsules of each of A arms with J joints in all."""

    def __init__(self, setting: Setting) -> None:
        self._embodiment = setting.embodiment
        self._limits = setting.limits
        limits = setting.limits
        self._clearance = Clearance(
            self._embodiment, limits.table_height, limits.box, exact_up_to=limits.arm_clearance
        )
        self._spaces = SPACES

    def spare(self, q: Vector) -> Vector:
        """Returns how much nearer (..., S, A, C) each capsule may come at poses (..., J), metres."""
        room = self._clearance.measure(q)
        return np.stack([space.spare(room, self._limits) for space in self._spaces], axis=-3)

    def note(self, cycle: Cycle, short: Vector) -> None:
        """Says in which spaces how much is short (S, A, C), metres; what is not above 0 is not."""
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
        """Returns a pose in which an arm is too near to something, with its hinges moved so that it is not, or less so.

        Newton's method, damped: the change that moves the gripper least and gives every capsule of
        the arm that is too near what it lacks, to first order; again while something lacks. What is
        deep inside of something is left there.

        Args:
            q: (J,).
            arm: Which.
            least: (S, C) of what its capsules may have to spare.
            within: (J,) smallest and (J,) largest; None: the joint limits.
            corrections: At most so many.

        Returns:
            (J,) within those. As `q` moves, it moves without jumps, unless another way out becomes
            the shorter one.
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
        """Returns what changes of the hinges of an arm cost, (H, H) in m^2/rad^2, from poses (1 + H, J)."""
        T_base_gripper = self._embodiment.forward_kinematics(nudged)[arm]
        points = np.concatenate(
            [T_base_gripper[:, :3, 3:], _TURN_M * T_base_gripper[:, :3, :2]], axis=-1
        )
        moved = (points[1:] - points[0]).reshape(len(nudged) - 1, -1) / _NUDGE_RAD
        return np.asarray(moved @ moved.T + _HINGE_M**2 * np.eye(len(moved)))


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
    """Returns the change (H,) that gives at least what lacks (N,) at slopes (N, H) and costs least, damped.

    What gets more than it lacks by what the others get is left out, so that nothing is drawn
    nearer.
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
