"""What several guesses of one pose say together."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix, pose

Floats = NDArray[np.float64]


def middle(poses: Iterable[Matrix]) -> Matrix:
    """Returns the median place and the mean rotation (4, 4) of poses.

    The chordal mean of rotations: Hartley et al. (2013), "Rotation Averaging", section 5.3.
    """
    stacked = np.stack(list(poses))
    return pose(
        np.median(stacked[:, :3, 3], axis=0), nearest_rotation(stacked[:, :3, :3].sum(axis=0))
    )


def nearest_rotation(matrix: Floats) -> Floats:
    """Returns the rotation (3, 3) that is nearest to a matrix; none for one that is not finite."""
    if not np.isfinite(matrix).all():
        return np.eye(3)
    U, _, V = np.linalg.svd(matrix)
    return np.asarray(U @ np.diag([1.0, 1.0, np.linalg.det(U @ V)]) @ V)
