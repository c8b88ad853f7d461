"""Poses in which a gripper releases objects over a container."""

from dataclasses import dataclass

import numpy as np

from stringline.datasets.embodiments.aloha import FINGER_CLOSED, FINGER_OPEN
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.tasks.gathering_tasks import Solid

# Difference between an object's width and the commanded gap: the drive pushes with 20 N.
SQUEEZE_M = 0.02
GAP_M = 2 * (FINGER_OPEN - FINGER_CLOSED)


@dataclass(frozen=True)
class Drop:
    """A place to release an object.

    Attributes:
        spot: (2,), position of the object's origin in the base frame, metres.
        rotation: (3, 3), rotation of the gripper in the base frame.
        bottom: Height of the object's lowest point above the table, metres.
        opening: Opening that releases the object.
    """

    spot: Vector
    rotation: Matrix
    bottom: float
    opening: float = 1.0

    def gripper(self, item: Solid, T_gripper_item: Matrix, bottom: float) -> Matrix:
        """Returns the gripper's pose (4, 4) with the object, at `T_gripper_item`, over the spot.

        `bottom` is the height of the object's lowest point in the base frame, metres.
        """
        upwards = self.rotation[2] @ T_gripper_item[:3, :3]  # The base's z in the object's frame.
        depth = float((item.points @ upwards - item.radii).min())
        origin = np.array([*self.spot, bottom - depth])
        return pose(origin - self.rotation @ T_gripper_item[:3, 3], self.rotation)


def closed_on(thickness: float) -> float:
    """Returns the commanded opening that holds an object of a thickness in metres."""
    return max(0.0, (thickness - SQUEEZE_M) / GAP_M)
