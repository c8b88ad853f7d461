"""Stages that check the target, and move it inside the limits that do not depend on motion."""

import numpy as np

from stringline.real_robot.safety.reasons import Reason
from stringline.real_robot.safety.stage_context import StatelessStage
from stringline.real_robot.safety.stage_cycle import Cycle, Vector

NOTICEABLE = 1e-3  # Smallest change of a target that is counted, rad or opening.


class FewBadChunks(StatelessStage):
    """Several rejected chunks in a row are a fault: their source cannot be trusted."""

    def act(self, cycle: Cycle) -> None:
        """Compares the number of rejected chunks with its limit."""
        if cycle.rejected >= self.limits.fault_after_rejects:
            cycle.fault(Reason.BAD_CHUNK, cycle.rejected)


class SupervisorAlive(StatelessStage):
    """The arms hold without a supervisor that could stop them."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the last heartbeat with its limit."""
        if not cycle.freshness.supervisor_age_s <= self.limits.oldest_heartbeat_s:
            cycle.hold(Reason.SUPERVISOR, cycle.freshness.supervisor_age_s)


class CamerasAlive(StatelessStage):
    """The arms hold while a camera delivers no new image: an obstacle would not be seen."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the oldest of the newest images with its limit."""
        limit = self.limits.oldest_image_s
        old = [age for age in cycle.freshness.image_ages_s if not age <= limit]
        if old:
            cycle.hold(Reason.CAMERA, max(old))


class ActionDue(StatelessStage):
    """The arms hold without an action, and when the last one was due too long ago."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the last action with its limit."""
        if cycle.held or cycle.faults:
            return
        in_time = cycle.freshness.action_age_s <= self.limits.oldest_action_s
        if cycle.target is None or not in_time:
            cycle.hold(Reason.STARVED)


class GoodTarget(StatelessStage):
    """A target is a finite vector with an entry for each joint."""

    def act(self, cycle: Cycle) -> None:
        """Checks shape and values."""
        target = cycle.wanted
        if target is not None and (
            target.shape != self.limits.lower.shape or not np.isfinite(target).all()
        ):
            cycle.hold(Reason.BAD_TARGET)


class FreshPlan(StatelessStage):
    """A plan that answers an old observation is not followed."""

    def act(self, cycle: Cycle) -> None:
        """Compares the age of the observation with its limit."""
        age_s = cycle.freshness.plan_age_s
        if cycle.wanted is not None and not age_s <= self.limits.oldest_plan_s:
            cycle.hold(Reason.OLD_PLAN, age_s)


class InJointLimits(StatelessStage):
    """A target beyond a joint limit is moved inside."""

    def act(self, cycle: Cycle) -> None:
        """Clips the target."""
        _clip(cycle, self.limits.lower, self.limits.upper, Reason.POSITION)


class NearTheArm(StatelessStage):
    """A target stays near the measured position: it does not run away from a blocked arm."""

    def act(self, cycle: Cycle) -> None:
        """Clips the target."""
        measured = cycle.state.position
        tracking = self.limits.tracking
        _clip(cycle, measured - tracking, measured + tracking, Reason.TRACKING)


def _clip(cycle: Cycle, lower: Vector, upper: Vector, reason: Reason) -> None:
    if cycle.wanted is None:
        return
    inside = np.clip(cycle.wanted, lower, upper)
    moved = float(np.abs(inside - cycle.wanted).max())
    if moved > NOTICEABLE:
        cycle.note(reason, moved)
    cycle.target = np.asarray(inside, dtype=np.float64)
