"""The expert that stands the block upright: it takes it leaning towards the end that goes down, and rocks it by 90 degrees.

A gripper that leans by t from straight down towards one end of the lying block points t below the horizontal when that end is
down: with t between 20 and 45 degrees it keeps off the table before, and off the base after.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from stringline.sim.experts.fitting import tip_depth
from stringline.sim.experts.grasps import UP, Grasp, both_ways, gripper_pose
from stringline.sim.experts.recess import RecessExpert
from stringline.sim.tasks.fmb_2 import Fmb2

CLOSED = 0.2  # There the drive pushes with some 25 N against the 37 mm between the pads.
LEANS_DEG = (-45.0, -37.0, -28.0, -20.0, 20.0, 28.0, 37.0, 45.0)
ALONG = (0.010, 0.018)  # Metres from the block's middle, towards the end that goes up.
SHORT = 0.015  # How far the tips reach below the block's middle: they stay 3.5 mm off the table.


class Fmb2Expert(RecessExpert[Fmb2]):
    """Turns and inserts the block in closed loop."""

    task_class = Fmb2
    lift = 0.13

    def grasps(self, task: Fmb2) -> Sequence[Grasp]:
        """Returns ways to take the block across, leaning towards either end."""
        return both_ways(_grasp(np.radians(lean), along) for lean, along in product(LEANS_DEG, ALONG))


def _grasp(lean: float, along: float) -> Grasp:
    forwards = np.array([np.sin(lean), 0.0, -np.cos(lean)])
    T = gripper_pose((0.0, 0.0, 0.0), forwards, np.cross(UP, (1.0, 0.0, 0.0)))
    T[:3, 3] = (-np.sign(lean) * along, 0.0, tip_depth(T) - SHORT)
    return Grasp(T, CLOSED)
