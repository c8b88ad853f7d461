"""Stages that limit velocity and acceleration."""

import numpy as np

from stringline.real_robot.safety.stage_cycle import Cycle, StatelessStage

_SOFT_START_SHARE = 0.1


class SoftStart(StatelessStage):
    """After arming, the limits of motion grow from a tenth to their full values."""

    def act(self, cycle: Cycle) -> None:
        """Sets the share in force."""
        if cycle.elapsed_s < self.limits.soft_start_s:
            cycle.scale = (
                _SOFT_START_SHARE
                + (1 - _SOFT_START_SHARE) * cycle.elapsed_s / self.limits.soft_start_s
            )


class MotionLimits(StatelessStage):
    """Limits velocity and acceleration, with room to stop before every bound."""

    def act(self, cycle: Cycle) -> None:
        """Chooses the speed that follows the target best, or else brakes or retreats."""
        cycle.braking = cycle.speed = cycle.limiter.braking(cycle.scale)
        if cycle.wanted is not None:
            cycle.speed = cycle.limiter.propose(cycle.wanted, cycle.scale)
            return
        cycle.limiter.forget_target()
        if cycle.retreat is not None:
            back = cycle.limiter.settle(cycle.retreat.pose, cycle.scale)
            cycle.speed = np.where(cycle.retreat.joints, back, cycle.braking)
