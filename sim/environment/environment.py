"""A task as a gymnasium environment, with calls below it that do not draw what nobody looks at.

Observations are those of the contract: `rgb/overhead`, `joints/position`, `T_base_gripper/left` and
so on. `stringline.sim.environment.gym_registration` makes them known to `gymnasium.make`.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.contract.validation import validate_action
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.sim.environment.clock import FrameSchedule, demand_time_limit, joint_state
from stringline.sim.environment.segments import segments
from stringline.sim.environment.spaces import action_space, observation_space
from stringline.sim.environment.world_cameras import Cameras, checked_image_size
from stringline.sim.rendering.rendering import Rendering
from stringline.sim.robots.robot_model import PRIMITIVES, RobotModel, dress
from stringline.sim.tasks.tabletop import TabletopTask

logger = logging.getLogger(__name__)

_STATE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
PROBLEMS = tuple(mujoco.mjtWarning.__members__)[
    :-1
]  # In the order of MuJoCo's counters; the last counts the others.


@dataclass(frozen=True)
class StepResult:
    """What a step led to.

    Attributes:
        success: Whether the task is done now.
        stage: The furthest stage of this episode.
        time: Seconds since the episode began.
        expired: Whether the episode is cut off: its time is up, or it is unstable.
        unstable: Whether the physics has blown up in this episode, which then counts as failed.
    """

    success: bool
    stage: int
    time: float
    expired: bool
    unstable: bool = False


class TaskEnvironment(gymnasium.Env[dict[str, Array], Array]):
    """One task with its cameras; an episode is a function of its seed and the actions.

    Images are first drawn where they are first asked for, so an environment can be made in one
    process and used in one that is forked from it; a process that has drawn must not be forked
    (`AsyncVectorEnv(..., context="spawn")`).

    Args:
        task: What is on the table and what counts.
        cameras: Which ones `observe` draws; None: all of the body.
        image_size: Rows and columns of the images: one number for both, or two.
        control_hz: Actions per second.
        frame_hz: Images per second: `observe` draws again only when a new frame is due.
        time_limit_s: When an episode is cut off.
        image_delay_s: How long a frame takes from its capture until `observe` shows it, a multiple
            of the control period. Frames carry their capture times (`time/<camera>`) and the
            geometry of then. Until one has arrived, that of the episode's beginning is shown.
        joint_delay_s: The same for joints and gripper poses, which always belong together: they are
            those of that long ago.
        segmentation: Whether observations hold `segmentation/<camera>` (H, W) uint8, the segment
            that each pixel shows; the names of the numbers are in `segments`.
        rendering: `fast`, or `pretty` for videos: two by two samples per pixel, and things cast
            shadows. It takes ten times longer and changes colours only.
        render_mode: `rgb_array`, or None where `render` is not to draw.
        robot_model: What the arms are drawn with: `primitives`, or `menagerie` for the meshes of
            MuJoCo Menagerie. It changes colours and depth; how everything moves stays the same.

    Attributes:
        segments: What the numbers of segmentations mean: `nothing`, `table`, `left` and `right` for
            the arms, then the things of the task in a fixed order.

    Raises:
        ValueError: An argument is unknown or out of range.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - gymnasium's own annotation.

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
        self._schedule = FrameSchedule(
            control_hz,
            frame_hz,
            look=lambda time: self._cameras.frame(time),
            measure=self._measure,
            image_delay_s=image_delay_s,
            joint_delay_s=joint_delay_s,
        )
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}; allowed: 'rgb_array' and None.")
        demand_time_limit(time_limit_s)
        size = checked_image_size(image_size)
        self.task = task
        self.time_limit_s = time_limit_s
        self.render_mode = render_mode
        self.metadata = self.metadata | {"render_fps": control_hz}
        task.control_timestep = 1.0 / control_hz
        body = task.embodiment
        cameras = [mount.name for mount in body.cameras] if cameras is None else cameras
        self.contract: Contract = body.contract(
            [Camera(name, *size, "simulated") for name in cameras], control_hz
        )
        self._substeps = task.physics_steps_per_control_step
        self._random = np.random.RandomState(0)
        dress(task.robot, robot_model)
        self.physics = mjcf.Physics.from_mjcf_model(task.root_entity.mjcf_model)
        for entity in task.root_entity.iter_entities():
            entity.after_compile(self.physics, self._random)
        task.after_compile(self.physics, self._random)
        parts = segments(task, self.physics)
        self.segments = parts.names
        self._cameras = Cameras(
            self.physics,
            body.cameras,
            cameras,
            size,
            parts,
            segmentation=segmentation,
            rendering=rendering,
            shifts=task.shifts,
        )
        self._problems: NDArray[np.int32] = (
            self.physics.data.warning.number
        )  # MuJoCo's counters themselves.
        self._unstable = False
        self.observation_space = observation_space(
            self.contract, len(parts.names) if segmentation else None
        )
        self.action_space = action_space(body)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begins the episode of that seed, by default of a random one; options go to the task's `configure`."""
        self.begin(seed, options)
        return self._observation(), self._info(self._result())

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Applies one action (J,) and returns observation, reward, terminated, truncated and info."""
        result = self.advance(action)
        return (
            self._observation(),
            float(result.success),
            result.success,
            result.expired,
            self._info(result),
        )

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
        self._problems[:] = 0
        self._unstable = False
        self._schedule.begin()

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Looks whether an episode can begin with them.

        Raises:
            ValueError: The task does not know an option, or it is out of range.
        """
        self.task.configure(**options)

    def advance(self, action: Array) -> StepResult:
        """Applies one action (J,), absolute joint targets in rad and openings, for one control period.

        An episode whose physics blows up is logged and reported as unstable and expired, and does
        not move any more; the next one is not affected.

        Raises:
            ValueError: It has another length or is not finite.
        """
        targets: Vector = np.asarray(action, dtype=np.float64)
        validate_action(targets, self.contract)
        self._schedule.advance()
        if not self._unstable:
            self.task.before_step(self.physics, targets, self._random)
            self._move()
            if not self._unstable:
                self.task.after_step(self.physics, self._random)
        return self._result()

    @property
    def embodiment(self) -> Embodiment:
        """The body."""
        return self.task.embodiment

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame at this step."""
        return self._schedule.frame_due

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        return self._schedule.time

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns what the contract says about now; images are those of the latest frame, and not to be changed.

        Args:
            cameras: False leaves all images and their geometry out.
        """
        return self._schedule.observe(cameras)

    def state(self) -> dict[str, Array]:
        """Returns time, joints and gripper poses of one observation, not to be changed."""
        return self._schedule.observe(cameras=False)

    def snapshot(self) -> Vector:
        """Returns where everything is and how it moves, for `frame_of`."""
        state = np.empty(mujoco.mj_stateSize(self.physics.model.ptr, _STATE))
        mujoco.mj_getState(self.physics.model.ptr, self.physics.data.ptr, state, _STATE)
        return state

    def frame_of(self, snapshot: Vector, time: float) -> dict[str, Array]:
        """Returns what the cameras saw in another world of the same task, seed and options, and moves everything there.

        Args:
            snapshot: Of the other world.
            time: Seconds of its episode then.
        """
        mujoco.mj_setState(self.physics.model.ptr, self.physics.data.ptr, snapshot, _STATE)
        mujoco.mj_forward(self.physics.model.ptr, self.physics.data.ptr)
        return self._cameras.frame(time)

    def render(self) -> NDArray[np.uint8] | None:
        """Returns what the first camera, or the overhead one where there is none, sees now (H, W, 3)."""
        return None if self.render_mode is None else self._cameras.image()

    def close(self) -> None:
        """Gives the graphics and the physics back."""
        self._cameras.close()
        self.physics.free()

    def _observation(self) -> dict[str, Array]:
        """Returns one that its receiver may change, as gymnasium wants it."""
        return {key: value.copy() for key, value in self.observe().items()}

    def _measure(self) -> dict[str, Array]:
        robot = self.task.robot
        physics = self.physics
        return joint_state(
            self.embodiment,
            robot.positions(physics),
            robot.velocities(physics),
            robot.efforts(physics),
        )

    def _move(self) -> None:
        """Moves the physics by one control period, and back to a sound state if it does not survive that."""
        model = self.physics.model.ptr
        data = self.physics.data.ptr
        # dm_control's own order: positions, contacts and cameras are those of the end, and its
        # checks would raise.
        mujoco.mj_step2(model, data)
        mujoco.mj_step(model, data, self._substeps - 1)
        mujoco.mj_step1(model, data)
        if self._problems.any():
            self._unstable = True
            kinds = ", ".join(
                name for name, count in zip(PROBLEMS, self._problems, strict=False) if count
            )
            logger.warning(
                (
                    "The physics of %s became unstable (%s) %.2f s into the episode of seed %s, "
                    "which "
                    "counts as failed."
                ),
                self.task.name,
                kinds,
                self.time,
                self.np_random_seed,
            )
            self.physics.reset()

    def _result(self) -> StepResult:
        expired = self._unstable or self.time >= self.time_limit_s - 1e-9
        return StepResult(
            self.task.success and not self._unstable,
            self.task.stage,
            self.time,
            expired,
            self._unstable,
        )

    def _info(self, result: StepResult) -> dict[str, Any]:
        return {
            "success": result.success,
            "stage": result.stage,
            "stages": self.task.stages,
            "time": result.time,
            "unstable": result.unstable,
        }
