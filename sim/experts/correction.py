"""Getting there exactly: errors are measured and summed up until they are gone."""

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about

GAIN = 0.05  # Of what is measured to be missing, per control period.
NEAR = (
    0.012,
    0.15,
)  # Metres and radians beyond which nothing is corrected, because the arm is still on its way.


def rotation_vector(rotation: Matrix) -> Vector:
    """Returns axis times angle (3,) of a rotation (3, 3) by less than half a turn."""
    skew = (
        np.array(
            [
                rotation[2, 1] - rotation[1, 2],
                rotation[0, 2] - rotation[2, 0],
                rotation[1, 0] - rotation[0, 1],
            ]
        )
        / 2
    )
    sine = np.linalg.norm(skew)
    return skew if sine < 1e-9 else skew / sine * np.arctan2(sine, (np.trace(rotation) - 1) / 2)


def twist(transform: Matrix) -> Vector:
    """Returns the translation and the rotation vector (6,) of a transform (4, 4)."""
    return np.concatenate([transform[:3, 3], rotation_vector(transform[:3, :3])])


class Correction:
    """What must be added to a target so that a thing gets there, in spite of friction and weight: its error, summed up.

    Attributes:
        transform: (4, 4), to be multiplied to the target from the right, before the thing's own
            pose.
    """

    def __init__(self) -> None:
        self._sum = np.zeros(6)
        self.transform = np.eye(4)

    def update(self, error: Vector) -> None:
        """Takes note of an error (6,), metres and a rotation vector, unless the arm is still far off."""
        if np.linalg.norm(error[:3]) < NEAR[0] and np.linalg.norm(error[3:]) < NEAR[1]:
            self._sum = np.clip(self._sum - GAIN * error, -np.repeat(NEAR, 3), np.repeat(NEAR, 3))
            angle = float(np.linalg.norm(self._sum[3:]))
            turn = rotation_about(self._sum[3:] / angle, angle) if angle > 1e-9 else np.eye(3)
            self.transform = pose(self._sum[:3], turn)
