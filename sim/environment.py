"""A task as a gymnasium environment, with calls below it that do not draw what nobody looks at.

Observations are those of the contract: `rgb/overhead`, `joints/position`, `T_base_gripper/left` and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.rigid import Matrix
from stringline.datasets.validation import validate_action
from stringline.sim.rendering import DEPTH_UNIT_M, Renderer, intrinsics
from stringline.sim.tasks.tabletop import TabletopTask

ALL_CAMERAS = ("overhead", "wrist_left", "wrist_right", "table")
TO_CONTRACT = np.diag([1.0, -1.0, -1.0])  # MuJoCo's cameras look along -z with y up.


@dataclass(frozen=True)
class StepResult:
    """What a step led to.

    Attributes:
        success: Whether the task is done now.
        stage: The furthest stage of this episode.
        time: Seconds since the episode began.
        expired: Whether the time limit has passed.
    """

    success: bool
    stage: int
    time: float
    expired: bool


class TaskEnvironment(gymnasium.Env[dict[str, Array], Array]):
    """One task with its cameras; an episode is a function of its seed and the actions.

    Args:
        task: What is on the table and what counts.
        cameras: Which ones `observe` draws.
        image_size: Rows and columns of the pictures.
        control_hz: Actions per second.
        frame_hz: Pictures per second: `observe` draws again only when a new frame is due.
        time_limit_s: When an episode is cut off.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - gymnasium's own annotation.
    render_mode = "rgb_array"

    def __init__(
        self,
        task: TabletopTask,
        *,
        cameras: Sequence[str] = ALL_CAMERAS,
        image_size: int = 128,
        control_hz: float = 50.0,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
    ) -> None:
        every = control_hz / frame_hz
        if every < 1 or abs(every - round(every)) > 1e-9:
            raise ValueError(f"frame_hz is {frame_hz}; it must divide control_hz ({control_hz}).")
        self.task, self.time_limit_s = task, time_limit_s
        task.control_timestep = 1.0 / control_hz
        self.contract: Contract = ALOHA.contract(
            [Camera(name, image_size, image_size, "simulated") for name in cameras], control_hz
        )
        self._frame_every, self._substeps = round(every), task.physics_steps_per_control_step
        self._random = np.random.RandomState(0)
        self.physics = mjcf.Physics.from_mjcf_model(task.root_entity.mjcf_model)
        for entity in task.root_entity.iter_entities():
            entity.after_compile(self.physics, self._random)
        task.after_compile(self.physics, self._random)
        self._camera_ids = {name: _camera_id(self.physics, name) for name in cameras}
        fovy = {mount.name: mount.fovy_deg for mount in ALOHA.cameras}
        self._intrinsics = {name: intrinsics(image_size, image_size, fovy[name]) for name in cameras}
        self._renderer = Renderer(self.physics.model.ptr, image_size, image_size)
        self._step, self._frames = 0, dict[str, Array]()
        self.observation_space = _observation_space(self.contract)
        self.action_space = gymnasium.spaces.Box(ALOHA.lower.astype(np.float32), ALOHA.upper.astype(np.float32))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begins the episode of that seed, by default of a random one; options go to the task's `configure`."""
        self.begin(seed, options)
        return self._observation(), self._info(self._result())

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Applies one action (14,) and returns observation, reward, terminated, truncated and info."""
        result = self.advance(action)
        return self._observation(), float(result.success), result.success, result.expired, self._info(result)

    def begin(self, seed: int | None = None, options: Mapping[str, float] | None = None) -> None:
        """Begins an episode without looking at it.

        Raises:
            ValueError: The task does not know an option.
        """
        super().reset(seed=seed)
        self.task.configure(**(options or {}))
        self._random = np.random.RandomState(self.np_random.integers(2**32))
        with self.physics.reset_context():
            self.task.initialize_episode(self.physics, self._random)
        self._step = 0
        self._frames.clear()

    def advance(self, action: Array) -> StepResult:
        """Applies one action (14,), absolute joint targets in rad and openings, for one control period.

        Raises:
            ValueError: It has another length or is not finite.
        """
        targets: Vector = np.asarray(action, dtype=np.float64)
        validate_action(targets, self.contract)
        self.task.before_step(self.physics, targets, self._random)
        self.physics.step(self._substeps)
        self._step += 1
        self.task.after_step(self.physics, self._random)
        return self._result()

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame at this step."""
        return self._step % self._frame_every == 0

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        return self._step / self.contract.control_hz

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns what the contract says about now; pictures are those of the latest frame, and not to be changed.

        Args:
            cameras: False leaves all pictures and their geometry out.
        """
        observation = self.state()
        if cameras:
            if self.frame_due or not self._frames:
                self._frames = self._draw()
            observation |= self._frames
        return observation

    def state(self) -> dict[str, Array]:
        """Returns time, joints and gripper poses of one observation."""
        robot, q = self.task.robot, self.task.robot.positions(self.physics)
        poses = {f"T_base_gripper/{arm}": T.astype(np.float32) for arm, T in ALOHA.forward_kinematics(q).items()}
        return {
            "time": np.asarray(self.time),
            "joints/position": q.astype(np.float32),
            "joints/velocity": robot.velocities(self.physics).astype(np.float32),
            "joints/effort": robot.efforts(self.physics).astype(np.float32),
            **poses,
        }

    def render(self) -> NDArray[np.uint8]:
        """Returns the picture (H, W, 3) of the first camera, or of the overhead one where there is none."""
        self._renderer.update(self.physics.data.ptr)
        name = self.contract.cameras[0].name if self.contract.cameras else "overhead"
        return self._renderer.picture(_camera_id(self.physics, name))[0]

    def close(self) -> None:
        """Gives the graphics and the physics back."""
        self._renderer.close()
        self.physics.free()

    def _observation(self) -> dict[str, Array]:
        """Returns one that its receiver may change, as gymnasium wants it."""
        return {key: value.copy() for key, value in self.observe().items()}

    def _draw(self) -> dict[str, Array]:
        found: dict[str, Array] = {}
        if self._camera_ids:
            self._renderer.update(self.physics.data.ptr)
        for name, number in self._camera_ids.items():
            found[f"rgb/{name}"], found[f"depth/{name}"] = self._renderer.picture(number)
            found[f"time/{name}"] = np.asarray(self.time)
            found[f"intrinsics/{name}"] = self._intrinsics[name]
            found[f"T_base_camera/{name}"] = self._camera_pose(number).astype(np.float32)
        return found

    def _camera_pose(self, number: int) -> Matrix:
        result = np.eye(4)
        result[:3, :3] = self.physics.data.cam_xmat[number].reshape(3, 3) @ TO_CONTRACT
        result[:3, 3] = self.physics.data.cam_xpos[number]
        return result

    def _result(self) -> StepResult:
        return StepResult(self.task.success, self.task.stage, self.time, self.time >= self.time_limit_s - 1e-9)

    def _info(self, result: StepResult) -> dict[str, Any]:
        return {"success": result.success, "stage": result.stage, "stages": self.task.stages, "time": result.time}


def _camera_id(physics: mjcf.Physics, name: str) -> int:
    """Cameras of an attached model bear its name in front: `aloha/left/wrist_left`."""
    for number in range(physics.model.ncam):
        if physics.model.id2name(number, "camera").split("/")[-1] == name:
            return number
    raise ValueError(f"The model has no camera {name!r}.")


def _observation_space(contract: Contract) -> gymnasium.Space[dict[str, Array]]:
    def numbers(*shape: int, kind: type[np.floating[Any]] = np.float32) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(-np.inf, np.inf, shape, kind)

    spaces: dict[str, gymnasium.Space[Any]] = {"time": numbers(kind=np.float64)}
    spaces |= {f"joints/{kind}": numbers(len(contract.joints)) for kind in ("position", "velocity", "effort")}
    spaces |= {f"T_base_gripper/{arm}": numbers(4, 4) for arm in contract.arms}
    for camera in contract.cameras:
        size = (camera.height, camera.width)
        spaces[f"rgb/{camera.name}"] = gymnasium.spaces.Box(0, 255, (*size, 3), np.uint8)
        spaces[f"depth/{camera.name}"] = gymnasium.spaces.Box(0, round(65.535 / DEPTH_UNIT_M), size, np.uint16)
        spaces[f"time/{camera.name}"] = numbers(kind=np.float64)
        spaces[f"intrinsics/{camera.name}"] = numbers(3, 3)
        spaces[f"T_base_camera/{camera.name}"] = numbers(4, 4)
    return cast("gymnasium.Space[dict[str, Array]]", gymnasium.spaces.Dict(spaces))
