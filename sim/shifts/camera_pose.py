"""Cameras that do not stand where they stood, with true or with outdated extrinsics."""

from collections.abc import Sequence
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.mjcf_parts import CAMERA_FLIP
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.shifts.shift import Scene, Shift, Start

FARTHEST_M = 0.05
LARGEST_DEG = 5.0
SMALLEST_SHARE = 0.5  # A drawn movement is at least this share of the largest one.


class _MovedCameras(Shift):
    """Cameras that stand still are moved and turned; at full strength by up to 5 cm and 5 degrees.

    Each camera draws a direction and an axis, and how far it goes: 0.5 to 1 of the largest
    movement, times the strength. None goes down, where one near the table would sink into it.
    Cameras on arms stay where they are.
    """

    def __init__(self) -> None:
        self._movements: dict[int, Matrix] = {}

    def touched(self, scene: Scene) -> Sequence[NDArray[Any]]:
        """Poses of all cameras."""
        return (scene.model.cam_pos, scene.model.cam_quat)

    def apply(self, scene: Scene, start: Start, strength: float, rng: np.random.Generator) -> None:
        """Moves them."""
        self._movements = {
            number: self._move(scene.model, number, strength, rng) for number in _still(scene.model)
        }

    def _move(
        self, model: mujoco.MjModel, number: int, strength: float, rng: np.random.Generator
    ) -> Matrix:
        """Moves one and returns its movement (4, 4) in its own frame, in the contract's convention."""
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
    """Moved cameras whose reported extrinsics are those from before."""

    name: ClassVar[str] = "miscalibration"

    def reported(self, T_base_camera: Matrix, camera: int) -> Matrix:
        """Takes the movement back."""
        return (
            T_base_camera @ inverse(self._movements[camera])
            if camera in self._movements
            else T_base_camera
        )


def _still(model: mujoco.MjModel) -> list[int]:
    """Returns the numbers of the cameras that do not move with anything."""
    return [
        number for number in range(model.ncam) if model.body_weldid[model.cam_bodyid[number]] == 0
    ]
