"""Grasps: poses of the gripper in the frame of the object that it takes."""

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
    """One way to take an object.

    Attributes:
        T_prop_gripper: (4, 4), the gripper in the object's frame when its pads close.
        closed: Commanded opening of the closed gripper, 0 to 1: less than the object's width, so
            that the drive pushes.
        opening: Opening of the approaching gripper.
        hover: Distance of the pre-grasp pose, backwards along the gripper's x axis, metres.
    """

    T_prop_gripper: Matrix
    closed: float
    opening: float = OPEN
    hover: float = 0.09


def gripper_pose(position: ArrayLike, forwards: ArrayLike, across: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) of a gripper.

    Args:
        position: (3,), middle between the pads, metres.
        forwards: (3,), direction in which the gripper points (its x axis), of any length.
        across: (3,), approximate direction in which the pads close (its y axis or the opposite).
    """
    x = np.asarray(forwards, dtype=np.float64) / np.linalg.norm(forwards)
    y = np.asarray(across, dtype=np.float64)
    y = y - (y @ x) * x
    y = y / np.linalg.norm(y)
    return pose(np.asarray(position, dtype=np.float64), np.stack([x, y, np.cross(x, y)], axis=1))


def downwards(position: ArrayLike, across: ArrayLike, lean_deg: float) -> Matrix:
    """Returns the pose (4, 4) of a gripper that points down, at a position (3,), metres.

    The pads close along the level direction `across` (3,). The gripper leans forwards at right
    angles to it.
    """
    level = np.cross(UP, np.asarray(across) / np.linalg.norm(across))
    lean = np.radians(lean_deg)
    return gripper_pose(position, np.sin(lean) * level - np.cos(lean) * UP, across)


def backed(T_base_gripper: Matrix, distance: float) -> Matrix:
    """Returns the pose moved backwards along the gripper's x axis, by metres."""
    return T_base_gripper @ pose((-distance, 0.0, 0.0))


def raised(T_base_gripper: Matrix, height: float) -> Matrix:
    """Returns the pose moved up by metres."""
    result = T_base_gripper.copy()
    result[2, 3] += height
    return result


def both_ways(grasps: Iterable[Grasp]) -> list[Grasp]:
    """Returns each grasp, and each with the gripper turned by half a turn about its x axis."""
    turned = np.diag([1.0, -1.0, -1.0, 1.0])
    return [
        Grasp(T, grasp.closed, grasp.opening, grasp.hover)
        for grasp in grasps
        for T in (grasp.T_prop_gripper, grasp.T_prop_gripper @ turned)
    ]


def rim_grasps(
    radius: float,
    height: float,
    *,
    azimuths_deg: Iterable[float],
    pitches_deg: Iterable[float],
    depth: float = 0.0,
    opening: float = 0.7,
    hover: float = 0.07,
) -> list[Grasp]:
    """Returns grasps of a round object by its rim: one finger inside, one outside, from any side.

    `radius` is that of the middle of the wall, `height` that of the rim in the object's frame,
    `depth` the distance of the pads' middle beyond the rim, and `hover` that of the pre-grasp pose,
    all in metres. Azimuths are about the object's z axis. A pitch of 90 points straight down.
    """
    found = []
    for azimuth in np.radians(list(azimuths_deg)):
        radial = np.array([np.cos(azimuth), np.sin(azimuth), 0.0])
        for pitch in np.radians(list(pitches_deg)):
            forwards = -np.cos(pitch) * radial - np.sin(pitch) * UP
            across = np.cos(pitch) * UP - np.sin(pitch) * radial
            at = radius * radial + height * UP + depth * forwards
            # The gripper may be turned by half a turn: its pads are alike.
            for sign in (1.0, -1.0):
                found.append(Grasp(gripper_pose(at, forwards, sign * across), 0.0, opening, hover))
    return found
