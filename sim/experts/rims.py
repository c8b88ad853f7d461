"""How grippers take round things by their rims: one finger inside, one outside, from any side."""

from collections.abc import Iterable

import numpy as np

from stringline.sim.experts.grasps import UP, Grasp, gripper_pose


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
    """Returns grasps that point inwards and down at a rim, the pads closing on the wall.

    Args:
        radius: Of the middle of the wall at the rim, metres.
        height: Of the rim in the thing's frame, metres.
        azimuths_deg: Where on the rim, about the thing's z axis.
        pitches_deg: How far the gripper points down; 90 is straight down.
        depth: How far the middle between the pads goes beyond the rim, along where the gripper
            points, metres.
        opening: With which the gripper comes.
        hover: How far back it waits first, metres.
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
