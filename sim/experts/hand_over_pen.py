"""A scripted expert that hands the pen over and stands it in the holder."""

from collections.abc import Sequence

import numpy as np

from stringline.datasets.embodiments.aloha import ROOTS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.experts.grasps import UP, Grasp
from stringline.sim.experts.hand_over import HandOverExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.tasks.hand_over_pen import HandOverPen

ABOVE_FLOOR = 0.006  # The pen's lower end, when it is let go.


class HandOverPenExpert(HandOverExpert[HandOverPen]):
    """Both grippers take the pen close to its middle, by its flats."""

    task_class = HandOverPen
    right_along = (0.022, 0.034)
    left_along = (0.032, 0.046)
    above = 0.14
    closed = 0.0
    leans_deg = (-14.0, 0.0, 14.0)
    pitches_deg = (-30.0, -15.0, 0.0)
    sides_deg = (-60.0, 0.0, 60.0)

    def axis(self, task: HandOverPen, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the pen's axis and its direction."""
        return np.array([0.0, along, 0.0]), np.array([0.0, 1.0, 0.0])

    def normals(self, task: HandOverPen) -> Sequence[Vector]:
        """Returns the normals of its six flats."""
        return [rotation_about((0.0, 1.0, 0.0), angle) @ UP for angle in np.arange(6) * np.pi / 3]

    def thickness(self, task: HandOverPen) -> float:
        """Returns half its width across the flats."""
        return task.pen.radius

    def goal(self, task: HandOverPen, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns the pen upright in the middle of the holder, turned so that the left gripper points away from its arm."""
        spot = skills.scene.pose(task.holder)[:3, 3] + UP * (task.holder.thickness + task.pen.length / 2 + ABOVE_FLOOR)
        away = spot[:2] - ROOTS["left"][:2, 3]
        yaw = np.arctan2(away[1], away[0]) + skills.rng.uniform(-0.6, 0.6)
        ahead = receive.T_prop_gripper[:3, 0] - (receive.T_prop_gripper[:3, 0] @ upwards) * upwards
        ahead = ahead / np.linalg.norm(ahead)
        heading = np.array([np.cos(yaw), np.sin(yaw), 0.0])
        item = np.stack([ahead, np.cross(upwards, ahead), upwards], axis=1)
        return pose(spot, np.stack([heading, np.cross(UP, heading), UP], axis=1) @ item.T)
