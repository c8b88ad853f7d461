"""One episode of a policy in simulation, in a process that holds the world but not the policy."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Array, Contract
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.chunks.chunk_timing import periods_covered
from stringline.sim.rollout.video import Video


@dataclass(frozen=True)
class Arrival:
    """A plan that is in force only some time after the observation that it answers.

    Attributes:
        chunk: The plan.
        delay_steps: Control periods; what is past of the plan by then is skipped.
    """

    chunk: ActionChunk
    delay_steps: int = 0


Answer = ActionChunk | Arrival
Plan = Callable[[Mapping[str, Array]], Answer]


class StepOutcome(Protocol):
    """What one action led to."""

    @property
    def success(self) -> bool:
        """Whether the task is done."""
        ...

    @property
    def stage(self) -> int:
        """The furthest stage so far."""
        ...

    @property
    def time(self) -> float:
        """Seconds since the episode began."""
        ...

    @property
    def expired(self) -> bool:
        """Whether the episode is cut off."""
        ...

    @property
    def unstable(self) -> bool:
        """Whether the physics has blown up."""
        ...


class HasStages(Protocol):
    """A task with named stages."""

    @property
    def stages(self) -> tuple[str, ...]:
        """Names, the last of which is success."""
        ...


class Simulation(Protocol):
    """What an episode needs of a world; `TaskEnvironment` is one."""

    @property
    def contract(self) -> Contract:
        """What it shows and how it is moved."""
        ...

    @property
    def task(self) -> HasStages:
        """What is to be done."""
        ...

    @property
    def frame_due(self) -> bool:
        """Whether the cameras deliver a new frame now."""
        ...

    def begin(self, seed: int | None = None, options: Mapping[str, float] | None = None) -> None:
        """Begins the episode of that seed."""

    def advance(self, action: NDArray[np.float64]) -> StepOutcome:
        """Applies one action for one control period."""
        ...

    def observe(self, cameras: bool = True) -> dict[str, Array]:
        """Returns one observation of the contract."""
        ...

    def close(self) -> None:
        """Frees what it holds."""


@dataclass
class Rollout:
    """How an episode went, as far as the world knows.

    Attributes:
        success: Whether the task was done.
        stage: The furthest stage.
        time_s: Simulated seconds at the end.
        plans: How often the policy was asked.
        actions: What was executed, (A,) each.
        unstable: Whether the physics blew up.
        stage_times: When each stage was first reached, seconds; stages that were skipped are not in
            it.
        starved: Control periods in which no plan said what to do, so that the last action was held.
    """

    success: bool = False
    stage: int = 0
    time_s: float = 0.0
    plans: int = 0
    actions: list[NDArray[Any]] = field(default_factory=list)
    unstable: bool = False
    stage_times: dict[int, float] = field(default_factory=dict)
    starved: int = 0


Episode = Generator[dict[str, Array], Answer, Rollout]


def roll_out(
    world: Simulation,
    plan: Plan,
    seed: int,
    *,
    execute_steps: int | None,
    options: Mapping[str, float] | None = None,
    video: Video | None = None,
    video_camera: str | None = None,
) -> Rollout:
    """Runs one episode of a policy that is at hand: `run_episode`, with `plan` answering what it yields."""
    episode = run_episode(
        world,
        seed,
        execute_steps=execute_steps,
        options=options,
        video=video,
        video_camera=video_camera,
    )
    observation = next(episode)
    while True:
        answer = plan(observation)
        try:
            observation = episode.send(answer)
        except StopIteration as end:
            rollout: Rollout = end.value
            return rollout


def run_episode(
    world: Simulation,
    seed: int,
    *,
    execute_steps: int | None,
    options: Mapping[str, float] | None = None,
    video: Video | None = None,
    video_camera: str | None = None,
) -> Episode:
    """Runs one episode with a receding horizon: ask, execute the beginning of the chunk, ask again; success or time ends it.

    Of a chunk, each control period takes the last action that is due by then. Until a plan is there
    the one before goes on; once it has run out, its last action is held. Cameras deliver at their
    own rate throughout: what the policy sees is as old as it would be on a robot.

    Args:
        world: Where it happens.
        seed: Of the world.
        execute_steps: Control periods between two questions, at least 1; None: as many as the chunk
            says what to do in.
        options: Of the task.
        video: Gets a frame whenever the cameras deliver one.
        video_camera: Which camera's; None: `overhead`, or the first one where there is none of that
            name.

    Yields:
        Observations; it is sent the chunk that answers each, or one that is still to arrive.

    Returns:
        How it went.

    Raises:
        ValueError: A chunk ends before the next question, or the world lacks the camera of the
            video.
    """
    world.begin(seed, options)
    videoed = video_camera or _camera_to_video(world.contract)
    done = Rollout()
    plans = _Plans(execute_steps, world.contract.control_hz)
    observation: dict[str, Array] = {}
    while True:
        asking = plans.asking
        if world.frame_due or asking:
            observation = world.observe()
            if video is not None and world.frame_due:
                _record(video, videoed, observation)
        if asking:
            plans.take((yield observation), float(observation["time"]))
            done.plans += 1
        done.actions.append(plans.next())
        outcome = world.advance(done.actions[-1])
        done.stage_times.setdefault(outcome.stage, outcome.time)
        if outcome.success or outcome.expired:
            done.success = outcome.success
            done.stage = outcome.stage
            done.time_s = outcome.time
            done.unstable = outcome.unstable
            done.starved = plans.starved
            return done


class _Plans:
    """The plan in force and the one that is on its way; time is counted in control periods.

    Attributes:
        starved: Periods in which nothing was due.
    """

    def __init__(self, execute_steps: int | None, control_hz: float) -> None:
        """There is no plan yet."""
        self._execute_steps = execute_steps
        self._hz = control_hz
        self._step = 0
        self._ask_at = 0
        self.starved = 0
        self._due = list[NDArray[np.float64]]()
        self._begun = 0
        self._last = np.zeros(0)
        self._coming: tuple[int, int, list[NDArray[np.float64]]] | None = None

    @property
    def asking(self) -> bool:
        """Whether a plan is wanted in this period: the time has come, and none is on its way any more."""
        return self._step >= self._ask_at and (
            self._coming is None or self._coming[0] <= self._step
        )

    def take(self, answer: Answer, now: float) -> None:
        """Takes the plan for the observation of this period, which was made at time `now`."""
        arrival = Arrival(answer) if isinstance(answer, ActionChunk) else answer
        self._land()
        covered = max(periods_covered(arrival.chunk, now, self._hz), 1)
        due = due_actions(
            arrival.chunk, now, 1.0 / self._hz, max(covered, self._execute_steps or 1)
        )
        self._ask_at = self._step + (self._execute_steps or covered)
        in_force = self._step + (
            arrival.delay_steps if self._due else 0
        )  # Before the first plan nothing moves.
        self._coming = (in_force, self._step, due)

    def next(self) -> NDArray[np.float64]:
        """Returns the action (A,) of this period, and goes on to the next one."""
        self._land()
        place = self._step - self._begun
        if place < len(self._due):
            self._last = self._due[place]
        else:
            self.starved += 1
        self._step += 1
        return self._last

    def _land(self) -> None:
        if self._coming is not None and self._coming[0] <= self._step:
            _, self._begun, self._due = self._coming
            self._coming = None


def due_actions(
    chunk: ActionChunk, now: float, period: float, count: int
) -> list[NDArray[np.float64]]:
    """Returns the actions (A,) of the next `count` control periods: in each the last one that is due by its beginning.

    Raises:
        ValueError: The chunk does not reach that far.
    """
    times = now + period * np.arange(count)
    if chunk.time[-1] < times[-1] - period / 2:
        have = f"{chunk.time[-1] - now + period:.2f} s"
        raise ValueError(
            f"A chunk of {have} was planned; execute_steps asks for {count * period:.2f} s of it. "
            f"Lower execute_steps."
        )
    indices = np.searchsorted(chunk.time, times + period / 2) - 1
    return [chunk.action[index].astype(np.float64) for index in np.maximum(indices, 0)]


def _camera_to_video(contract: Contract) -> str:
    names = [camera.name for camera in contract.cameras]
    return names[0] if names and "overhead" not in names else "overhead"


def _record(video: Video, camera: str, observation: Mapping[str, Array]) -> None:
    if f"rgb/{camera}" not in observation:
        raise unknown_name(
            "camera to video",
            f"rgb/{camera}",
            [key for key in observation if key.startswith("rgb/")],
        )
    video.add(
        float(observation[f"time/{camera}"]),
        observation[f"rgb/{camera}"],
        observation.get(f"depth/{camera}"),
    )
