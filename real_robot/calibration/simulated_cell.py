"""A rendered workcell with displaced cameras, against which calibrations are tested."""

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.real_robot.calibration.detections import carrier_pose
from stringline.sim.environment.factory import make_environment
from stringline.sim.environment.world_cameras import Cameras

_TO_CONTRACT = np.diag([1.0, -1.0, -1.0, 1.0])  # MuJoCo's cameras look along -z with y up.


class SimulatedCell:
    """Renders a world at given joints, without a simulated motion.

    Args:
        task: `module:Class` of a world, such as those of `board_world.py`.
        cameras: Names of the rendered cameras.
        size: Rows and columns of the images.
        image_noise: Standard deviation of the noise of each colour, of 255.
        joint_noise_rad: Standard deviation of the noise of encoders.
    """

    def __init__(
        self,
        task: str,
        cameras: Sequence[str],
        size: tuple[int, int],
        *,
        image_noise: float = 2.0,
        joint_noise_rad: float = 0.0,
    ) -> None:
        self._names = tuple(cameras)
        self._noise = image_noise
        self._joint_noise = joint_noise_rad
        self._world = make_environment(task, cameras=(), image_size=16)
        made = self._world.task
        self.embodiment: Embodiment = made.embodiment
        self._cameras = Cameras(
            self._world.physics, made, self._names, size, segmentation=False, rendering="fast"
        )
        self.contract: Contract = self.embodiment.contract(
            [Camera(name, *size, "simulated") for name in self._names], 50.0
        )
        model = self._world.physics.model
        self._drawn = model.cam_pos.copy(), model.cam_quat.copy()
        self._rng = np.random.default_rng(0)
        self._time = 0.0

    def begin(self, seed: int, knocks: Mapping[str, Matrix]) -> None:
        """Resets the cameras to their nominal poses and displaces some of them.

        Args:
            seed: Seed of all noise.
            knocks: (4, 4) displacement of each camera in its own frame, metres.
        """
        self._world.begin(seed)
        self._rng = np.random.default_rng(seed)
        self._time = 0.0
        model = self._world.physics.model
        model.cam_pos[:], model.cam_quat[:] = self._drawn
        for name, knock in knocks.items():
            number = self._number(name)
            T_body_camera = (
                pose(model.cam_pos[number], _rotation(model.cam_quat[number])) @ _TO_CONTRACT
            )
            moved = T_body_camera @ knock @ _TO_CONTRACT
            model.cam_pos[number] = moved[:3, 3]
            model.cam_quat[number] = quaternion(moved[:3, :3])

    def observe(self, q: Vector, after_s: float = 1.0) -> dict[str, Array]:
        """Sets the joints (J,) and returns a noisy observation, `after_s` after the last one."""
        physics = self._world.physics
        robot = self._world.task.robot
        robot.put(physics, q)
        physics.forward()
        self._time += after_s
        measured = q + self._joint_noise * self._rng.standard_normal(len(q))
        seen: dict[str, Any] = {
            "time": np.asarray(self._time),
            "joints/position": measured.astype(np.float32),
        }
        seen |= self._cameras.frame(self._time)
        for name in self._names:
            clean = seen[f"rgb/{name}"].astype(np.float32)
            noisy = clean + np.float32(self._noise) * self._rng.standard_normal(
                clean.shape, dtype=np.float32
            )
            seen[f"rgb/{name}"] = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
        return seen

    def truth(self, name: str, q: Vector) -> Matrix:
        """Returns the true pose (4, 4) of a camera on its parent, at any joints (J,)."""
        physics = self._world.physics
        self._world.task.robot.put(physics, q)
        physics.forward()
        number = self._number(name)
        T_base_camera = (
            pose(physics.data.cam_xpos[number], physics.data.cam_xmat[number].reshape(3, 3))
            @ _TO_CONTRACT
        )
        parent = next(mount.parent for mount in self.embodiment.cameras if mount.name == name)
        return np.asarray(carrier_pose(self.embodiment, parent, None, q) @ T_base_camera)

    def close(self) -> None:
        """Releases the graphics and the physics."""
        self._cameras.close()
        self._world.close()

    def _number(self, name: str) -> int:
        model = self._world.physics.model
        return [
            model.id2name(number, "camera").split("/")[-1] for number in range(model.ncam)
        ].index(name)


def _rotation(quat: NDArray[np.float64]) -> NDArray[np.float64]:
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, quat)
    return rotation.reshape(3, 3)
