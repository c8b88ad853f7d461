"""A scripted expert that hands the bar over and lays it into the bin."""

from collections.abc import Sequence

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.iiwa14_mjcf import PAD_HALF
from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.experts.grasps import UP, Grasp
from stringline.sim.experts.hand_over import HandOverExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.experts.thing_grasps import SQUEEZE_M, opening
from stringline.sim.tasks.kuka_hand_over import KukaHandOver

X, Y, Z = np.eye(3)
ABOVE_FLOOR = 0.01  # The bar's underside, when it is let go.
SKEW_DEG = 6.0  # By which the bar may be turned against the bin.
PACES = (0.8, 2.1)  # Wider than others: the arms' limits already stretch the long moves of the faster episodes.


class KukaHandOverExpert(HandOverExpert[KukaHandOver]):
    """Either gripper takes one end of the bar, by two of its flats."""

    task_class = KukaHandOver
    right_along = (0.055, 0.075)
    left_along = (0.05, 0.075)
    above = 0.1
    closed = opening(0.028 - SQUEEZE_M)
    leans_deg = (-14.0, 0.0, 14.0)
    pitches_deg = (-20.0, -8.0, 4.0)
    sides_deg = (-30.0, 0.0, 30.0)
    meeting_height = 0.58
    release = opening(0.028 + 0.045)
    pad_ahead = PAD_HALF[2]
    pad_half_width = PAD_HALF[0]

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def axis(self, task: KukaHandOver, along: float) -> tuple[Vector, Vector]:
        """Returns a point of the bar's axis and its direction."""
        return along * X, X

    def normals(self, task: KukaHandOver) -> Sequence[Vector]:
        """Returns the normals of its four flats."""
        return [Y, Z, -Y, -Z]

    def thickness(self, task: KukaHandOver) -> float:
        """Returns half its width."""
        return task.bar.width / 2

    def goal(self, task: KukaHandOver, skills: Skills, receive: Grasp, upwards: Vector) -> Matrix:
        """Returns the bar along the bin, just above its floor, the left gripper above it."""
        T_base_bin = skills.scene.pose(task.bin)
        skew = np.radians(skills.rng.uniform(-SKEW_DEG, SKEW_DEG)) + skills.rng.choice((0.0, np.pi))
        spot = T_base_bin[:3, 3] + UP * (task.bin.thickness + task.bar.width / 2 + ABOVE_FLOOR)
        along = rotation_about(UP, skew) @ T_base_bin[:3, 0]
        down = receive.T_prop_gripper[:3, 0] - (receive.T_prop_gripper[:3, 0] @ X) * X  # Where the gripper points.
        down = down / np.linalg.norm(down)
        item = np.stack([X, down, np.cross(X, down)], axis=1)
        return pose(spot, np.stack([along, -UP, np.cross(along, -UP)], axis=1) @ item.T)
