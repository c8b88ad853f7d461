"""The command for calibrations, end to end on an emulated arm in the rendered workcell."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.real_robot.calibration.displaced_cameras import PX, WITHIN_DEG, WITHIN_MM, settings

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.embodiments.transforms import inverse
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.real_robot.calibration.board_world import KukaBoardOnTable, SimulatedCell
from stringline.real_robot.calibration.calibration_session import CalibrationSession
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.drivers.fri.messages import Command
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.program.capture_file import captured_in


def session(chosen: dict[str, Any]) -> CalibrationSession:
    return CalibrationSession(
        DeploymentSettings.of(chosen), CalibrationSettings.of_deployment(chosen)
    )


@pytest.fixture(scope="module")
def on_table() -> Iterator[SimulatedCell]:
    cell = SimulatedCell(KukaBoardOnTable.name, ["overhead", "wrist"], (PX, PX))
    yield cell
    cell.close()


@pytest.mark.slow
def test_the_command_writes_a_file_with_the_pose_of_the_camera(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], on_table: SimulatedCell
) -> None:
    file = tmp_path / "calibration.yaml"
    known = CalibratedCamera("1", "world", np.eye(4), (PX, PX), 1.0, 0.1)
    Calibration({"overhead": known}).write(file, IIWA14)
    chosen = settings(
        "calibration=kuka_wrist",
        "task=kuka_board_on_table",
        "task.frame_hz=2.5",
        "robot.device_hz=50",
        "robot.cameras=[wrist]",
        "calibration.speed=1.8",
        "calibration.settle_s=0.2",
        "calibration.image_px=360",
        f"calibration.file={file}",
        f"output={tmp_path}",
    )
    poses = chosen["calibration"]["poses"] = chosen["calibration"]["poses"][:6]
    chosen["robot"]["emulator"]["capture"] = tmp_path
    assert session(chosen).run()
    output, count = capsys.readouterr().out, len(poses)
    assert f"ok      poses: {count}, in reach" in output
    assert f"{count} of {count} poses were reached." in output
    assert (
        f"wrist: written to {file}.\nDeployments read it with robot.calibration_file={file}"
        in output
    )
    version = version_of(chosen["robot"]["driver"]["version"])
    commands = [
        Command.of(version, one.data) for one in captured_in((tmp_path / "arm.bin").read_bytes())
    ]
    assert np.ptp([command.position for command in commands], axis=0).max() > 0.5
    assert not any(command.outputs for command in commands)  # A gripper keeps holding its object.
    found = Calibration.read(file, IIWA14)
    assert set(found.cameras) == {"overhead", "wrist"}
    on_table.begin(0, {})
    mm, degrees = size_of(
        inverse(on_table.truth("wrist", IIWA14.home)) @ found.cameras["wrist"].T_parent_camera
    )
    assert mm < WITHIN_MM
    assert degrees < WITHIN_DEG
    assert found.check("wrist", "emulated/wrist").startswith("calibrated, residual")
    page = (tmp_path / "calibration" / "summary.html").read_text()
    assert page.count("<img ") == count
    assert 'wrist: <span class="good">written</span>' in page
    visited = (tmp_path / "calibration" / "poses.yaml").read_text()
    assert visited.startswith("poses:")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ((), "mode=calibrate needs the settings of a calibration: calibration=kuka_wrist"),
        (
            ("calibration=kuka_wrist", "calibration.poses=null"),
            "Emulated arms cannot be moved by hand: calibration.poses",
        ),
    ],
)
def test_impossible_calibrations_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        session(settings(*overrides))


@pytest.mark.slow
def test_nothing_moves_before_file_cameras_and_poses_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text("cameras: 3")
    under = IIWA14.home.copy()
    under[1] = 1.4
    chosen = settings(
        "calibration=kuka_clouds",
        "task.cameras=[overhead]",
        f"calibration.poses=[{under.tolist()}]",
        f"calibration.file={file}",
        f"output={tmp_path}",
    )
    with pytest.raises(ValueError, match="Not started") as refused:
        session(chosen).run()
    for message in (
        "file of the result: The calibration file",
        "cameras of the calibration: ",
        "poses: pose 1: an arm would be",
    ):
        assert message in str(refused.value)
