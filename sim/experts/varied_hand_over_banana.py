"""The scripted expert for the hand-over of the banana that varies and recovers.

`HandOverBananaExpert` does the same in one way, always at the same pace.
"""

from collections.abc import Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.experts.grasps import UP, Grasp
from stringline.sim.experts.hand_over import HandOverExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.tasks.hand_over_banana import HandOverBanana

ABOVE_FLOOR = 0.008  # The banana's underside, when it is let go.


class VariedHandOverBananaExpert(HandOverExpert[HandOverBanana]):
    """Either gripper takes one third of the banana, across its bend; the left one lays it low into the bowl."""

    task_class = HandOverBanana
    right_along = (0.034, 0.05)
    left_along = (0.034, 0.05)
    above = 0.1
    closed = 0.2
    leans_deg = (-25.0, 0.0, 25.0)
    pitches_deg = (-25.0, -10.0, 5.0)
    sides_deg = (0.0,)

    def axis(self, task: HandOverBanana, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the banana's axis and its direction."""
        return task.banana.axis_point(np.array(along)), task.banana.axis_direction(along)

    def normals(self, task: HandOverBanana) -> Sequence[Vector]:
        """Returns both directions across its bend: it lies flat."""
        return [UP, -UP]

    def thickness(self, task: HandOverBanana) -> float:
        """Returns its radius."""
        return task.banana.radius

    def goal(self, task: HandOverBanana, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns the banana flat just above the middle of the bowl, the left gripper above it, turned by any angle."""
        bowl, banana = task.bowl, task.banana
        spot = skills.scene.pose(bowl)[:3, 3] + UP * (bowl.thickness + banana.radius + ABOVE_FLOOR)
        turn = rotation_about(UP, skills.rng.uniform(-np.pi, np.pi))
        if receive.T_prop_gripper[2, 0] > 0:  # It comes from the side that has to be below.
            turn = turn @ np.diag([1.0, -1.0, -1.0])
        centre = banana.points[:, :2].mean(axis=0)
        return pose(spot - turn @ np.array([*centre, 0.0]), turn)
