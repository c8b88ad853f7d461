"""Rigid transforms as 4x4 matrices: `T_ab` takes coordinates in b to a."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Matrix = NDArray[np.float64]
"""A two-dimensional array of float64, such as a (4, 4) transform."""


def pose(position: ArrayLike = (0.0, 0.0, 0.0), rotation: ArrayLike | None = None) -> Matrix:
    """Returns the transform with a position (3,) in metres and a rotation matrix (3, 3)."""
    result = np.eye(4)
    result[:3, 3] = np.asarray(position, dtype=np.float64)
    if rotation is not None:
        result[:3, :3] = np.asarray(rotation, dtype=np.float64)
    return result


def rotation_about(axis: ArrayLike, angle: ArrayLike) -> Matrix:
    """Returns rotation matrices (..., 3, 3) about unit vectors (..., 3) by angles (...) in rad.

    Rodrigues' formula: R = I + sin(a) K + (1 - cos(a)) K^2.
    """
    axis = np.asarray(axis, dtype=np.float64)
    angle = np.asarray(angle, dtype=np.float64)[..., None, None]
    cross = np.zeros((*axis.shape[:-1], 3, 3))
    cross[..., 0, 1] = -axis[..., 2]
    cross[..., 0, 2] = axis[..., 1]
    cross[..., 1, 0] = axis[..., 2]
    cross[..., 1, 2] = -axis[..., 0]
    cross[..., 2, 0] = -axis[..., 1]
    cross[..., 2, 1] = axis[..., 0]
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * (cross @ cross))


def looking_at(position: ArrayLike, target: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) of a camera at `position` (3,) that looks at `target` (3,).

    Its x axis points right and is level, y points down, z to the target. For a vertical view, x is
    the x axis of the frame.
    """
    place = np.asarray(position, dtype=np.float64)
    forwards = np.asarray(target, dtype=np.float64) - place
    forwards /= np.linalg.norm(forwards)
    right: Matrix = np.cross(forwards, (0.0, 0.0, 1.0))
    length = float(np.linalg.norm(right))
    right = right / length if length > 1e-9 else np.array([1.0, 0.0, 0.0])
    return pose(place, np.stack([right, np.cross(forwards, right), forwards], axis=1))


def inverse(transform: Matrix) -> Matrix:
    """Returns the inverse of rigid transforms (..., 4, 4)."""
    result = np.zeros_like(transform)
    turned = np.swapaxes(transform[..., :3, :3], -1, -2)
    result[..., :3, :3] = turned
    result[..., :3, 3] = -(turned @ transform[..., :3, 3, None])[..., 0]
    result[..., 3, 3] = 1.0
    return result


def quaternion(rotation: Matrix) -> Matrix:
    """Returns the unit quaternion (4,), wxyz, w >= 0, of one rotation matrix (3, 3).

    Bar-Itzhack (2000): the eigenvector of the largest eigenvalue; exact for rotations, and free of
    case distinctions.
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = rotation
    symmetric = np.array(
        [
            [xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, xx - yy - zz, xy + yx, xz + zx],
            [xz - zx, xy + yx, yy - xx - zz, yz + zy],
            [yx - xy, xz + zx, yz + zy, zz - xx - yy],
        ]
    )
    found = np.linalg.eigh(symmetric)[1][:, -1]
    return np.asarray(-found if found[0] < 0 else found)


def rotation_of(quat: ArrayLike) -> Matrix:
    """Returns the rotation matrix (3, 3) of a unit quaternion (4,), wxyz."""
    w, x, y, z = np.asarray(quat, dtype=np.float64)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def rotation_vector(rotation: Matrix) -> Matrix:
    """Returns axis times angle (3,), the angle 0 to pi, of a rotation matrix (3, 3)."""
    w, *axis = quaternion(rotation)
    sine = float(np.linalg.norm(axis))
    return np.asarray(axis) * (2.0 * np.arctan2(sine, w) / sine) if sine > 1e-12 else np.zeros(3)


def turned(vector: Matrix) -> Matrix:
    """Returns the rotation matrix (3, 3) of a rotation vector (3,) in rad."""
    angle = float(np.linalg.norm(vector))
    return rotation_about(vector / angle, angle) if angle > 1e-12 else np.eye(3)


def rotation_of_angles(rpy: ArrayLike) -> Matrix:
    """Returns Rz(yaw) Ry(pitch) Rx(roll) (3, 3) of angles (3,) in rad, as in URDF."""
    roll, pitch, yaw = (
        rotation_about(axis, angle) for axis, angle in zip(np.eye(3), np.asarray(rpy), strict=True)
    )
    return np.asarray(yaw @ pitch @ roll)


def angle_between(first: Matrix, second: Matrix) -> float:
    """Returns the angle between two rotations (3, 3), rad."""
    cosine = (np.trace(first.T @ second) - 1) / 2
    return float(np.arccos(np.clip(cosine, -1.0, 1.0)))


def between(start: Matrix, goal: Matrix, share: float) -> Matrix:
    """Returns the pose (4, 4) after a share of a straight way with a fixed axis of rotation."""
    turn = start[:3, :3].T @ goal[:3, :3]
    angle = angle_between(start[:3, :3], goal[:3, :3])
    rotation = start[:3, :3]
    if angle > 1e-9:
        skew = (turn - turn.T) / (2 * np.sin(angle))
        rotation = rotation @ rotation_about([skew[2, 1], skew[0, 2], skew[1, 0]], share * angle)
    return pose(start[:3, 3] + share * (goal[:3, 3] - start[:3, 3]), rotation)
