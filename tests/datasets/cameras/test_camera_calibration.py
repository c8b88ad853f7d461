"""Calibration files of recorded data: what they mean for an episode, and their errors."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stringline import ALOHA, Camera, pose, rotation_about
from stringline.datasets.cameras.camera_calibration import CameraCalibration, gripper_poses
from stringline.datasets.embodiments.transforms import inverse, looking_at

FIXED = looking_at((0.0, -0.5, 0.6), (0.0, 0.0, 0.0))
ON_GRIPPER = pose((-0.05, 0.0, 0.08), rotation_about((0.0, 0.6, 0.8), 0.9))
CONTRACT = ALOHA.contract(
    [
        Camera("overhead", 48, 64, depth="measured", has_geometry=False),
        Camera("wrist_left", 48, 64, has_geometry=False),
    ],
    50.0,
)
Write = Callable[..., Path]


def entry(parent: str, T: Any) -> dict[str, Any]:
    return {
        "parent": parent,
        "T_parent_camera": np.asarray(T).tolist(),
        "size": [480, 640],
        "intrinsics": [610.0, 612.0, 321.0, 243.0],
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Returns a function that writes a file of two cameras with changes and returns its path."""

    def run(camera: str = "overhead", *, left_out: str = "", **changes: Any) -> Path:
        cameras = {"overhead": entry("world", FIXED), "wrist_left": entry("left", ON_GRIPPER)}
        cameras.setdefault(camera, entry("world", FIXED)).update(changes)
        cameras.pop(left_out, None)
        path = tmp_path / "cameras.yaml"
        plain = {"version": 1, "embodiment": "aloha", "cameras": cameras}
        path.write_text(yaml.safe_dump(plain))
        return path

    return run


def episode(steps: int = 6) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    q = ALOHA.home + rng.uniform(-0.2, 0.2, (steps, 14))
    time = np.arange(steps) / 50
    arrays: dict[str, Any] = {"time": time, "time/overhead": time, "time/wrist_left": time}
    poses = ALOHA.forward_kinematics(q)
    return arrays | {f"T_base_gripper/{arm}": T.astype(np.float32) for arm, T in poses.items()}


def test_a_fixed_camera_has_one_pose_and_a_mounted_one_follows_its_gripper(write: Write) -> None:
    calibration = CameraCalibration.read(write())
    contract = calibration.contract(CONTRACT)
    assert [camera.has_geometry for camera in contract.cameras] == [True, True]
    arrays = episode()
    found = calibration.arrays(contract, arrays)
    np.testing.assert_allclose(found["T_base_camera/overhead"], FIXED, atol=1e-7)
    T_gripper_camera = (
        inverse(arrays["T_base_gripper/left"].astype(float)) @ found["T_base_camera/wrist_left"]
    )
    np.testing.assert_allclose(T_gripper_camera, np.tile(ON_GRIPPER, (6, 1, 1)), atol=1e-6)
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}


def test_intrinsics_are_scaled_to_images_of_the_same_aspect_ratio(write: Write) -> None:
    calibration = CameraCalibration.read(write())
    found = calibration.arrays(CONTRACT, episode())["intrinsics/overhead"]
    np.testing.assert_allclose(found, [[61, 0, 32.1], [0, 61.2, 24.3], [0, 0, 1]], rtol=1e-6)
    assert calibration.scaled(CONTRACT)[0] == (
        "The intrinsics of overhead, which belong to images of 480x640, are scaled to 48x64."
    )
    matrix = [[610.0, 0.0, 321.0], [0.0, 612.0, 243.0], [0.0, 0.0, 1.0]]
    same = CameraCalibration.read(write(intrinsics=matrix))
    np.testing.assert_array_equal(same.arrays(CONTRACT, episode())["intrinsics/overhead"], found)


def test_a_camera_between_steps_has_a_pose_between_theirs() -> None:
    """Of a turn about one axis, the pose in the middle is exactly that of half the angle."""
    turn = rotation_about((0.0, 0.0, 1.0), np.array([0.0, 0.4, 0.4]))
    poses = np.stack([pose((x, 0, 0), R) for x, R in zip((0, 2, 2), turn, strict=True)])
    arrays = {"time": np.array([0.0, 0.1, 0.2]), "T_base_gripper/left": poses}
    found = gripper_poses(arrays, "left", np.array([-1.0, 0.05, 0.1, 9.0]))
    expected = pose((1, 0, 0), rotation_about((0.0, 0.0, 1.0), 0.2))
    np.testing.assert_allclose(found, [poses[0], expected, poses[1], poses[2]], atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"camera": "wrist_lef"}, "There is no camera 'wrist_lef'. Did you mean 'wrist_left'"),
        (
            {"T_parent_camera": pose((0, 0, 0), 1.01 * np.eye(3)).tolist()},
            "T_parent_camera is not rigid: R R^T differs from the identity by 0.0201; allowed",
        ),
        ({"T_parent_camera": np.diag([1.0, 1, -1, 1]).tolist()}, "its rotation is a reflection"),
        ({"T_parent_camera": np.eye(3).tolist()}, "its shape is (3, 3), not (4, 4)"),
        (
            {"size": [480, 480], "intrinsics": [600, 600, 240, 240]},
            "is for images of 480x480 (rows x columns); the data has 48x64. Allowed: that size, or",
        ),
        ({"parent": "lef"}, "for the camera 'overhead' 'lef'. Did you mean 'left'"),
        ({"left_out": "wrist_left"}, "lacks wrist_left; it has overhead. Cameras that shall stay"),
        ({"T_base_camera": 1}, "There is no entry of the camera 'overhead' 'T_base_camera'. Did"),
        ({"size": None}, "The calibration of the camera 'overhead' lacks size."),
        ({"intrinsics": [1, 2, 3]}, "intrinsics have the shape (3,); allowed: fx, fy, cx, cy, or"),
        ({"intrinsics": [0, 600, 320, 240]}, "the focal lengths are 0 and 600; allowed: above 0"),
        ({"intrinsics": [600, 600, 240, 600]}, "the principal point is (240, 600); allowed: insid"),
        ({"intrinsics": [[600, 1, 2], [0, 600, 2], [0, 0, 1]]}, "allowed: [[fx, 0, cx], [0, fy,"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    write: Write, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        CameraCalibration.read(write(**changes)).contract(CONTRACT)
    assert "\n" not in str(error.value)


def test_cameras_without_calibration_are_named(write: Write) -> None:
    path = write(left_out="wrist_left")
    found = CameraCalibration.read(path, ("wrist_left",)).contract(CONTRACT)
    assert [camera.has_geometry for camera in found.cameras] == [True, False]
    with pytest.raises(ValueError, match="There is no camera 'wrist'. Did you mean 'wrist_left'"):
        CameraCalibration.read(path, ("wrist",)).contract(CONTRACT)
    with pytest.raises(ValueError, match="'overhead' is in .* and in `uncalibrated`; allowed: one"):
        CameraCalibration.read(path, ("overhead",))


def test_a_file_of_another_embodiment_is_refused(write: Write) -> None:
    path = write()
    path.write_text(path.read_text().replace("embodiment: aloha", "embodiment: iiwa14"))
    with pytest.raises(ValueError, match="embodiment iiwa14; the data are those of aloha"):
        CameraCalibration.read(path).contract(CONTRACT)
