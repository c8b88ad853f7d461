"""The file of camera poses: written atomically, read back equal, refused for another robot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stringline import ALOHA, IIWA14, pose, rotation_about
from stringline.real_robot.calibration.calibration_session import merged
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.cameras.camera import CameraError
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.robots.robot_factory import RobotFactory
from stringline.real_robot.robots.robot_settings import RobotSettings

T = pose((0.1, -0.2, 0.3), rotation_about((0.0, 0.6, 0.8), 0.7))
WRIST = CalibratedCamera(
    "0123",
    "arm",
    T,
    (480, 640),
    1.25,
    0.08,
    0.11,
    (610.0, 611.0, 320.5, 240.5),
    "board",
    14,
    "2026-05-04T10:11:12+00:00",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "measured" / "calibration.yaml"
    Calibration({"wrist": WRIST}).write(path, IIWA14)
    return path


def test_a_written_file_reads_back_equal(file: Path) -> None:
    found = Calibration.read(file, IIWA14).cameras["wrist"]
    np.testing.assert_array_equal(found.T_parent_camera, T)
    plain = {key: value for key, value in vars(found).items() if key != "T_parent_camera"}
    assert plain == {key: value for key, value in vars(WRIST).items() if key != "T_parent_camera"}
    assert [path.name for path in file.parent.iterdir()] == [
        "calibration.yaml"
    ]  # No incomplete file remains.


def test_newly_measured_cameras_replace_known_ones(file: Path) -> None:
    overhead = replace(WRIST, serial="77", parent="world")
    both = merged(Calibration.read(file, IIWA14), {"overhead": overhead})
    both.write(file, IIWA14)
    again = merged(Calibration.read(file, IIWA14), {"wrist": replace(WRIST, residual_mm=0.5)})
    assert (again.cameras["wrist"].residual_mm, again.cameras["overhead"].serial) == (0.5, "77")
    assert set(again.without(["wrist"]).cameras) == {"overhead"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"version": 0},
            "has version 0; allowed: 1. Calibrate the cameras again",
        ),
        ({"version": None}, "has version None"),
        ({"embodiment": "aloha"}, "is for the embodiment aloha; the robot is iiwa14"),
        ({"cameras": {}}, "must have `cameras:` with an entry per camera"),
        ({"cameras": {"wrist": 3}}, "must have `cameras:` with an entry per camera"),
    ],
)
def test_a_file_of_another_robot_or_version_is_refused(
    file: Path, change: dict[str, Any], message: str
) -> None:
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        Calibration.read(file, IIWA14)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"parent": "world"},
            "The camera 'wrist' was calibrated in the frame of 'world'; its frame is 'arm'",
        ),
        ({"size": None}, "lacks size. Calibrate the camera again"),
        ({"size": [480]}, "The calibration of the camera 'wrist' is invalid: "),
        (
            {"residual_mm": "small"},
            ("The calibration of the camera 'wrist' is invalid: could not convert string to float"),
        ),
        ({"T_parent_camera": (2 * T).tolist()}, "T_parent_camera is not rigid"),
        ({"T_parent_camera": [[1.0, 2.0]]}, "T_parent_camera is not rigid"),
        ({"T_parent_camera": (np.nan * T).tolist()}, "T_parent_camera is not rigid"),
    ],
)
def test_a_broken_entry_is_refused(file: Path, change: dict[str, Any], message: str) -> None:
    plain = yaml.safe_load(file.read_text())
    plain["cameras"]["wrist"] |= change
    file.write_text(yaml.safe_dump(plain))
    with pytest.raises(ValueError, match=message):
        Calibration.read(file, IIWA14)


def test_a_broken_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match="calibration"):
        Calibration.read(file, IIWA14)
    file.write_bytes(b"cameras: \xff\xfe")
    with pytest.raises(ValueError, match="cannot be read"):
        Calibration.read(file, IIWA14)


def test_other_cameras_and_other_images_are_refused(file: Path) -> None:
    calibration = Calibration.read(file, IIWA14)
    assert (
        calibration.check("wrist", "0123", (480, 640))
        == "calibrated, residual 1.25 mm, 0.08 degrees"
    )
    with pytest.raises(CameraError, match="its serial number is 0124; the calibration is for 0123"):
        calibration.check("wrist", "0124", (480, 640))
    with pytest.raises(
        CameraError, match="its images are 1280x720; it was calibrated with 640x480"
    ):
        calibration.check("wrist", "0123", (720, 1280))


def robot(file: Path, **more: Any) -> RobotSettings:
    plain = {
        "name": "emulated",
        "transport": "fri",
        "arms": "one",
        "cameras": ["wrist"],
        "driver": {},
        "limits": {},
    }
    plain |= {
        "emulator": {"frame_hz": 12.5},
        "device_hz": 100.0,
        "control_hz": 50.0,
        "lock_step": True,
    }
    return RobotSettings.of(plain | {"calibration_file": str(file)} | more)


def test_a_deployment_takes_its_cameras_from_the_file_or_does_not_start(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checklist, other = Checklist(), RobotFactory(robot(file))
    other.check(checklist, moving=True)
    with pytest.raises(
        ValueError,
        match=(
            "calibration file: its serial number is emulated/wrist; the calibration is for 0123"
        ),
    ):
        checklist.check_passed()
    Calibration({"wrist": replace(WRIST, serial="emulated/wrist")}).write(file, IIWA14)
    checklist, both = Checklist(), RobotFactory(robot(file, cameras=["wrist", "overhead"]))
    both.check(checklist, moving=True)
    checklist.check_passed()
    output = capsys.readouterr().out
    assert "wrist: calibrated, residual 1.25 mm, 0.08 degrees" in output
    assert (
        "overhead: not in the calibration file: the nominal pose of the embodiment is used"
        in output
    )
    hand = IIWA14.forward_kinematics(IIWA14.home)["arm"]
    np.testing.assert_allclose(both.embodiment.camera_poses(IIWA14.home)["wrist"], hand @ T)
    checklist, gone = Checklist(), RobotFactory(robot(file.parent / "none.yaml", lock_step=False))
    gone.check(checklist, moving=True)
    with pytest.raises(
        ValueError, match=r"The calibration file .*none\.yaml cannot be read: No such file"
    ):
        checklist.check_passed()


CALIBRATED = """
version: 1
embodiment: aloha
cameras:
  overhead:
    serial: "111"
    parent: world
    size: [480, 640]
    T_parent_camera: [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.9], [0, 0, 0, 1]]
    residual_mm: 1.4
    residual_deg: 0.1
"""


def test_a_calibration_moves_its_cameras_and_no_others(tmp_path: Path) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(CALIBRATED)
    calibration = Calibration.read(file, ALOHA)
    moved, before = (
        calibration.applied(ALOHA).camera_poses(ALOHA.home),
        ALOHA.camera_poses(ALOHA.home),
    )
    assert np.allclose(moved["overhead"][:3, 3], [0.1, 0.2, 0.9])
    assert all(np.array_equal(moved[name], before[name]) for name in before if name != "overhead")
    assert calibration.check("overhead", "111") == "calibrated, residual 1.4 mm, 0.1 degrees"
    with pytest.raises(
        CameraError,
        match="its serial number is 222; the calibration is for 111",
    ):
        calibration.check("overhead", "222")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("overhead", "overhaed", "There is no camera 'overhaed'. Did you mean 'overhead'"),
        ("cameras:", "camera:", "must have `cameras:` with an entry per camera"),
        ("residual_mm: 1.4", "", "lacks residual_mm. Calibrate the camera again"),
        ("[0, 0, 1, 0.9]", "[0, 0, 2, 0.9]", "T_parent_camera is not rigid"),
        ("[0, 0, 1, 0.9]", "[0, 0, -1, 0.9]", "T_parent_camera is not rigid"),
    ],
)
def test_an_invalid_calibration_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(CALIBRATED.replace(old, new))
    with pytest.raises(ValueError, match=message):
        Calibration.read(file, ALOHA)
    with pytest.raises(ValueError, match="cannot be read"):
        Calibration.read(tmp_path / "none.yaml", ALOHA)


@pytest.mark.parametrize("residual", ["residual_mm: 7.5", "residual_mm: .nan"])
def test_a_calibration_that_fits_badly_is_refused(tmp_path: Path, residual: str) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(CALIBRATED.replace("residual_mm: 1.4", residual))
    with pytest.raises(
        CameraError,
        match=r"its calibration has a residual .* mm, 0.1 degrees; allowed: 5 mm, 0.5 degrees",
    ):
        Calibration.read(file, ALOHA).check("overhead", "111")
