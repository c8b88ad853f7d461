"""DROID's cameras: poses in the data, and the calibrations that its authors publish beside them.

Poses are x, y, z in metres and roll, pitch, yaw in rad about the fixed axes of the robot's
base, of the camera frame (x right, y down, z forward; droid/postprocessing/schema.py). RLDS has
those of the first step in `episode_metadata/extrinsics_<camera>`, and LeRobot's `port_droid.py`
copies them to each row as `camera_extrinsics.<camera>`. Neither has intrinsics.

The folder of calibrations (huggingface.co/KarlP/droid) has JSON files:
`episode_id_to_path.json`, `camera_serials.json`, `intrinsics.json` with fx, cx, fy, cy by
episode and serial number, and `cam2base_extrinsics.json` or `cam2base_extrinsic_superset.json`
with the same six numbers of the fixed cameras. An episode of RLDS is found by the path in its
metadata.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from stringline.datasets.cameras.camera_calibration import WORLD, CameraGeometry
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.files.limits import MOST_ANNOTATION_BYTES
from stringline.datasets.formats.checks import read_inside
from stringline.datasets.formats.conversions import pose_of_angles
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.lerobot_tables import names_of

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
    skipped_fields: Reasons = {}
    for key, camera in cameras.items():
        source = LEROBOT_POSES + key.removeprefix(LEROBOT_IMAGES)
        if source in features and names_of(features, source) == AXES:
            _add(found, skipped_fields, (camera, key), partial(read, source))
    return found, skipped_fields


def rlds_poses(values: Mapping[str, Any], cameras: Mapping[str, str]) -> tuple[Poses, Reasons]:
    """Returns the same of an example of RLDS; `cameras` are names by feature of a step."""
    found: Poses = {}
    skipped_fields: Reasons = {}
    for key, camera in cameras.items():
        if (numbers := values.get(RLDS_POSES.get(key, ""))) is not None:
            rows = numbers if isinstance(numbers, np.ndarray) else np.empty(0)
            _add(found, skipped_fields, (camera, key), partial(rows.reshape, 1, -1))
    return found, skipped_fields


def _add(
    found: Poses, skipped_fields: Reasons, names: tuple[str, str], read: Callable[[], Array]
) -> None:
    """Adds the poses of a camera, or the reason why they are left out."""
    camera, key = names
    try:
        found[camera] = camera_pose(key, read())
    except ForeignDataError as error:
        skipped_fields[f"pose of {camera}"] = str(error)


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


SERIALS: Mapping[str, str] = {
    "observation/exterior_image_1_left": "ext1_cam_serial",
    "observation/exterior_image_2_left": "ext2_cam_serial",
}
"""Field of `camera_serials.json` by feature of a step."""
POSES = ("cam2base_extrinsics.json", "cam2base_extrinsic_superset.json")
SIZE = (720, 1280)
"""Rows and columns of the recordings, which the intrinsics belong to where they state no others."""
_Table = Mapping[str, Any]


@dataclass(frozen=True)
class DroidCalibrations:
    """The files of the folder.

    Attributes:
        episodes: Identifier of an episode by its path, `LAB/success/DATE/TIME`.
        serials: By episode, the serial numbers of its cameras.
        intrinsics: By episode and serial number.
        poses: By name of the file, poses by episode and serial number.
    """

    episodes: Mapping[str, str]
    serials: _Table
    intrinsics: _Table
    poses: Mapping[str, _Table]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the folder.

        Raises:
            ValueError: A file is missing or damaged.
        """
        poses = {name: _table(folder, name) for name in POSES if (folder / name).exists()}
        if not poses:
            raise ValueError(f"{folder} has no calibrations of DROID: {' or '.join(POSES)}.")
        paths = _table(folder, "episode_id_to_path.json")
        return cls(
            {str(path).strip("/"): episode for episode, path in paths.items()},
            _table(folder, "camera_serials.json"),
            _table(folder, "intrinsics.json"),
            poses,
        )

    def episode(self, file_path: str) -> str:
        """Returns the identifier of the episode that was recorded in a file.

        Raises:
            ForeignDataError: The files do not list it.
        """
        parts = file_path.split("/")[:-1]
        for start in range(len(parts)):
            if (found := self.episodes.get("/".join(parts[start:]))) is not None:
                return found
        raise ForeignDataError(f"episode_id_to_path.json lacks the recording {file_path!r}.")

    def arrays(self, episode: str, cameras: Mapping[str, Camera]) -> dict[str, Array]:
        """Returns the arrays of the geometry of the fixed cameras; `cameras` are by feature.

        Raises:
            ForeignDataError: One of them is not calibrated, or its entry is damaged.
        """
        found: dict[str, Array] = {}
        for feature, camera in cameras.items():
            if feature in SERIALS:
                found |= self._geometry(episode, feature, camera).arrays(camera)
        return found

    def _geometry(self, episode: str, feature: str, camera: Camera) -> CameraGeometry:
        serial = str(_entry(self.serials, episode).get(SERIALS[feature]))
        intrinsics = _entry(self.intrinsics, episode).get(serial)
        numbers = next(
            (
                _entry(table, episode)[serial]
                for table in self.poses.values()
                if serial in _entry(table, episode)
            ),
            None,
        )
        lacking = [*(["intrinsics.json"] if intrinsics is None else [])]
        lacking += [" and ".join(self.poses)] if numbers is None else []
        if lacking:
            raise ForeignDataError(
                f"{feature} of the episode {episode} (serial number {serial}) is not calibrated in "
                f"{' and '.join(lacking)}; format.cameras selects others."
            )
        try:
            pose = camera_pose(feature, np.atleast_2d(np.array(numbers, np.float64)))
            return CameraGeometry.of(camera.name, _plain(intrinsics, pose))
        except (TypeError, ValueError) as error:
            raise ForeignDataError(
                f"The calibration of {feature} in the episode {episode} is damaged: {error}"
            ) from None


def _plain(intrinsics: Any, pose: Array) -> dict[str, Any]:
    """Returns an entry of a calibration file; `intrinsics` is a list, or a mapping with it."""
    described = intrinsics if isinstance(intrinsics, dict) else {"cameraMatrix": intrinsics}
    fx, cx, fy, cy = (float(number) for number in described.get("cameraMatrix") or ())
    rows, columns = SIZE
    return {
        "parent": WORLD,
        "T_parent_camera": pose.tolist(),
        "size": [described.get("height", rows), described.get("width", columns)],
        "intrinsics": [fx, fy, cx, cy],
    }


def _entry(table: _Table, episode: str) -> _Table:
    found = table.get(episode)
    return found if isinstance(found, dict) else {}


def _table(folder: Path, name: str) -> _Table:
    """Returns the entries of a JSON file of the folder."""
    try:
        found = json.loads(read_inside(folder, folder / name, MOST_ANNOTATION_BYTES))
    except FileNotFoundError as error:
        raise ValueError(f"{folder} lacks {name}, a file of DROID's annotations.") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder / name} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{folder / name} is a {type(found).__name__}; allowed: a mapping.")
    return found
