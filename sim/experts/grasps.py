"""Where a gripper takes a thing: poses of the gripper in the frame of the thing."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.transforms import Matrix, pose

FORWARDS = np.array([1.0, 0.0, 0.0])
UP = np.array([0.0, 0.0, 1.0])
OPEN = 1.0


@dataclass(frozen=True)
class Grasp:
    """One way to take a thing.

    Attributes:
        T_prop_gripper: (4, 4), the gripper in the frame of the thing when its pads close.
        closed: The opening that is commanded to hold it, 0 to 1: below what it is thick, so that
            the drive pushes.
        opening: The opening with which the gripper comes.
        hover: How far back along where it points the gripper waits first, metres.
    """

    T_prop_gripper: Matrix
    closed: float
    opening: float = OPEN
    hover: float = 0.09


def gripper_pose(position: ArrayLike, forwards: ArrayLike, across: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) of a gripper.

    Args:
        position: (3,), of the middle between the pads.
        forwards: (3,), where the gripper points (its x axis); any length.
        across: (3,), roughly the direction in which the pads close (its y axis, or minus that).
    """
    x = np.asarray(forwards, dtype=np.float64) / np.linalg.norm(forwards)
    y = np.asarray(across, dtype=np.float64)
    y = y - (y @ x) * x
    y = y / np.linalg.norm(y)
    return pose(np.asarray(position, dtype=np.float64), np.stack([x, y, np.cross(x, y)], axis=1))


def backed(T_base_gripper: Matrix, distance: float) -> Matrix:
    """Returns the pose moved backwards along where the gripper points, by metres."""
    return T_base_gripper @ pose((-distance, 0.0, 0.0))


def raised(T_base_gripper: Matrix, height: float) -> Matrix:
    """Returns the pose moved up by metres."""
    result = T_base_gripper.copy()
    result[2, 3] += height
    return result


def both_ways(grasps: Iterable[Grasp]) -> list[Grasp]:
    """Returns each grasp and the same with the gripper turned by half a turn about where it points."""
    turned = np.diag([1.0, -1.0, -1.0, 1.0])
    return [
        Grasp(T, grasp.closed, grasp.opening, grasp.hover)
        for grasp in grasps
        for T in (grasp.T_prop_gripper, grasp.T_prop_gripper @ turned)
    ]
