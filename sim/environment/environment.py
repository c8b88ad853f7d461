"""A task as a gymnasium environment, and a lower-level interface that draws images on demand only.

Observations are those of the contract: `rgb/overhead`, `joints/position`, `T_base_gripper/left` and
so on. `stringline.sim.environment.gym_registration` registers all tasks for `gymnasium.make`.
"""

import copy
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import gymnasium
import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.cameras.resampling import checked_image_size
from stringline.datasets.contract.contract import Array, Camera, Contract, check_action
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.embodiment_record import record_of
from stringline.sim.environment.sensing import (
    Cameras,
    Delayed,
    FrameSchedule,
    check_time_limit,
    joint_state,
)
from stringline.sim.rendering.rendering import Rendering
from stringline.sim.robots.arm_appearance import PRIMITIVES, RobotModel
from stringline.sim.robots.robot_model import set_robot_model
from stringline.sim.tasks.handling import Handling
from stringline.sim.tasks.tabletop import TabletopTask
from stringline.sim.tasks.task_registry import make_task

Space = gymnasium.spaces.Box


def observation_space(
    contract: Contract, segments: int | None = None
) -> gymnasium.Space[dict[str, Array]]:
    """Returns the space of observations, with segmentations if a number of segments is given."""
    spaces: dict[str, gymnasium.Space[Any]] = {"time": _numbers(kind=np.float64)}
    spaces |= {
        f"joints/{kind}": _numbers(len(contract.joints))
        for kind in ("position", "velocity", "effort")
    }
    spaces |= {f"T_base_gripper/{arm}": _numbers(4, 4) for arm in contract.arms}
    for camera in contract.cameras:
        size = (camera.height, camera.width)
        name = camera.name
        spaces[f"rgb/{name}"] = Space(0, 255, (*size, 3), np.uint8)
        spaces[f"depth/{name}"] = Space(0, np.iinfo(np.uint16).max, size, np.uint16)
        if segments is not None:
            spaces[f"segmentation/{name}"] = Space(0, segments - 1, size, np.uint8)
        spaces[f"time/{name}"] = _numbers(kind=np.float64)
        spaces[f"intrinsics/{name}"] = _numbers(3, 3)
        spaces[f"T_base_camera/{name}"] = _numbers(4, 4)
    return cast("gymnasium.Space[dict[str, Array]]", gymnasium.spaces.Dict(spaces))


def action_space(embodiment: Embodiment) -> gymnasium.spaces.Box:
    """Returns the space of actions (J,): joint targets in rad and openings, within their limits."""
    return Space(embodiment.lower.astype(np.float32), embodiment.upper.astype(np.float32))


def _numbers(*shape: int, kind: type[np.floating[Any]] = np.float32) -> gymnasium.spaces.Box:
    return Space(-np.inf, np.inf, shape, kind)


# In the order of MuJoCo's counters; the last member is the number of the others.
PROBLEMS = tuple(mujoco.mjtWarning.__members__)[:-1]


def compile_task(
    task: TabletopTask, robot_model: RobotModel, random_state: np.random.RandomState
) -> mjcf.Physics:
    """Compiles the model of a task, with the arms drawn by a robot model."""
    set_robot_model(task.robot, robot_model)
    physics = mjcf.Physics.from_mjcf_model(task.root_entity.mjcf_model)
    for entity in task.root_entity.iter_entities():
        entity.after_compile(physics, random_state)
    task.after_compile(physics, random_state)
    return physics


class Stepper:
    """Advances the physics by control periods of `substeps`, and resets it if it diverges.

    Attributes:
        problems: Names of MuJoCo's warnings in this episode; empty as long as the physics is
            stable.
    """

    def __init__(self, physics: mjcf.Physics, substeps: int) -> None:
        self._physics = physics
        self._substeps = substeps
        # MuJoCo's own counters, not a copy.
        self._counters: NDArray[np.int32] = physics.data.warning.number
        self.problems: tuple[str, ...] = ()

    def begin(self) -> None:
        """Begins an episode."""
        self._counters[:] = 0
        self.problems = ()

    def step(self) -> None:
        """Advances the physics by one control period."""
        model = self._physics.model.ptr
        data = self._physics.data.ptr
        # The order of dm_control's step, without its checks, which would raise: positions, contacts
        # and cameras are those of the period's end.
        mujoco.mj_step2(model, data)
        mujoco.mj_step(model, data, self._substeps - 1)
        mujoco.mj_step1(model, data)
        if self._counters.any():
            pairs = zip(PROBLEMS, self._counters, strict=False)
            # An unknown counter has no name.
            self.problems = tuple(name for name, count in pairs if count) or ("unknown",)
            self._physics.reset()


logger = logging.getLogger(__name__)

_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    Attributes:
        success: Whether the task is done now.
        stage: Index of the furthest stage of this episode.
        expired: Whether the episode is truncated: its time is up, or it is unstable.
        unstable: Whether the physics has diverged in this episode, which then counts as failed.
    """

    success: bool
    stage: int
    time: float
    expired: bool
    unstable: bool = False


class TaskEnvironment(gymnasium.Env[dict[str, Array], Array]):
    """One task with its cameras; an episode is a function of its seed and the actions.

    OpenGL is initialised with the first image, so an environment can be made in one process and
    used in one that is forked from it; a process that has drawn must not be forked
    (`AsyncVectorEnv(..., context="spawn")`).

    Args:
        task: The task.
        cameras: Names of the cameras in observations; if None, all of the embodiment.
        image_size: Rows and columns of the images: one number for both, or two.
        control_hz: Actions per second.
        frame_hz: Images per second; `observe` draws again only when a new frame is due.
        time_limit_s: Time at which an episode is truncated, seconds.
        image_delay_s: Time from the capture of a frame until `observe` returns it, a multiple of
            the control period. Frames have their capture times (`time/<camera>`) and the geometry
            of that time. Until one has arrived, the frame of the episode's start is returned.
        joint_delay_s: The same for joints and gripper poses, which always are of one time.
        segmentation: Whether observations have `segmentation/<camera>` (H, W) uint8, the index in
            `segments` for each pixel.
        rendering: `fast`, or `pretty` for videos: two by two samples per pixel, and objects cast
            shadows. It takes ten times longer and changes colours only.
        render_mode: `rgb_array`, or None: `render` draws nothing.
        robot_model: Appearance of the arms: `primitives`, or `menagerie` for the meshes of MuJoCo
            Menagerie. It changes colours and depth, and no motion.

    Attributes:
        segments: Names of the segments: `nothing`, `table`, the arms, then the objects of the task
            in a fixed order.

    Raises:
        ValueError: An argument is unknown or out of range.
    """

    # gymnasium's own annotation.
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(
        self,
        task: TabletopTask,
        *,
        cameras: Sequence[str] | None = None,
        image_size: int | Sequence[int] = 128,
        control_hz: float = 50.0,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
        image_delay_s: float = 0.0,
        joint_delay_s: float = 0.0,
        segmentation: bool = False,
        rendering: Rendering = "fast",
        render_mode: str | None = "rgb_array",
        robot_model: RobotModel = PRIMITIVES,
    ) -> None:
        delays = {"image_delay_s": image_delay_s, "joint_delay_s": joint_delay_s}
        self._schedule = FrameSchedule(
            control_hz, frame_hz, look=self._look, measure=self._measure, **delays
        )
        _check_settings(render_mode, time_limit_s)
        size = checked_image_size(image_size)
        self.task = task
        self.time_limit_s = time_limit_s
        self.render_mode = render_mode
        self.metadata = self.metadata | {"render_fps": control_hz}
        names = [mount.name for mount in task.embodiment.cameras] if cameras is None else cameras
        contract_cameras = [Camera(name, *size, "simulated") for name in names]
        self.contract: Contract = task.embodiment.contract(contract_cameras, control_hz)
        if task.cell.source is not None:  # So data and policies do not need the file.
            record = record_of(task.embodiment)
            self.contract = replace(self.contract, kinematics=record)
        task.control_timestep = 1.0 / control_hz
        self._random = np.random.RandomState(0)
        self.physics = compile_task(task, robot_model, self._random)
        self._stepper = Stepper(self.physics, task.physics_steps_per_control_step)
        self._cameras = Cameras(
            self.physics, task, names, size, segmentation=segmentation, rendering=rendering
        )
        self.segments = self._cameras.segments
        count = len(self.segments) if segmentation else None
        self.observation_space = observation_space(self.contract, count)
        self.action_space = action_space(task.embodiment)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begins an episode, by default of a random seed; see `begin`."""
        self.begin(seed, options)
        return self._observation(), self._info(self._result())

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Applies an action (J,); returns observation, reward, terminated, truncated, info."""
        result = self.advance(action)
        reward = float(result.success)
        info = self._info(result)
        return self._observation(), reward, result.success, result.expired, info

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begins an episode without an observation.

        Raises:
            ValueError: An option is unknown or out of range.
        """
        super().reset(seed=seed)
        self.task.configure(**(options or {}))
        self._random = np.random.RandomState(self.np_random.integers(2**32))
        with self.physics.reset_context():
            self.task.initialize_episode(self.physics, self._random)
        self._stepper.begin()
        self._schedule.begin()

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Checks the options of an episode.

        Raises:
            ValueError: An option is unknown or out of range.
        """
        self.task.configure(**options)

    def advance(self, action: Array) -> StepResult:
        """Applies one action (J,), joint targets in rad and openings, for one control period.

        An episode whose physics diverges is logged and reported as unstable and expired, and does
        not move any more; the next one is not affected.

        Raises:
            ValueError: The action has another length or is not finite.
        """
        targets: Vector = np.asarray(action, dtype=np.float64)
        check_action(targets, self.contract)
        self._schedule.advance()
        if not self._stepper.problems:
            self.task.before_step(self.physics, targets, self._random)
            self._stepper.step()
            if self._stepper.problems:
                logger.warning(
                    "The physics of %s became unstable (%s) %.2f s into the episode of seed %s, "
                    "which counts as failed.",
                    self.task.name,
                    ", ".join(self._stepper.problems),
                    self.time,
                    self.np_random_seed,
                )
            else:
                self.task.after_step(self.physics, self._random)
        return self._result()

    @property
    def embodiment(self) -> Embodiment:
        """Description of the arms."""
        return self.task.embodiment

    @property
    def drawn(self) -> Mapping[str, Any]:
        """What ranges of options and looks have drawn for this episode, by option, plain JSON."""
        return self.task.drawn

    @property
    def start(self) -> Vector:
        """Joints (J,) at the start of the episode, rad and openings."""
        return self.task.start

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame at this step."""
        return self._schedule.frame_due

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        return self._schedule.time

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns the observation with the latest frame; its arrays must not be changed.

        Args:
            cameras: False omits images and their geometry.
        """
        return self._schedule.observe(cameras)

    def state(self) -> dict[str, Array]:
        """Returns an observation without images: time, joints and gripper poses."""
        return self._schedule.observe(cameras=False)

    def snapshot(self) -> Vector:
        """Returns the state of the physics, for `frame_of`."""
        state = np.empty(mujoco.mj_stateSize(self.physics.model.ptr, _STATE))
        mujoco.mj_getState(self.physics.model.ptr, self.physics.data.ptr, state, _STATE)
        return state

    @property
    def unstable(self) -> bool:
        """Whether the physics has diverged in this episode."""
        return bool(self._stepper.problems)

    @contextmanager
    def branch(self) -> Iterator[None]:
        """Undoes at the end of the block what has happened in it: the episode continues as before.

        Images that were captured before remain; the block must not observe.
        """
        state = self.snapshot()
        kept = [(each, _shallow(each)) for each in (self.task, self._schedule, self._stepper)]
        random = self._random.get_state()
        try:
            yield
        finally:
            for each, attributes in kept:
                each.__dict__.update(attributes)
            self._random.set_state(random)
            mujoco.mj_setState(self.physics.model.ptr, self.physics.data.ptr, state, _STATE)
            mujoco.mj_step1(self.physics.model.ptr, self.physics.data.ptr)

    def body_positions(self) -> Vector:
        """Returns the positions (nq,) of all joints, objects included, in MuJoCo's order."""
        positions: Vector = self.physics.data.qpos.copy()
        return positions

    def frame_of(self, snapshot: Vector, time: float) -> dict[str, Array]:
        """Returns the camera frame of another world of the same task, seed and options.

        It sets the state of this world to that of the other.

        Args:
            snapshot: State of the other world.
            time: Seconds since its episode began.
        """
        mujoco.mj_setState(self.physics.model.ptr, self.physics.data.ptr, snapshot, _STATE)
        mujoco.mj_forward(self.physics.model.ptr, self.physics.data.ptr)
        return self._cameras.frame(time)

    def render(self) -> NDArray[np.uint8] | None:
        """Returns an image (H, W, 3) of the first camera, or else of the overhead one."""
        return None if self.render_mode is None else self._cameras.image()

    def close(self) -> None:
        """Frees graphics and physics."""
        self._cameras.close()
        self.physics.free()

    def _observation(self) -> dict[str, Array]:
        """Returns an observation whose arrays may be changed, as gymnasium requires."""
        return {key: value.copy() for key, value in self.observe().items()}

    def _look(self, time: float) -> dict[str, Array]:
        return self._cameras.frame(time)

    def _measure(self) -> dict[str, Array]:
        robot = self.task.robot
        values = (kind(self.physics) for kind in (robot.positions, robot.velocities, robot.efforts))
        return joint_state(self.embodiment, *values)

    def _result(self) -> StepResult:
        unstable = bool(self._stepper.problems)
        expired = unstable or self.time >= self.time_limit_s - 1e-9
        success = self.task.success and not unstable
        return StepResult(success, self.task.stage, self.time, expired, unstable)

    def _info(self, result: StepResult) -> dict[str, Any]:
        return {
            "success": result.success,
            "stage": result.stage,
            "stages": self.task.stages,
            "time": result.time,
            "unstable": result.unstable,
        }


def _shallow(state: object) -> dict[str, Any]:
    """Returns the attributes of an object, with copies of what changes in place."""
    changing = (list, dict, set, deque, Delayed)
    found = dict(vars(state))
    for name, value in found.items():
        if isinstance(value, Handling):
            found[name] = copy.deepcopy(value)
        elif isinstance(value, changing):
            found[name] = copy.copy(value)
    return found


def _check_settings(render_mode: str | None, time_limit_s: float) -> None:
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode is {render_mode!r}; allowed: 'rgb_array' and None.")
    check_time_limit(time_limit_s)


def make_environment(
    task: str,
    *,
    cameras: Sequence[str] | None = None,
    image_size: int | tuple[int, int] = 128,
    control_hz: float = 50.0,
    frame_hz: float = 12.5,
    time_limit_s: float = 15.0,
    robot_model: RobotModel = PRIMITIVES,
    segmentation: bool = False,
    embodiment: str | None = None,
) -> TaskEnvironment:
    """Builds the environment of a task by name; see `TaskEnvironment` and `make_task`.

    Bound with `functools.partial`, it can be sent to workers.

    Raises:
        ValueError: There is no such task or arm, or a setting is out of range.
    """
    return TaskEnvironment(
        make_task(task, control_hz, embodiment),
        cameras=cameras,
        image_size=image_size,
        control_hz=control_hz,
        frame_hz=frame_hz,
        time_limit_s=time_limit_s,
        robot_model=robot_model,
        segmentation=segmentation,
    )
