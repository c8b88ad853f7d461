"""Stages that judge what is asked for, and move it inside the limits that do not depend on motion."""

import numpy as np

from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_cycle import Cycle, SettledStage

NOTICEABLE = 1e-3  # rad or opening by which a target must be changed to be counted.


class FewBadChunks(SettledStage):
    """Somebody who sends one bad chunk after the other is not to be trusted: a fault."""

    def act(self, cycle: Cycle) -> None:
        """Looks at how many there were in a row."""
        if cycle.rejected >= self.limits.fault_after_rejects:
            cycle.fault(Reason.BAD_CHUNK, cycle.rejected)


class SupervisorAlive(SettledStage):
    """Nothing moves unless whoever is in charge is there to stop it."""

    def act(self, cycle: Cycle) -> None:
        """Looks at the last heartbeat."""
        if cycle.signs.supervisor_age_s > self.limits.oldest_heartbeat_s:
            cycle.hold(Reason.SUPERVISOR, cycle.signs.supervisor_age_s)


class CamerasAlive(SettledStage):
    """Nothing moves while one of the cameras shows nothing new: what comes in its way would not be seen."""

    def act(self, cycle: Cycle) -> None:
        """Looks at the oldest of their newest images."""
        oldest = max(cycle.signs.image_ages_s, default=0.0)
        if oldest > self.limits.oldest_image_s:
            cycle.hold(Reason.CAMERA, oldest)


class ActionDue(SettledStage):
    """Without an action, or with one that was due long ago, the arms hold."""

    def act(self, cycle: Cycle) -> None:
        """Looks for an action."""
        if cycle.held or cycle.faults:
            return
        if cycle.target is None or cycle.signs.action_age_s > self.limits.oldest_action_s:
            cycle.hold(Reason.STARVED)


class GoodTarget(SettledStage):
    """A target is a finite vector with an entry for each joint."""

    def act(self, cycle: Cycle) -> None:
        """Looks at shape and values."""
        target = cycle.wanted
        if target is not None and (
            target.shape != self.limits.lower.shape or not np.isfinite(target).all()
        ):
            cycle.hold(Reason.BAD_TARGET)


class FreshPlan(SettledStage):
    """A plan that answers an observation of long ago is not followed."""

    def act(self, cycle: Cycle) -> None:
        """Looks at how old the observation is."""
        age_s = cycle.signs.plan_age_s
        if cycle.wanted is not None and age_s > self.limits.oldest_plan_s:
            cycle.hold(Reason.OLD_PLAN, age_s)


class InJointLimits(SettledStage):
    """A target beyond a joint limit is moved inside."""

    def act(self, cycle: Cycle) -> None:
        """Clips."""
        if cycle.wanted is not None:
            _move(
                cycle, np.clip(cycle.wanted, self.limits.lower, self.limits.upper), Reason.POSITION
            )


class NearTheArm(SettledStage):
    """A target does not run away from an arm that is stuck."""

    def act(self, cycle: Cycle) -> None:
        """Clips."""
        if cycle.wanted is not None:
            measured = cycle.state.position
            tracking = self.limits.tracking
            _move(
                cycle,
                np.clip(cycle.wanted, measured - tracking, measured + tracking),
                Reason.TRACKING,
            )


def _move(cycle: Cycle, inside: np.ndarray, reason: Reason) -> None:
    assert cycle.target is not None
    moved = float(np.abs(inside - cycle.target).max())
    if moved > NOTICEABLE:
        cycle.note(reason, moved)
    cycle.target = np.asarray(inside, dtype=np.float64)
