"""Hand the banana over from the right arm to the left one, which puts it into the bowl.

Start ranges are those of aloha_sim's HandOverBanana; there the hand-over itself is optional, here it is required.
"""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.props.banana import Banana
from stringline.sim.props.bowl import Bowl
from stringline.sim.tasks.hand_over_task import HandOverTask
from stringline.sim.tasks.judgement import in_frame, upright

BANANA_X, BANANA_Y = (0.12, 0.18), (-0.1, 0.1)
BANANA_YAW_DEG = (-108.0, -72.0)
BOWL_X, BOWL_Y = (-0.18, -0.12), (-0.1, 0.1)


class HandOverBanana(HandOverTask):
    """The banana goes from the right gripper to the left one and into the bowl: the whole of its axis, below the rim."""

    name: ClassVar[str] = "hand_over_banana"
    instruction: ClassVar[str] = "hand over the banana and put it into the bowl"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_bowl", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.banana, self.bowl = Banana(), Bowl()
        super().__init__(control_hz, self.banana, self.bowl)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where banana and bowl are."""
        yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*BANANA_YAW_DEG)))
        spot = (random_state.uniform(*BANANA_X), random_state.uniform(*BANANA_Y), self.banana.radius)
        self.place(physics, self.banana, pose(spot, yaw))
        self.place(physics, self.bowl, pose((random_state.uniform(*BOWL_X), random_state.uniform(*BOWL_Y), 0.0)))

    def inside(self, T_base_banana: Matrix, T_base_bowl: Matrix) -> bool:
        """Says whether the banana's whole axis is within the upright bowl's rim and between its floor and its rim's height."""
        points = in_frame(T_base_bowl, T_base_banana, self.banana.points)
        within = np.hypot(points[:, 0], points[:, 1]) < self.bowl.rim_radius
        between = (points[:, 2] > 0) & (points[:, 2] < self.bowl.height)
        return bool(upright(T_base_bowl) and within.all() and between.all())

    def lowest(self, T_base_banana: Matrix) -> float:
        """Returns the height of the banana's lowest point, metres."""
        heights = self.banana.points @ T_base_banana[2, :3] + T_base_banana[2, 3]
        return float(heights.min()) - self.banana.radius
