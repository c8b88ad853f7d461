"""Displaced cameras are found in the rendered KUKA workcell; and the command end to end."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.contract.contract import Camera
from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.real_robot.calibration.board_world import KukaBoardInHand, KukaBoardOnTable
from stringline.real_robot.calibration.calibration_session import CalibrationSession
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.calibration.capture_set import CaptureSet
from stringline.real_robot.calibration.cloud_alignment import CloudPair, DepthMean, solve_clouds
from stringline.real_robot.calibration.outcome import Outcome, outcome_of
from stringline.real_robot.calibration.simulated_cell import SimulatedCell
from stringline.real_robot.cameras.calibration_file import CalibratedCamera, Calibration
from stringline.real_robot.cameras.camera import Identity
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.drivers.fri.fri_command import Command
from stringline.real_robot.drivers.fri.versions import version_of
from stringline.real_robot.emulators.program.capture_file import captured_in
from stringline.sim.rendering.rendering import intrinsics

WITHIN_MM, WITHIN_DEG = 2.0, 0.2
KNOCK = pose((0.011, -0.008, 0.013), rotation_about((0.6, 0.64, 0.48), np.radians(2.0)))  # 19 mm.
PX = 400


@functools.cache
def composed(*overrides: str) -> DictConfig:
    chosen = ["mode=calibrate", "robot=kuka_emulated", "record=null", "log.folder=null", *overrides]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        return compose("deploy", overrides=chosen)


def settings(*overrides: str) -> dict[str, Any]:
    plain = OmegaConf.to_container(composed(*overrides), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def session(chosen: dict[str, Any]) -> CalibrationSession:
    return CalibrationSession(
        DeploymentSettings.of(chosen), CalibrationSettings.of_deployment(chosen)
    )


def plan(choice: str, **changes: Any) -> CalibrationSettings:
    return CalibrationSettings.of(
        settings(f"calibration={choice}")["calibration"] | changes, IIWA14
    )


def plan_poses(choice: str) -> list[list[float]]:
    poses = plan(choice).poses
    assert poses is not None
    return [[float(value) for value in pose] for pose in poses]


@pytest.fixture(scope="module")
def on_table() -> Iterator[SimulatedCell]:
    cell = SimulatedCell(KukaBoardOnTable.name, ["overhead", "wrist"], (PX, PX))
    yield cell
    cell.close()


@pytest.fixture(scope="module")
def in_hand() -> Iterator[SimulatedCell]:
    cell = SimulatedCell(KukaBoardInHand.name, ["overhead"], (PX, PX))
    yield cell
    cell.close()


def captured(cell: SimulatedCell, chosen: CalibrationSettings, folder: Path) -> CaptureSet:
    captures = CaptureSet(chosen, cell.embodiment, cell.contract, folder, lambda _: None)
    assert chosen.poses is not None
    for number, q in enumerate(chosen.poses, 1):
        for _ in range(chosen.looks):
            captures.take(number, cell.observe(q))
    return captures


def assert_found(outcome: Outcome, truth: Matrix, drawn: Matrix) -> CalibratedCamera:
    """Compares a result with the truth, which must differ from the nominal pose."""
    assert not outcome.summary.problem
    assert outcome.camera is not None
    assert size_of(inverse(drawn) @ truth)[0] > 5 * WITHIN_MM
    mm, degrees = size_of(inverse(truth) @ outcome.camera.T_parent_camera)
    assert mm < WITHIN_MM
    assert degrees < WITHIN_DEG
    return outcome.camera


@pytest.mark.parametrize(
    ("choice", "name"), [("kuka_wrist", "wrist"), ("kuka_overhead", "overhead")]
)
def test_a_knocked_camera_is_found_by_a_board(
    choice: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    cell: SimulatedCell = request.getfixturevalue("on_table" if name == "wrist" else "in_hand")
    chosen = plan(choice)
    cell.begin(1, {name: KNOCK})
    captures = captured(cell, chosen, tmp_path)
    (mount,) = (mount for mount in IIWA14.cameras if mount.name == name)
    outcome = outcome_of(captures, name, Identity("7", PX, PX, 30.0), "today")
    camera = assert_found(outcome, cell.truth(name, IIWA14.home), mount.T_parent_camera)
    assert camera.residual_px is not None
    assert camera.residual_px < 0.5
    assert (camera.serial, camera.parent, camera.size) == ("7", mount.parent, (PX, PX))
    assert camera.poses == len(captures.detections[name]) >= 10
    assert len(list(tmp_path.glob(f"{name}_*.png"))) == len(
        chosen.poses if chosen.poses is not None else ()
    )


def test_a_board_of_another_size_is_noticed(on_table: SimulatedCell, tmp_path: Path) -> None:
    on_table.begin(3, {})
    chosen = plan(
        "kuka_wrist",
        board={"square_mm": 25.0, "marker_mm": 18.3},
        poses=plan_poses("kuka_wrist")[:7],
    )
    refused = outcome_of(
        captured(on_table, chosen, tmp_path), "wrist", Identity("7", PX, PX, 30.0), "today"
    )
    assert refused.camera is None
    assert "a square of the board is 30.0 mm wide; configured: 25" in refused.summary.problem


def test_a_knocked_camera_is_found_by_the_cloud_of_another(
    on_table: SimulatedCell, tmp_path: Path
) -> None:
    on_table.begin(2, {"overhead": KNOCK})
    chosen = plan("kuka_clouds", looks=3, poses=plan_poses("kuka_clouds")[:3])
    captures = captured(on_table, chosen, tmp_path)
    (mount,) = (mount for mount in IIWA14.cameras if mount.name == "overhead")
    outcome = outcome_of(captures, "overhead", Identity("7", PX, PX, 30.0), "today")
    camera = assert_found(outcome, on_table.truth("overhead", IIWA14.home), mount.T_parent_camera)
    assert camera.residual_px is None
    assert camera.method == "clouds"
    assert camera.residual_mm < 1.5


def test_an_empty_table_does_not_determine_the_pose_of_a_camera() -> None:
    px = 48
    camera, K = Camera("overhead", px, px, "simulated"), intrinsics(px, px, 42.0).astype(np.float64)
    mean, seen = DepthMean(camera, K), DepthMean(camera, K)
    with pytest.raises(ValueError, match="The camera 'overhead' has taken no depth image"):
        mean.surface()
    mean.add(np.full((px, px), 600, np.uint16))
    table = mean.surface()
    flat = [CloudPair(number, table, np.eye(4), table, np.eye(4)) for number in (1, 2)]
    with pytest.raises(
        ValueError,
        match="at no pose. pose 1: the common view is too flat .*Put objects on the table",
    ):
        solve_clouds(flat, np.eye(4))
    v, u = np.mgrid[:px, :px]
    pyramid = (600 + 4 * np.abs(u - 24) + 6 * np.abs(v - 21)).astype(np.uint16)
    seen.add(pyramid)
    alone = [
        CloudPair(number, seen.surface(), np.eye(4), seen.surface(), np.eye(4)) for number in (1, 2)
    ]
    with pytest.raises(
        ValueError,
        match=(
            "both cameras see enough of the same at 2 of 2 poses; needed: 3, with 300 points each"
        ),
    ):
        solve_clouds(alone, np.eye(4))
    with pytest.raises(ValueError, match="at no pose. no pose was reached"):
        solve_clouds([], np.eye(4))


def test_images_without_a_board_are_refused(on_table: SimulatedCell, tmp_path: Path) -> None:
    on_table.begin(3, {})
    chosen = plan(
        "kuka_wrist", board={"dictionary": "DICT_7X7_50"}, poses=[IIWA14.home.tolist()] * 2
    )
    captures = captured(on_table, chosen, tmp_path)
    outcome = outcome_of(captures, "wrist", Identity("7", PX, PX, 30.0), "today")
    assert outcome.camera is None
    assert (
        "The camera 'wrist': the board was seen from no pose: no marker of DICT_7X7_50 is seen"
        in outcome.summary.problem
    )
    assert not any(image.used for image in captures.images)


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
    said, count = capsys.readouterr().out, len(poses)
    assert f"ok      poses: {count}, in reach" in said
    assert f"{count} of {count} poses were reached." in said
    assert (
        f"wrist: written to {file}.\nDeployments read it with robot.calibration_file={file}" in said
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
