"""Checks that poses of the arms determine the pose of a camera.

The rotation between hand and camera follows from pairs of motions about different axes; motions
about one axis leave it, and the position along that axis, undetermined (Tsai and Lenz 1989, "A New
Technique for Fully Autonomous and Efficient 3D Robotics Hand/Eye Calibration", section II).
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix
from stringline.real_robot.calibration.opencv_library import opencv

FEWEST_POSES = 6
LEAST_TURN_DEG = 20.0
LEAST_ACROSS_DEG = 10.0


def check_pose_variety(frames: Sequence[Matrix]) -> str:
    """Checks the variety of poses and describes it.

    The frames (4, 4) are those of the board's carrier in the frame of the camera's parent.

    Raises:
        ValueError: The poses are too few, too similar, or rotated about one axis only.
    """
    if len(frames) < FEWEST_POSES:
        raise ValueError(f"the board was seen from {len(frames)} poses; needed: {FEWEST_POSES}.")
    turns = np.array([_rotation_deg(a, b) for a, b in combinations(frames, 2)])
    largest = float(np.linalg.norm(turns, axis=1).max())
    if largest < LEAST_TURN_DEG:
        raise ValueError(
            f"the poses are too similar: no two of them differ by more than {largest:.1f} degrees; "
            f"needed: {LEAST_TURN_DEG:g}. Tilt and turn the hand more."
        )
    main = np.linalg.eigh(turns.T @ turns)[1][:, -1]
    across = float(np.linalg.norm(turns - np.outer(turns @ main, main), axis=1).max())
    if across < LEAST_ACROSS_DEG:
        raise ValueError(
            f"the poses turn about one axis only: {largest:.0f} degrees about it, {across:.1f} "
            f"about others; needed: {LEAST_ACROSS_DEG:g}. Tilt the hand to another side as well."
        )
    return (
        f"{len(frames)} poses, turned by up to {largest:.0f} degrees, {across:.0f} of them about "
        "other axes"
    )


def _rotation_deg(a: Matrix, b: Matrix) -> NDArray[np.float64]:
    """Returns the rotation vector (3,) in degrees between two frames."""
    vector = np.asarray(opencv().Rodrigues(a[:3, :3] @ b[:3, :3].T)[0], np.float64)
    return np.rad2deg(vector.reshape(3))
