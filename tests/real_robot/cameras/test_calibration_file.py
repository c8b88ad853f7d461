"""The file that says where cameras are: written whole, read back the same, and refused where it is not of this robot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.embodiments.transforms import pose, rotation_about
from stringline.real_robot.calibration.outcome import merged
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.cameras.camera import CameraError
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.robots.robot_factory import RobotFactory

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


def test_what_is_written_is_read_back(file: Path) -> None:
    found = Calibration.read(file, IIWA14).cameras["wrist"]
    np.testing.assert_array_equal(found.T_parent_camera, T)
    plain = {key: value for key, value in vars(found).items() if key != "T_parent_camera"}
    assert plain == {key: value for key, value in vars(WRIST).items() if key != "T_parent_camera"}
    assert [path.name for path in file.parent.iterdir()] == [
        "calibration.yaml"
    ]  # Nothing half-written stays.


def test_cameras_that_are_measured_now_take_the_place_of_what_was_known(file: Path) -> None:
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
            "is of version 0; this program reads version 1. Measure the cameras again",
        ),
        ({"version": None}, "is of version None"),
        ({"embodiment": "aloha"}, "is of the body aloha; this one is iiwa14"),
        ({"cameras": {}}, "must have `cameras:` with an entry for each"),
        ({"cameras": {"wrist": 3}}, "must have `cameras:` with an entry for each"),
    ],
)
def test_a_file_of_another_robot_or_time_is_refused(
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
            "The camera 'wrist' was calibrated on 'world'; this body carries it on 'arm'",
        ),
        ({"size": None}, "does not say size. If it is an old one, measure the camera again"),
        ({"size": [480]}, "The calibration of the camera 'wrist' cannot be read: "),
        (
            {"residual_mm": "small"},
            (
                "The calibration of the camera 'wrist' cannot be read: could not convert string to "
                "float"
            ),
        ),
        ({"T_parent_camera": (2 * T).tolist()}, "T_parent_camera is no rotation with a place"),
        ({"T_parent_camera": [[1.0, 2.0]]}, "T_parent_camera is no rotation with a place"),
        ({"T_parent_camera": (np.nan * T).tolist()}, "T_parent_camera is no rotation with a place"),
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
        calibration.demand("wrist", "0123", (480, 640))
        == "calibrated, residual 1.25 mm, 0.08 degrees"
    )
    with pytest.raises(
        CameraError, match="of the camera with serial number 0123; this one has 0124"
    ):
        calibration.demand("wrist", "0124", (480, 640))
    with pytest.raises(
        CameraError, match="it was calibrated with images of 640x480; now they are 1280x720"
    ):
        calibration.demand("wrist", "0123", (720, 1280))


def robot(file: Path, **more: Any) -> dict[str, Any]:
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
    return plain | {"calibration_file": str(file)} | more


def test_a_deployment_takes_its_cameras_from_the_file_or_does_not_start(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checklist, other = Checklist(), RobotFactory(robot(file))
    other.check(checklist, moving=True)
    with pytest.raises(
        ValueError,
        match=(
            r"calibration file: the calibration is of the camera with serial number 0123; this "
            r"one has"
        ),
    ):
        checklist.demand()
    Calibration({"wrist": replace(WRIST, serial="emulated/wrist")}).write(file, IIWA14)
    checklist, cell = Checklist(), RobotFactory(robot(file, cameras=["wrist", "overhead"]))
    cell.check(checklist, moving=True)
    checklist.demand()
    said = capsys.readouterr().out
    assert "wrist: calibrated, residual 1.25 mm, 0.08 degrees" in said
    assert (
        "overhead: not in the calibration file: taken to be where the body's drawing has it" in said
    )
    hand = IIWA14.forward_kinematics(IIWA14.home)["arm"]
    np.testing.assert_allclose(cell.body.camera_poses(IIWA14.home)["wrist"], hand @ T)
    checklist, gone = Checklist(), RobotFactory(robot(file.parent / "none.yaml", lock_step=False))
    gone.check(checklist, moving=True)
    with pytest.raises(
        ValueError, match=r"The calibration file .*none\.yaml cannot be read: No such file"
    ):
        checklist.demand()
