"""Settings, images and checks of calibrations of displaced cameras in the rendered KUKA cell."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.datasets.pointclouds.camera_check import size_of
from stringline.real_robot.calibration.board_world import SimulatedCell
from stringline.real_robot.calibration.calibration_session import Outcome
from stringline.real_robot.calibration.calibration_settings import CalibrationSettings
from stringline.real_robot.calibration.capture_set import CaptureSet
from stringline.real_robot.cameras.calibration_file import CalibratedCamera

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


def plan(choice: str, **changes: Any) -> CalibrationSettings:
    return CalibrationSettings.of(
        settings(f"calibration={choice}")["calibration"] | changes, IIWA14
    )


def plan_poses(choice: str) -> list[list[float]]:
    poses = plan(choice).poses
    assert poses is not None
    return [[float(value) for value in pose] for pose in poses]


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
