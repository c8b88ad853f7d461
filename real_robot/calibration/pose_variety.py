"""Whether the poses of the arms differ enough to say where a camera sits.

The rotation between hand and camera follows from pairs of motions that turn about different axes;
motions about one axis leave it free about that axis, and the place along it (Tsai and Lenz 1989, "A
New Technique for Fully Autonomous and Efficient 3D Robotics Hand/Eye Calibration", section II,
conditions on uniqueness).
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix
from stringline.real_robot.calibration.opencv_library import opencv

FEWEST_POSES = 6
LARGEST_TURN_DEG = 20.0
ACROSS_DEG = 10.0


def demand_varied(frames: Sequence[Matrix], fewest: int = FEWEST_POSES) -> str:
    """Says how much poses differ.

    Args:
        frames: (4, 4) each: what holds the board in the frame of what holds the camera, one for
            each pose.
        fewest: How many there must be.

    Raises:
        ValueError: They are too few, too alike, or turned about one axis only.
    """
    if len(frames) < fewest:
        raise ValueError(f"the board was seen from {len(frames)} poses; needed: {fewest}.")
    turns = np.array([_turn_deg(a, b) for a, b in combinations(frames, 2)])
    largest = float(np.linalg.norm(turns, axis=1).max())
    if largest < LARGEST_TURN_DEG:
        raise ValueError(
            f"the poses are too alike: no two of them differ by more than {largest:.1f} degrees; "
            f"needed: {LARGEST_TURN_DEG:g}. "
            "Tilt and turn the hand more."
        )
    main = np.linalg.eigh(turns.T @ turns)[1][:, -1]
    across = float(np.linalg.norm(turns - np.outer(turns @ main, main), axis=1).max())
    if across < ACROSS_DEG:
        raise ValueError(
            f"the poses turn about one axis only: {largest:.0f} degrees about it, {across:.1f} "
            f"about others; needed: "
            f"{ACROSS_DEG:g}. Tilt the hand to another side, too."
        )
    return (
        f"{len(frames)} poses, turned by up to {largest:.0f} degrees, {across:.0f} of them about "
        f"other axes"
    )


def _turn_deg(a: Matrix, b: Matrix) -> NDArray[np.float64]:
    """Returns axis times angle (3,) in degrees of what takes the directions of one frame to those of the other."""
    vector: NDArray[np.float64] = np.asarray(
        opencv().Rodrigues(a[:3, :3] @ b[:3, :3].T)[0]
    ).reshape(3)
    return np.rad2deg(vector)
