"""Stages that limit motion: how fast, and how suddenly."""

import numpy as np

from stringline.real_robot.safety.stage_cycle import Cycle, SettledStage

_SOFT_START_SHARE = 0.1


class SoftStart(SettledStage):
    """After arming, limits of motion grow from a tenth to all."""

    def act(self, cycle: Cycle) -> None:
        """Sets the share in force."""
        if cycle.elapsed_s < self.limits.soft_start_s:
            cycle.scale = (
                _SOFT_START_SHARE
                + (1 - _SOFT_START_SHARE) * cycle.elapsed_s / self.limits.soft_start_s
            )


class MotionLimits(SettledStage):
    """Velocity and acceleration are limited against the last command that was sent, with room to stop before every bound."""

    def act(self, cycle: Cycle) -> None:
        """Chooses the speed that follows the target best; without one it brakes, or goes back where it has to."""
        cycle.braking = cycle.speed = cycle.limiter.braking(cycle.scale)
        if cycle.wanted is not None:
            cycle.speed = cycle.limiter.propose(cycle.wanted, cycle.scale)
            return
        cycle.limiter.forget_target()
        if cycle.retreat is not None:
            back = cycle.limiter.settle(cycle.retreat.pose, cycle.scale)
            cycle.speed = np.where(cycle.retreat.joints, back, cycle.braking)
