"""Poses of cameras in the data: DROID's six numbers, in RLDS and in LeRobotDatasets made from it.

They are x, y, z in metres and roll, pitch, yaw in rad about the fixed axes of the robot's base, of
the camera frame (x right, y down, z forward; droid/postprocessing/schema.py). RLDS has those of the
first step in `episode_metadata/extrinsics_<camera>`, and LeRobot's `port_droid.py` copies them to
each row as `camera_extrinsics.<camera>`. Neither has intrinsics.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.lerobot_tables import names_of
from stringline.datasets.formats.poses import pose_of_angles

AXES = ["x", "y", "z", "roll", "pitch", "yaw"]
LEROBOT_IMAGES = "observation.images."
LEROBOT_POSES = "camera_extrinsics."
RLDS_POSES: Mapping[str, str] = {
    "observation/exterior_image_1_left": "episode_metadata/extrinsics_exterior_cam_1",
    "observation/exterior_image_2_left": "episode_metadata/extrinsics_exterior_cam_2",
    "observation/wrist_image_left": "episode_metadata/extrinsics_wrist_cam",
}
_MOVING = ("wrist", "hand")
_ZERO = "all numbers are 0: the camera was not calibrated"
_STILL = "one pose in the whole episode of a camera that moves with the gripper"

Poses = dict[str, Array]
Reasons = dict[str, str]


def lerobot_poses(
    features: Mapping[str, Any], cameras: Mapping[str, str], read: Callable[[str], Array]
) -> tuple[Poses, Reasons]:
    """Returns poses by the name of the camera, and why others are left out.

    Args:
        features: Those of `info.json`.
        cameras: Name of the camera by feature.
        read: Returns the rows (T, 6) of a feature.
    """
    found: Poses = {}
    left_out: Reasons = {}
    for key, camera in cameras.items():
        source = LEROBOT_POSES + key.removeprefix(LEROBOT_IMAGES)
        if source in features and names_of(features, source) == AXES:
            _add(found, left_out, (camera, key), partial(read, source))
    return found, left_out


def rlds_poses(values: Mapping[str, Any], cameras: Mapping[str, str]) -> tuple[Poses, Reasons]:
    """Returns the same of an example of RLDS; `cameras` are names by feature of a step."""
    found: Poses = {}
    left_out: Reasons = {}
    for key, camera in cameras.items():
        if (numbers := values.get(RLDS_POSES.get(key, ""))) is not None:
            rows = numbers if isinstance(numbers, np.ndarray) else np.empty(0)
            _add(found, left_out, (camera, key), partial(rows.reshape, 1, -1))
    return found, left_out


def _add(
    found: Poses, left_out: Reasons, names: tuple[str, str], read: Callable[[], Array]
) -> None:
    """Adds the poses of a camera, or the reason why they are left out."""
    camera, key = names
    try:
        found[camera] = camera_pose(key, read())
    except ForeignDataError as error:
        left_out[f"pose of {camera}"] = str(error)


def camera_pose(camera: str, rows: Array) -> Array:
    """Returns the pose (4, 4) of a camera, or those (T, 4, 4) if they differ.

    Args:
        camera: Its name in the data.
        rows: x, y, z, roll, pitch, yaw (T, 6).

    Raises:
        ForeignDataError: The numbers are missing, not finite or all 0, or a camera that moves with
            the gripper has one pose.
    """
    if rows.ndim != 2 or rows.shape[1] != len(AXES) or not np.isfinite(rows).all():
        raise ForeignDataError(
            f"values of shape {rows.shape}; allowed: 6 finite numbers, {', '.join(AXES)}"
        )
    if not rows.any(axis=1).all():
        raise ForeignDataError(_ZERO)
    poses = pose_of_angles(np.asarray(rows, np.float64))
    if (rows != rows[0]).any():
        return poses
    if any(word in camera for word in _MOVING):
        raise ForeignDataError(_STILL)
    first: Array = poses[0]
    return first
