"""Third-party environments with the interface of `TaskEnvironment`.

An `Adapter` is the interface to the simulation of a third-party package. Images, depth and geometry
of its cameras are rendered here from its physics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any, Protocol

import mujoco
import numpy as np

from stringline.datasets.cameras.resampling import checked_image_size
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract, check_action
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.environment.environment import StepResult
from stringline.sim.environment.sensing import (
    FrameSchedule,
    camera_pose,
    check_time_limit,
    joint_state,
)
from stringline.sim.rendering.rendering import (
    FAR_M,
    LARGEST_IMAGE,
    NEAR_M,
    Renderer,
    intrinsics,
)
from stringline.sim.robots.arm_appearance import PRIMITIVES


@dataclass(frozen=True)
class CameraView:
    """A camera of a third-party model, with its vertical field of view."""

    camera: str
    fovy_deg: float


@dataclass(frozen=True)
class TaskDescription:
    """The constants of a third-party task.

    Attributes:
        stages: Names, one more than the steps of the reward; the last one is success.
        embodiment: The embodiment, whose joints are those of the contract.
        views: Cameras by their names in the contract.
        T_base_world: (4, 4), from the frame of the environment to the base of the embodiment.
        image_delay_s: Age of the observed images.
        joint_delay_s: Age of the observed joints.
    """

    name: str
    instruction: str
    stages: tuple[str, ...]
    embodiment: Embodiment
    views: Mapping[str, CameraView]
    T_base_world: Matrix
    control_hz: float = 50.0
    image_delay_s: float = 0.0
    joint_delay_s: float = 0.0


@dataclass(frozen=True)
class JointMeasurement:
    """Joints (J,) in the units of the contract: rad and openings, their rates, and Nm and N."""

    position: Vector
    velocity: Vector
    effort: Vector


class Adapter(Protocol):
    """A third-party simulation."""

    @property
    def about(self) -> TaskDescription:
        """The constants of the task."""
        ...

    @property
    def physics(self) -> Any:
        """The dm_control physics; `begin` may replace it."""
        ...

    @property
    def stage(self) -> int:
        """The current stage according to the reward."""
        ...

    @property
    def unstable(self) -> bool:
        """Whether the physics became unstable in this episode."""
        ...

    def begin(self, seed: int) -> None:
        """Begins the episode that the third-party package begins with that seed."""

    def advance(self, action: Vector) -> None:
        """Applies joint targets (J,) of the contract for one control period."""

    def measure(self) -> JointMeasurement:
        """Returns the current joints."""
        ...

    def close(self) -> None:
        """Frees the physics."""


def check_version(package: str, module: str, version: str, how: str) -> None:
    """Checks the version of a third-party package; a module without metadata is accepted.

    `how` is a sentence on the installation.

    Raises:
        ValueError: The package is not installed or has another version.
    """
    if util.find_spec(module) is None:
        raise ValueError(f"{package} is not installed. {how}")
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:  # A folder on Python's path.
        return
    if found != version:
        raise ValueError(f"{package} {found} is installed; Stringline needs {version}. {how}")


class ThirdPartyCameras:
    """Renders cameras of a third-party environment, by their names in the contract.

    `size` has rows and columns of the images. `T_base_world` (4, 4) maps the frame of the
    environment to the base of the embodiment.

    Raises:
        ValueError: A camera is unknown, or the size of the images is out of range.
    """

    def __init__(
        self,
        names: Sequence[str],
        views: Mapping[str, CameraView],
        size: tuple[int, int],
        T_base_world: Matrix,
    ) -> None:
        for name in names:
            if name not in views:
                raise unknown_name("camera", name, views)
        if not all(0 < pixels <= LARGEST_IMAGE for pixels in size):
            got = "x".join(map(str, size))
            most = f"{LARGEST_IMAGE}x{LARGEST_IMAGE}"
            raise ValueError(f"The image size is {got}; allowed: 1x1 to {most}.")
        self._views = {name: views[name] for name in names}
        self._size = size
        self._T_base_world = T_base_world
        self._intrinsics = {
            name: intrinsics(*size, view.fovy_deg) for name, view in self._views.items()
        }
        self._model: mujoco.MjModel | None = None
        self._numbers = dict[str, int]()
        self._renderer: Renderer | None = None

    def look_at(self, physics: Any) -> None:
        """Prepares rendering if the physics has a new model."""
        model = physics.model.ptr
        if model is self._model:
            return
        self.close()
        make_flat(model)
        kind = mujoco.mjtObj.mjOBJ_CAMERA
        self._numbers = {
            name: mujoco.mj_name2id(model, kind, view.camera) for name, view in self._views.items()
        }
        for name, number in self._numbers.items():
            if number < 0:  # MuJoCo would render its own free camera.
                raise unknown_name(
                    "camera of the third-party model",
                    self._views[name].camera,
                    _camera_names(model),
                )
            model.cam_fovy[number] = self._views[name].fovy_deg
            model.cam_sensorsize[number] = 0.0  # Otherwise its aspect ratio stretches the image.
        self._model = model
        self._renderer = Renderer(model, *self._size)

    def frame(self, physics: Any, time: float) -> dict[str, Array]:
        """Renders images and geometry of all cameras at the current `time`, seconds."""
        self.look_at(physics)
        assert self._renderer is not None
        found: dict[str, Array] = {}
        if self._numbers:
            self._renderer.update(physics.data.ptr)
        for name, number in self._numbers.items():
            found[f"rgb/{name}"], found[f"depth/{name}"] = self._renderer.image(number)
            found[f"time/{name}"] = np.asarray(time)
            found[f"intrinsics/{name}"] = self._intrinsics[name]
            T_base_camera = self._T_base_world @ camera_pose(physics.data, number)
            found[f"T_base_camera/{name}"] = T_base_camera.astype(np.float32)
        return found

    def close(self) -> None:
        """Frees the graphics."""
        if self._renderer is not None:
            self._renderer.close()
        self._renderer = self._model = None


def make_flat(model: mujoco.MjModel) -> None:
    """Turns off shadows and multi-sampling of a model, without effect on its dynamics."""
    model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
    model.vis.map.znear = NEAR_M
    model.vis.map.zfar = FAR_M
    model.vis.global_.offwidth = model.vis.global_.offheight = LARGEST_IMAGE
    model.stat.extent = 1.0  # Near and far planes are multiples of the extent.


def _camera_names(model: mujoco.MjModel) -> list[str]:
    """Returns the names of a model's cameras."""
    return [
        str(mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_CAMERA, number))
        for number in range(model.ncam)
    ]


LARGEST_SEED = 2**32 - 1


@dataclass
class ThirdPartyTask:
    """A task with the furthest stage of the current episode."""

    name: str
    instruction: str
    stages: tuple[str, ...]
    stage: int = 0


class ThirdPartyEnvironment:
    """A third-party environment with cameras, a clock and a contract.

    An episode is a function of its seed and its actions. For the arguments see `TaskEnvironment`.
    The rate of actions must be that of the environment, and the robot model `primitives`, because
    the environment has arms of its own. The adapter is closed with this object.

    Raises:
        ValueError: An argument is unknown or out of range.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        cameras: Sequence[str] | None = None,
        image_size: int | Sequence[int] = 128,
        control_hz: float = 50.0,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
        robot_model: str = PRIMITIVES,
    ) -> None:
        about = adapter.about
        size = checked_image_size(image_size)
        check_time_limit(time_limit_s)
        _check_fixed(about, control_hz, robot_model)
        self._schedule = FrameSchedule(
            control_hz,
            frame_hz,
            look=lambda time: self._cameras.frame(self.physics, time),
            measure=self._measure,
            image_delay_s=about.image_delay_s,
            joint_delay_s=about.joint_delay_s,
        )
        names = list(about.views) if cameras is None else cameras
        self.adapter = adapter
        self.time_limit_s = time_limit_s
        self.embodiment: Embodiment = about.embodiment
        self.task = ThirdPartyTask(about.name, about.instruction, about.stages)
        self._cameras = ThirdPartyCameras(names, about.views, size, about.T_base_world)
        seen = [Camera(name, *size, "simulated") for name in names]
        self.contract: Contract = about.embodiment.contract([], control_hz).with_cameras(*seen)
        self._success = False

    @property
    def physics(self) -> Any:
        """The dm_control physics of the environment."""
        return self.adapter.physics

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame in this period."""
        return self._schedule.frame_due

    @property
    def start(self) -> Vector:
        """Joints (J,) at the start of the episode: those of the home pose."""
        return self.embodiment.home

    @property
    def time(self) -> float:
        """Seconds since the start of the episode."""
        return self._schedule.time

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuses all options: third-party environments do not have options."""
        check_no_options(self.task.name, options)

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begins the episode that the third-party package begins with that seed.

        Raises:
            ValueError: An option is given, or the seed is out of range.
        """
        self.check_options(options or {})
        seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        if not 0 <= seed <= LARGEST_SEED:
            raise ValueError(f"The seed is {seed}; {self.task.name} takes 0 to {LARGEST_SEED}.")
        self.adapter.begin(seed)
        self.task.stage = 0
        self._success = False
        self._schedule.begin()

    def advance(self, action: Array) -> StepResult:
        """Applies one action (J,): absolute joint targets in rad, and openings of grippers.

        After success or unstable physics nothing moves.
        """
        targets: Vector = np.asarray(action, dtype=np.float64)
        check_action(targets, self.contract)
        self._schedule.advance()
        adapter = self.adapter
        if not self._success and not adapter.unstable:
            adapter.advance(targets)
            self.task.stage = max(self.task.stage, adapter.stage)
            self._success = adapter.stage == len(self.task.stages) - 1 and not adapter.unstable
        expired = adapter.unstable or self.time >= self.time_limit_s - 1e-9
        return StepResult(self._success, self.task.stage, self.time, expired, adapter.unstable)

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns the observation, with the delays of the environment; do not modify its arrays."""
        return self._schedule.observe(cameras)

    def pose(self, body: str) -> Matrix:
        """Returns the true pose (4, 4) of a body of the model in the base frame."""
        number = self.physics.model.name2id(body, "body")
        data = self.physics.data
        return self.adapter.about.T_base_world @ pose(
            data.xpos[number], data.xmat[number].reshape(3, 3)
        )

    def joints(self) -> Vector:
        """Returns the current true joint positions (J,)."""
        return self.adapter.measure().position

    def close(self) -> None:
        """Frees graphics and physics."""
        self._cameras.close()
        self.adapter.close()

    def _measure(self) -> dict[str, Array]:
        now = self.adapter.measure()
        return joint_state(self.embodiment, now.position, now.velocity, now.effort)


def _check_fixed(about: TaskDescription, control_hz: float, robot_model: str) -> None:
    """Refuses other arms and another rate of actions than those of the third-party task."""
    if robot_model != PRIMITIVES:
        raise ValueError(
            f"robot.model is {robot_model!r}; {about.name} has arms of its own. Omit robot.model."
        )
    if control_hz != about.control_hz:
        raise ValueError(
            f"control_hz is {control_hz}; {about.name} has {about.control_hz} actions per second."
        )


def check_no_options(task: str, options: Mapping[str, Any]) -> None:
    """Checks that a third-party task gets no options.

    Raises:
        ValueError: An option is given.
    """
    for name in options:
        raise unknown_name(f"option of the task {task!r}", name, [])
