"""Environments of another interpreter as worlds, and their experts.

`remote:MODULE:FUNCTION` is what a function of the user returns there, `metaworld:NAME` a task of
MetaWorld. Their contract comes from the environment, so they have neither options nor shifts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.cameras.resampling import checked_image_size
from stringline.datasets.contract.contract import Array, Contract, check_action, check_observation
from stringline.datasets.embodiments.embodiment import CameraMount, Embodiment, Vector
from stringline.sim.environment.environment import StepResult
from stringline.sim.environment.sensing import FrameSchedule, check_time_limit
from stringline.sim.interpreters import metaworld_tasks
from stringline.sim.interpreters.environment_process import EnvironmentProcess, Interpreter
from stringline.sim.rollout.world_interface import World, WorldLostError
from stringline.sim.tasks.task_registry import METAWORLD, REMOTE
from stringline.sim.worlds.third_party_environment import (
    LARGEST_SEED,
    ThirdPartyTask,
    check_no_options,
)


@dataclass
class RemoteState:
    """The state that the environment sent last."""

    state: Array

    def get_state(self) -> Array:
        """Returns positions and velocities of MuJoCo; empty for other environments."""
        return self.state


class RemoteEnvironment:
    """An environment in another interpreter, with cameras, a clock and a contract.

    An episode is a function of its seed and its actions, as far as the environment is one. The rate
    of actions must be that of the environment. After an error of the environment, the next episode
    begins in a new process.

    Args:
        task: Name of the task.
        interpreter: Where it runs.
        cameras: Cameras of the observations; if None, all.
        image_size: Rows and columns of the images: one number for both, or two.
        control_hz: Actions per second; if None, those of the environment.
        frame_hz: Images per second.
        time_limit_s: Longest episode, s.

    Raises:
        ValueError: An argument is out of range, or the environment cannot be built.
    """

    def __init__(
        self,
        task: str,
        interpreter: Interpreter,
        *,
        cameras: Sequence[str] | None = None,
        image_size: int | Sequence[int] = 128,
        control_hz: float | None = None,
        frame_hz: float = 12.5,
        time_limit_s: float = 15.0,
    ) -> None:
        check_time_limit(time_limit_s)
        self._interpreter = interpreter
        self._request = {
            **_place(task),
            "cameras": None if cameras is None else list(cameras),
            "size": list(checked_image_size(image_size)),
        }
        self._process = EnvironmentProcess(task, interpreter)
        try:
            opened = self._process.open(self._request)
            self.contract = _contract(task, opened)
            hz = self.contract.control_hz
            _check_rates(task, hz, control_hz, frame_hz)
            self._schedule = FrameSchedule(
                hz, frame_hz, look=self._look, measure=lambda: self._state
            )
        except (ValueError, KeyError, TypeError):
            self._process.close()
            raise
        fixed = set(opened["fixed"])
        self.task = ThirdPartyTask(task, str(opened["instruction"]), tuple(opened["stages"]))
        self.time_limit_s = time_limit_s
        self.has_expert = bool(opened["expert"])
        self.versions: dict[str, str] = dict(opened["versions"])
        self.embodiment = _embodiment(self.contract, fixed)
        self.physics = RemoteState(np.zeros(0))
        self._state: Mapping[str, Array] = {}
        self._ended = self._success = False

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame in this period."""
        return self._schedule.frame_due

    @property
    def start(self) -> Vector:
        """Zeros (A,): the environment begins where it begins."""
        return np.zeros(len(self.contract.action))

    @property
    def time(self) -> float:
        """Seconds since the start of the episode."""
        return self._schedule.time

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuses all options: an environment of another interpreter has none."""
        check_no_options(self.task.name, options)

    def begin(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Begins the episode that the environment begins with a seed.

        Raises:
            ValueError: An option is given, or the seed is out of range.
            WorldLostError: The environment has failed.
        """
        self.check_options(options or {})
        seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        if not 0 <= seed <= LARGEST_SEED:
            raise ValueError(f"The seed is {seed}; {self.task.name} takes 0 to {LARGEST_SEED}.")
        if not self._process.alive:
            self._restart()
        self.task.stage = 0
        self._schedule.begin()
        self._take(self._process.request({"type": "begin", "seed": seed}))

    def advance(self, action: Array) -> StepResult:
        """Applies one action (A,) of the contract; after the end of the episode nothing moves.

        Raises:
            ValueError: The action has another shape or is not finite.
            WorldLostError: The environment has failed.
        """
        targets: Vector = np.asarray(action, dtype=np.float64)
        check_action(targets, self.contract)
        self._schedule.advance()
        if not self._success and not self._ended:
            self._take(self._process.request({"type": "step", "action": targets}))
            self.task.stage = max(self.task.stage, int(self._success))
        expired = self._ended or self.time >= self.time_limit_s - 1e-9
        return StepResult(self._success, self.task.stage, self.time, expired, unstable=False)

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns the observation; do not modify its arrays.

        Raises:
            WorldLostError: The environment has failed, or does not keep to its contract.
        """
        observation = self._schedule.observe(cameras)
        try:
            check_observation(observation, self.contract, cameras=cameras)
        except ValueError as error:
            raise self._process.lose(f"breaks its contract: {str(error).rstrip('.')}") from error
        return observation

    def begin_expert(self, seed: int) -> None:
        """Begins an episode of the environment's expert."""
        self._process.request({"type": "expert", "seed": seed})

    def act(self) -> Vector:
        """Returns the next action (A,) of the environment's expert."""
        action = np.asarray(self._process.request({"type": "act"}).get("action"))
        try:
            check_action(action, self.contract)
        except ValueError as error:
            raise self._process.lose(f"has an expert that fails: {error}") from error
        return action.astype(np.float64)

    def close(self) -> None:
        """Ends the process of the environment."""
        self._process.close()

    def _restart(self) -> None:
        try:
            self._process = EnvironmentProcess(self.task.name, self._interpreter)
            self._process.open(self._request)
        except ValueError as error:  # It could be built before, so this is no wrong setting.
            raise WorldLostError(str(error)) from error

    def _look(self, time: float) -> dict[str, Array]:
        self._process.request({"type": "look"})
        # The next frame changes this memory.
        frame = {key: array.copy() for key, array in self._process.images.items()}
        stamps = {f"time/{camera.name}": np.asarray(time) for camera in self.contract.cameras}
        return frame | stamps

    def _take(self, answer: Mapping[str, Any]) -> None:
        state = dict(answer["state"])
        self.physics = RemoteState(state.pop("sim/state", np.zeros(0)))
        self._state = state
        self._success = bool(answer["success"])
        self._ended = bool(answer["ended"])


class RemoteExpert:
    """The expert of an environment in another interpreter, which acts there.

    Args:
        varied: Whether the expert gets another seed in each episode; False: always the seed 0.
    """

    def __init__(self, *, varied: bool = True) -> None:
        self._varied = varied

    def reset(self, env: World, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun.

        Raises:
            ValueError: The environment has no expert.
        """
        assert isinstance(env, RemoteEnvironment)
        if not env.has_expert:
            raise ValueError(
                f"{env.task.name} has no expert. Give one by the key 'expert' of the mapping that "
                "its function returns (docs/other-environments.md)."
            )
        env.begin_expert(int(rng.integers(LARGEST_SEED)) if self._varied else 0)

    def act(self, env: World) -> Vector:
        """Returns the next action (A,)."""
        assert isinstance(env, RemoteEnvironment)
        return env.act()


@dataclass(frozen=True)
class RemoteFacts:
    """What an environment says of itself without an episode."""

    instruction: str
    versions: Mapping[str, str]


@cache
def remote_facts(task: str, interpreter: Interpreter) -> RemoteFacts:
    """Returns instruction and versions of an environment, which is built for it once.

    Raises:
        ValueError: It cannot be built.
    """
    process = EnvironmentProcess(task, interpreter)
    try:
        opened = process.open({**_place(task), "cameras": [], "size": [1, 1]})
    finally:
        process.close()
    versions = {f"environment.{name}": text for name, text in dict(opened["versions"]).items()}
    return RemoteFacts(str(opened["instruction"]), versions)


def _place(task: str) -> dict[str, str | None]:
    """Returns the function that makes an environment, and the argument of the function."""
    if task.startswith(METAWORLD):
        file = Path(metaworld_tasks.__file__).absolute()
        return {"place": f"{file}:metaworld_task", "name": task.removeprefix(METAWORLD)}
    place = task.removeprefix(REMOTE)
    parts = place.split(":")
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"task is {task!r}; allowed: {REMOTE}MODULE:FUNCTION.")
    return {"place": place, "name": None}


def _contract(task: str, opened: Mapping[str, Any]) -> Contract:
    try:
        return Contract.from_dict({"joints": [], "arms": [], **opened["contract"]})
    except ValueError as error:
        raise ValueError(f"{task}: {error}") from error


def _check_rates(task: str, own: float, control_hz: float | None, frame_hz: float) -> None:
    """Refuses another rate of actions than that of the environment."""
    if control_hz is not None and abs(control_hz - own) > 1e-9:
        raise ValueError(
            f"control_hz is {control_hz:g}; {task} has {own:g} actions per second: add "
            f"task.control_hz={own:g} and a task.frame_hz that divides it (now {frame_hz:g})."
        )


def _embodiment(contract: Contract, fixed: set[str]) -> Embodiment:
    """Returns the robot of a contract without kinematics; cameras that move are on its arm."""
    mounts = tuple(
        CameraMount(camera.name, "world" if camera.name in fixed else "arm", np.eye(4), 0.0)
        for camera in contract.cameras
    )
    home = np.zeros(len(contract.action))
    return Embodiment(contract.embodiment, contract.base_frame, (), (), mounts, (), home)
