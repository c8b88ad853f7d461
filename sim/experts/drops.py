"""How things are taken from above, and where they are let go."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.aloha import FINGER_CLOSED, FINGER_OPEN
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.experts.grasps import UP, gripper_pose
from stringline.sim.tasks.gathering_tasks import Solid

GRIP_M = 0.02  # The drive is commanded that much closer than a thing is thick: it pushes with 20 N.
GAP_M = 2 * (FINGER_OPEN - FINGER_CLOSED)


@dataclass(frozen=True)
class Drop:
    """Where a thing is let go.

    Attributes:
        spot: (2,), where the thing's origin is then in the base frame, metres.
        rotation: (3, 3), of the gripper in the base frame.
        bottom: How far above the table the thing's lowest point is then, metres.
        opening: That lets it go.
    """

    spot: Vector
    rotation: Matrix
    bottom: float
    opening: float = 1.0

    def gripper(self, thing: Solid, T_gripper_thing: Matrix, bottom: float) -> Matrix:
        """Returns the gripper's pose (4, 4) when the thing is at the spot or above it.

        Args:
            thing: What is held.
            T_gripper_thing: (4, 4), how it is held.
            bottom: Height of its lowest point in the base frame, metres.
        """
        upwards = (
            self.rotation[2] @ T_gripper_thing[:3, :3]
        )  # The base's z axis in the thing's frame.
        depth = float((thing.points @ upwards - thing.radii).min())
        origin = np.array([*self.spot, bottom - depth])
        return pose(origin - self.rotation @ T_gripper_thing[:3, 3], self.rotation)


def closed_on(thickness: float) -> float:
    """Returns the opening that is commanded to hold a thing of that thickness, metres."""
    return max(0.0, (thickness - GRIP_M) / GAP_M)


def downwards(position: ArrayLike, across: ArrayLike, lean_deg: float) -> Matrix:
    """Returns the pose (4, 4) of a gripper that points down.

    Args:
        position: (3,), between the pads, metres.
        across: (3,), level: the direction in which the pads close.
        lean_deg: By how much it points forwards instead, at right angles to `across`.
    """
    level = np.cross(UP, np.asarray(across) / np.linalg.norm(across))
    lean = np.radians(lean_deg)
    return gripper_pose(position, np.sin(lean) * level - np.cos(lean) * UP, across)
