"""Third-party environments with the interface of `TaskEnvironment`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.cameras.image_size import checked_image_size
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.contract.validation import check_action
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.environment.clock import FrameSchedule, check_time_limit, joint_state
from stringline.sim.environment.environment import StepResult
from stringline.sim.robots.robot_model import PRIMITIVES
from stringline.sim.worlds.adapter import Adapter, TaskDescription
from stringline.sim.worlds.third_party_cameras import ThirdPartyCameras

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
