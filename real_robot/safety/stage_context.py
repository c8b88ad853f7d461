"""What a stage of the safety filter is, and what the stages share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.safety.braking_paths import BrakingPaths
from stringline.real_robot.safety.clearance import Clearance
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.link_points import LinkPoints
from stringline.real_robot.safety.point_speeds import PointSpeeds
from stringline.real_robot.safety.stage_cycle import Cycle
from stringline.real_robot.safety.surroundings import Surroundings


@dataclass(frozen=True, eq=False)
class StageContext:
    """The arguments of all stages; `period_s` is the time between two commands."""

    embodiment: Embodiment
    limits: SafetyLimits
    period_s: float

    @cached_property
    def arm_of_joint(self) -> NDArray[np.int64]:
        """(J,) number of the arm of each joint."""
        arms = self.embodiment.arms
        return np.array([arms.index(joint.arm) for joint in self.embodiment.joints])

    @cached_property
    def clearance(self) -> Clearance:
        """Distances of the arms from each other and from their surroundings."""
        return Clearance.of(self.embodiment, self.limits)

    @cached_property
    def link_points(self) -> list[LinkPoints]:
        """The points of each arm whose speed is limited."""
        return self.clearance.link_points

    @cached_property
    def point_speeds(self) -> PointSpeeds:
        """The lengths that these points travel."""
        fastest = self.limits.cartesian_speed or np.inf
        return PointSpeeds(self.link_points, fastest * self.period_s)

    @cached_property
    def surroundings(self) -> Surroundings:
        """The obstacles of the arms."""
        return Surroundings(
            self.embodiment, self.limits, self.clearance, self.link_points, self.arm_of_joint
        )

    @cached_property
    def braking_paths(self) -> BrakingPaths:
        """The measured paths of the cycle."""
        return BrakingPaths(self.surroundings)


class Stage(Protocol):
    """One safety rule."""

    def __init__(self, context: StageContext) -> None: ...

    def start(self) -> None:
        """Resets the state of the stage at the beginning of an episode."""
        ...

    def act(self, cycle: Cycle) -> None:
        """Applies the rule."""
        ...


class StatelessStage:
    """A stage without state between cycles."""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.limits = context.limits
        self.period_s = context.period_s

    def start(self) -> None:
        """Has no state to reset."""
