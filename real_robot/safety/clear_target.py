"""The stage that moves targets without clearance to nearby poses that have it."""

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.measured import Measured
from stringline.real_robot.safety.projection import nearest_change
from stringline.real_robot.safety.stage_context import StageContext, StatelessStage
from stringline.real_robot.safety.stage_cycle import Cycle

Vector = NDArray[np.float64]

_TARGET_ROUNDING_M = 1e-6  # Upper bound of the effect of targets in float32.
_LARGEST_RAD = 0.2  # Largest change of a hinge in a cycle: slopes are local.
_NEAR_M = 0.1  # Distances with more room to spare need no slope: a change is not larger.
# A target that has jumped by more than a step, and is not deeper in an obstacle, is where the
# search begins anew.
_DEEP_M = 0.1
# Room beyond the required one: more than detours are wrong by, which come near to the target.
_MARGIN_M = 4e-4
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
        self._hinges = self._surroundings.hinges
        self._arm_of_hinge = self._surroundings.arm_of_hinge
        self._first = np.searchsorted(self._arm_of_hinge, self._arms)
        self._bounds = self.limits.lower[self._hinges], self.limits.upper[self._hinges]
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
        before = here[self._hinges] if self._before is None else self._before
        measured = self._measured(here, target, before)
        spare = self._surroundings.spare(measured)
        now = spare[0]
        least = np.minimum(now - _TARGET_ROUNDING_M * (now < 0), 0.0)
        # (A, S, C): each arm at its target.
        short = least.swapaxes(0, 1) - spare[1 + self._arms, :, self._arms]
        depth = short.max(axis=(1, 2))
        blocked = depth > 0
        hinges = target[self._hinges]
        if blocked.any():
            short[~blocked] = 0.0
            self._surroundings.note(cycle, short.swapaxes(0, 1))
            jump = np.abs(hinges - (before if self._asked is None else self._asked))
            far = np.maximum.reduceat(jump, self._first) > _LARGEST_RAD
            anew = far & (depth < _DEEP_M)
            hinges = self._moved(
                measured, spare, least, blocked, anew, before=before, target=hinges
            )
            cycle.target = target.copy()
            cycle.target[self._hinges] = hinges
        self._before = hinges
        self._asked = target[self._hinges]

    def _measured(self, here: Vector, target: Vector, before: Vector) -> Measured:
        """Measures the arms here, and each one at its target and at its last clear pose (H,)."""
        start = target.copy()
        start[self._hinges] = before
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
        """Returns the hinges (H,) at the clear pose of blocked arms (A,), and at other targets.

        The step of arms in `anew` (A,) begins at their targets.
        """
        count = len(blocked)
        poses = 1 + self._arms + count * ~anew
        asked = np.zeros(1 + 2 * count, dtype=np.bool_)
        asked[poses[blocked]] = True
        gaps = self._surroundings.gaps(measured, spare, asked, _NEAR_M)
        own = ((gaps.near.poses - 1) % count)[:, None] == self._arm_of_hinge
        start = np.where(anew[self._arm_of_hinge], target, before)
        lower, upper = self._bounds
        change = nearest_change(
            self._surroundings.cost(measured, poses[self._arm_of_hinge]),
            target - start,
            self._surroundings.slopes(measured, gaps) * own,
            self._surroundings.lacking(gaps, least, _MARGIN_M),
            (np.maximum(lower - start, -_LARGEST_RAD), np.minimum(upper - start, _LARGEST_RAD)),
        )
        if np.abs(change).max() < _SAME_RAD:
            change[:] = 0.0
        return np.where(blocked[self._arm_of_hinge], start + change, target)
