"""The expert that inserts the lying block: it takes it from above, leaning along it by up to 25 degrees."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from stringline.sim.experts.fitting import tip_depth
from stringline.sim.experts.grasps import UP, Grasp, both_ways, gripper_pose
from stringline.sim.experts.recess import RecessExpert
from stringline.sim.tasks.fmb_1 import Fmb1

CLOSED = 0.2  # There the drive pushes with some 25 N against the 37 mm between the pads.
LEANS_DEG = (-25.0, -12.0, 0.0, 12.0, 25.0)
ALONG = (-0.04, 0.0, 0.04)  # Metres from the block's middle.
SHORT = 0.005  # How far the tips reach below the block's middle: when it is seated, they are 3.5 mm off the base.


class Fmb1Expert(RecessExpert[Fmb1]):
    """Inserts the block in closed loop."""

    task_class = Fmb1
    lift = 0.08

    def grasps(self, task: Fmb1) -> Sequence[Grasp]:
        """Returns ways to take the block across, from above."""
        return both_ways(_grasp(np.radians(lean), along) for lean, along in product(LEANS_DEG, ALONG))


def _grasp(lean: float, along: float) -> Grasp:
    forwards = np.array([np.sin(lean), 0.0, -np.cos(lean)])
    T = gripper_pose((0.0, 0.0, 0.0), forwards, np.cross(UP, (1.0, 0.0, 0.0)))
    T[:3, 3] = (along, 0.0, tip_depth(T) - SHORT)
    return Grasp(T, CLOSED)
