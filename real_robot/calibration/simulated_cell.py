"""A rendered cell whose cameras are not where its drawing has them: what calibrations are held against."""

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, quaternion
from stringline.real_robot.calibration.detections import carried
from stringline.sim.environment.factory import make_environment
from stringline.sim.environment.segments import segments
from stringline.sim.environment.world_cameras import Cameras

_TO_CONTRACT = np.diag([1.0, -1.0, -1.0, 1.0])  # MuJoCo's cameras look along -z with y up.


class SimulatedCell:
    """Renders a world at given joints, without waiting for its arms to get there.

    Args:
        task: `module:Class` of a world, such as those of `board_world.py`.
        cameras: That are drawn.
        size: Rows and columns.
        image_noise: Standard deviation of what is added to each colour of a pixel, of 255.
        joint_noise_rad: The same of what encoders report.
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
        self.body: Embodiment = made.embodiment
        parts = segments(made, self._world.physics)
        self._cameras = Cameras(
            self._world.physics, self.body.cameras, self._names, size, parts, shifts=made.shifts
        )
        self.contract: Contract = self.body.contract(
            [Camera(name, *size, "simulated") for name in self._names], 50.0
        )
        model = self._world.physics.model
        self._drawn = model.cam_pos.copy(), model.cam_quat.copy()
        self._rng = np.random.default_rng(0)
        self._time = 0.0

    def begin(self, seed: int, knocks: Mapping[str, Matrix]) -> None:
        """Begins anew with cameras where the drawing has them, but for a knock.

        Args:
            seed: Of all noise.
            knocks: (4, 4) by camera, in its own frame, metres.
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
        """Puts the joints (J,) there and returns what the contract says of it, with all noise, some seconds after the last."""
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
        """Returns where a camera really sits on what carries it (4, 4), which is the same at all joints (J,)."""
        physics = self._world.physics
        self._world.task.robot.put(physics, q)
        physics.forward()
        number = self._number(name)
        T_base_camera = (
            pose(physics.data.cam_xpos[number], physics.data.cam_xmat[number].reshape(3, 3))
            @ _TO_CONTRACT
        )
        parent = next(mount.parent for mount in self.body.cameras if mount.name == name)
        return np.asarray(carried(self.body, parent, None, q) @ T_base_camera)

    def close(self) -> None:
        """Gives the graphics and the physics back."""
        self._cameras.close()
        self._world.close()

    def _number(self, name: str) -> int:
        model = self._world.physics.model
        return [
            model.id2name(number, "camera").split("/")[-1] for number in range(model.ncam)
        ].index(name)


def _rotation(quat: NDArray[np.float64]) -> NDArray[np.float64]:
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, quat)
    return turn.reshape(3, 3)
