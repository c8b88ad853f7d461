"""Integral control of an object's pose: measured errors are summed up until they vanish."""

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about

GAIN = 0.05  # Share of the measured error that is corrected per control period.
# Metres and radians beyond which errors are ignored, because the arm is still on its way.
NEAR = (0.012, 0.15)


def rotation_vector(rotation: Matrix) -> Vector:
    """Returns axis times angle (3,) of a rotation (3, 3) by less than half a turn."""
    difference = rotation - rotation.T
    skew = np.array([difference[2, 1], difference[0, 2], difference[1, 0]]) / 2
    sine = np.linalg.norm(skew)
    return skew if sine < 1e-9 else skew / sine * np.arctan2(sine, (np.trace(rotation) - 1) / 2)


def twist(transform: Matrix) -> Vector:
    """Returns the translation and the rotation vector (6,) of a transform (4, 4)."""
    return np.concatenate([transform[:3, 3], rotation_vector(transform[:3, :3])])


class Correction:
    """The correction of a target that makes an object reach it, in spite of friction and weight.

    Attributes:
        transform: (4, 4), right factor of the target, before the object's own pose.
    """

    def __init__(self) -> None:
        self._sum = np.zeros(6)
        self.transform = np.eye(4)

    def update(self, error: Vector) -> None:
        """Adds an error (6,), metres and a rotation vector, unless the arm is still far off."""
        if np.linalg.norm(error[:3]) < NEAR[0] and np.linalg.norm(error[3:]) < NEAR[1]:
            self._sum = np.clip(self._sum - GAIN * error, -np.repeat(NEAR, 3), np.repeat(NEAR, 3))
            angle = float(np.linalg.norm(self._sum[3:]))
            turn = rotation_about(self._sum[3:] / angle, angle) if angle > 1e-9 else np.eye(3)
            self.transform = pose(self._sum[:3], turn)
