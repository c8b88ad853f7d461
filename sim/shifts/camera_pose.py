"""Shifts of camera poses, with true or with outdated extrinsics."""

from collections.abc import Sequence
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import CAMERA_FLIP
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.shifts.shift import EpisodeStart, Shift, ShiftedWorld

FARTHEST_M = 0.05
LARGEST_DEG = 5.0
SMALLEST_SHARE = 0.5  # A drawn movement is at least this share of the largest one.


class _MovedCameras(Shift):
    """Static cameras are moved and rotated, at full strength by up to 5 cm and 5 degrees.

    Each camera draws a direction, an axis and a size: 0.5 to 1 of the largest movement, times the
    strength. No camera moves down, where one near the table would sink into it. Cameras on arms are
    not moved.
    """

    def __init__(self) -> None:
        self._movements: dict[int, Matrix] = {}

    def touched(self, scene: ShiftedWorld) -> Sequence[NDArray[Any]]:
        """Returns the poses of all cameras."""
        return (scene.model.cam_pos, scene.model.cam_quat)

    def apply(
        self, scene: ShiftedWorld, start: EpisodeStart, strength: float, rng: np.random.Generator
    ) -> None:
        """Moves all static cameras."""
        self._movements = {
            number: self._move(scene.model, number, strength, rng) for number in _still(scene.model)
        }

    def _move(
        self, model: mujoco.MjModel, number: int, strength: float, rng: np.random.Generator
    ) -> Matrix:
        """Moves a camera; returns the movement (4, 4) in its frame as of the contract."""
        way, axis = (vector / np.linalg.norm(vector) for vector in rng.standard_normal((2, 3)))
        metres, degrees = strength * rng.uniform(SMALLEST_SHARE, 1.0, 2) * (FARTHEST_M, LARGEST_DEG)
        way[2] = abs(way[2])
        turn = np.empty(9)
        quat = np.empty(4)
        mujoco.mju_quat2Mat(turn, model.cam_quat[number])
        old = turn.reshape(3, 3)
        own_way = old.T @ way * metres
        own_turn = rotation_about(axis, np.radians(degrees))
        mujoco.mju_mat2Quat(quat, (old @ own_turn).ravel())
        model.cam_pos[number] += way * metres
        model.cam_quat[number] = quat
        return CAMERA_FLIP @ pose(own_way, own_turn) @ CAMERA_FLIP


class CameraPose(_MovedCameras):
    """Moved cameras whose reported extrinsics are the true ones."""

    name: ClassVar[str] = "camera_pose"


class Miscalibration(_MovedCameras):
    """Moved cameras whose reported extrinsics are those before the movement."""

    name: ClassVar[str] = "miscalibration"

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Returns the pose before the movement."""
        if camera not in self._movements:
            return T_base_camera
        return T_base_camera @ inverse(self._movements[camera])


def _still(model: mujoco.MjModel) -> list[int]:
    """Returns the numbers of the static cameras."""
    static = model.body_weldid[model.cam_bodyid] == 0
    return [int(number) for number in np.flatnonzero(static)]
