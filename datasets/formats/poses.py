"""Foreign rotations as matrices."""

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.transforms import rotation_about
from stringline.datasets.formats.foreign import ForeignDataError

UNIT_TOLERANCE = 1e-2


def pose_of_vectors(position: Array, rotation: Array) -> Array:
    """Returns poses (T, 4, 4) float32 of positions (T, 3), m, and rotation vectors (T, 3), rad."""
    angle = np.linalg.norm(rotation, axis=-1)
    axis = rotation / np.where(angle > 0, angle, 1.0)[:, None]
    return _assembled(position, rotation_about(axis, angle))


def pose_of_quaternions(key: str, position: Array, xyzw: Array) -> Array:
    """Returns poses (T, 4, 4) float32 of positions (T, 3) in m and quaternions (T, 4), x y z w."""
    length = np.linalg.norm(xyzw, axis=-1)
    wrong = np.abs(length - 1) > UNIT_TOLERANCE
    if wrong.any():
        frame = int(np.argmax(wrong))
        raise ForeignDataError(
            f"{key} at frame {frame} has length {length[frame]:.6g}; a quaternion has length 1."
        )
    x, y, z, w = (xyzw / length[:, None]).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return _assembled(position, np.moveaxis(np.array(rows), -1, 0))


def pose_of_angles(rows: Array) -> Array:
    """Returns poses (T, 4, 4) float32 of x, y, z, m, and roll, pitch, yaw, rad, (T, 6).

    The angles are about fixed axes, first x, then y, then z: R = Rz(yaw) Ry(pitch) Rx(roll).
    """
    roll, pitch, yaw = (
        rotation_about(axis, angle) for axis, angle in zip(np.eye(3), rows[:, 3:].T, strict=True)
    )
    return _assembled(rows[:, :3], yaw @ pitch @ roll)


def _assembled(position: Array, rotation: Array) -> Array:
    poses = np.tile(np.eye(4), (len(position), 1, 1))
    poses[:, :3, :3] = rotation
    poses[:, :3, 3] = position
    return poses.astype(np.float32)
