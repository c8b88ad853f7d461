"""Conversions and interpolation of poses, exact for rotations by half a turn, too."""

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion, rotation_about

X, Y, Z = np.eye(3)


def rotation_vector(rotation: Matrix) -> Vector:
    """Returns axis times angle (3,), the angle 0 to pi, of a rotation matrix (3, 3)."""
    w, *axis = quaternion(rotation)
    sine = float(np.linalg.norm(axis))
    return np.asarray(axis) * (2.0 * np.arctan2(sine, w) / sine) if sine > 1e-12 else np.zeros(3)


def turned(vector: Vector) -> Matrix:
    """Returns the rotation matrix (3, 3) of a rotation vector (3,) in rad."""
    angle = float(np.linalg.norm(vector))
    return rotation_about(vector / angle, angle) if angle > 1e-12 else np.eye(3)


def apart(a: Matrix, b: Matrix) -> tuple[float, float]:
    """Returns the distance of two poses (4, 4) in metres and radians."""
    turn = float(np.linalg.norm(rotation_vector(a[:3, :3].T @ b[:3, :3])))
    return float(np.linalg.norm(a[:3, 3] - b[:3, 3])), turn


def between(start: Matrix, goal: Matrix, share: float) -> Matrix:
    """Returns the pose (4, 4) after a share (0 to 1) of a straight way with a fixed axis."""
    turn = share * rotation_vector(start[:3, :3].T @ goal[:3, :3])
    return pose(start[:3, 3] + share * (goal[:3, 3] - start[:3, 3]), start[:3, :3] @ turned(turn))


def pose_of_angles(position: ArrayLike, heading_tilt_roll_deg: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) at a position (3,) in metres, rotated by three angles in degrees.

    The gripper points along x at first; it turns by the heading about z, then by the tilt about its
    own y (positive: down), then by the roll about its own x.
    """
    heading, tilt, roll = np.radians(np.asarray(heading_tilt_roll_deg, dtype=np.float64))
    return pose(
        position, rotation_about(Z, heading) @ rotation_about(Y, tilt) @ rotation_about(X, roll)
    )


def angles_of_pose(T: Matrix) -> Vector:
    """Returns heading, tilt and roll (3,), degrees, of a pose (4, 4); roll is 0 at a tilt of 90."""
    rotation = T[:3, :3]
    level = float(np.hypot(rotation[0, 0], rotation[1, 0]))
    tilt = np.arctan2(-rotation[2, 0], level)
    if level < 1e-6:
        return np.degrees([np.arctan2(-rotation[0, 1], rotation[1, 1]), tilt, 0.0])
    heading = np.arctan2(rotation[1, 0], rotation[0, 0])
    roll = np.arctan2(rotation[2, 1], rotation[2, 2])
    return np.degrees([heading, tilt, roll])


def pose_of_quaternion(position: ArrayLike, wxyz: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) at a position (3,), rotated by a quaternion (4,) of any length but 0.

    Raises:
        ValueError: The quaternion is zero or not finite.
    """
    wxyz = np.asarray(wxyz, dtype=np.float64)
    length = float(np.linalg.norm(wxyz))
    if not 1e-9 < length < np.inf:
        raise ValueError(f"The quaternion {wxyz.tolist()} is not a rotation.")
    w = wxyz[0] / length
    axis = wxyz[1:] / length
    cross = np.array([[0.0, -axis[2], axis[1]], [axis[2], 0.0, -axis[0]], [-axis[1], axis[0], 0.0]])
    return pose(position, np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross)
