"""Labelled clips of the stages of experts' episodes: each part between two stages gives one.

A stage of a task increases at certain steps; the parts of an episode lie between these steps. A
tally counts the clips, the failed episodes and what was left out.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import POSITIVE, WHOLE, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.sim.collection.demonstration import check_looks_of_demonstrations, record_episode
from stringline.sim.environment.environment import TaskEnvironment, make_environment
from stringline.sim.experts.expert_registry import Expert, make_expert
from stringline.sim.looks.looks import LOOKS, OPTION, PLAIN
from stringline.sim.scenes.motion_clips import FRAMES
from stringline.sim.scenes.scene_images import SIZES
from stringline.sim.tasks.task_registry import TASKS, task_class


@dataclass(frozen=True)
class EpisodePart:
    """A part of an episode, which ends when a stage is reached.

    Attributes:
        first: Control step at which the stage before was reached; 0 in the first part.
        last: Control step at which the stage is reached.
        stage: Index of the reached stage.
    """

    first: int
    last: int
    stage: int

    @property
    def steps(self) -> int:
        """Number of control steps, both ends included."""
        return self.last - self.first + 1

    def spread(self, count: int) -> list[int]:
        """Returns `count` control steps at even distances, the first and the last included."""
        steps: list[int] = np.rint(np.linspace(self.first, self.last, count)).astype(int).tolist()
        return steps


def parts_of(stages: Sequence[int] | NDArray[np.integer]) -> list[EpisodePart]:
    """Divides an episode where its stage increases.

    What follows the last increase belongs to no part.

    Args:
        stages: (T,), index of the furthest stage after each control step; it never decreases.
    """
    found = np.asarray(stages)
    ends = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist()]
    return [EpisodePart(first, last, int(found[last])) for first, last in pairwise(ends)]


LONGEST_S = 64.0  # The longest limit of the tasks' own settings.
EMPTY_IN_A_ROW = 30


@dataclass(frozen=True)
class StageSettings:
    """What clips are drawn from.

    Attributes:
        tasks: Names in `TASKS`; episode i is one of task i modulo their number.
        seed: Seed of all episodes.
        clip_frames: Number of frames of a clip.
        camera: Name of the camera; all tasks must have it.
        image_size: Rows and columns of images.
        looks: Looks of the world, see `Looks`.
        time_limit_s: Longest episode, seconds.

    Raises:
        ValueError: A name does not exist, or a number is outside of its range.
    """

    tasks: tuple[str, ...]
    seed: int = 0
    clip_frames: int = 8
    camera: str = "overhead"
    image_size: tuple[int, int] = (96, 96)
    looks: str = PLAIN
    time_limit_s: float = LONGEST_S

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"tasks is []; allowed: any of {', '.join(TASKS)}.")
        for task in self.tasks:
            _check_camera(task, self.camera)
        for side in self.image_size:
            SIZES.check(image_size=side)
        WHOLE.check(seed=self.seed)
        FRAMES.check(clip_frames=self.clip_frames)
        POSITIVE.check(time_limit_s=self.time_limit_s)
        if self.looks not in LOOKS:
            raise unknown_name(OPTION, str(self.looks), LOOKS)
        check_looks_of_demonstrations({OPTION: self.looks})


def _check_camera(task: str, camera: str) -> None:
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    cameras = [mount.name for mount in task_class(task).cell.embodiment.cameras]
    if camera not in cameras:
        raise unknown_name(f"camera of the task {task}", camera, cameras)


@dataclass(frozen=True, eq=False)
class StageEpisode:
    """The clips of one episode.

    Attributes:
        name: Task and seed, such as "bowl_on_rack-17"; the room of the clips.
        clips: The clips in the order of the stages.
        short: Labels of parts that have fewer control steps than a clip has frames.
        failure: Reason for which the expert failed; empty if it succeeded.
    """

    name: str
    clips: tuple[LabelledClip, ...]
    short: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True, eq=False)
class _Course:
    """The course of an episode.

    Attributes:
        name: Task and seed.
        states: (T + 1, n), states of the physics: at the start and after each of the T actions.
        stages: (T + 1,), index of the furthest stage in each state.
        failure: Reason for which the expert failed; empty if it succeeded.
    """

    name: str
    states: Array
    stages: Array
    failure: str


class StageClips:
    """Runs episodes of experts and draws their clips; use one per process.

    It keeps the world of each task.
    """

    def __init__(self, settings: StageSettings) -> None:
        self.settings = settings
        self._open: dict[str, tuple[TaskEnvironment, Expert[TaskEnvironment]]] = {}

    def room(self, number: int) -> tuple[StageEpisode]:
        """Returns the clips of episode `number`."""
        settings = self.settings
        task = settings.tasks[number % len(settings.tasks)]
        seed = episode_seed(settings.seed, number)
        world, expert = self._opened(task)
        course = self._run(world, expert, seed)
        parts = parts_of(course.stages)
        clips = tuple(
            self._clip(world, course, part) for part in parts if part.steps >= settings.clip_frames
        )
        short = tuple(_label(world, part) for part in parts if part.steps < settings.clip_frames)
        return (StageEpisode(course.name, clips, short, course.failure),)

    def close(self) -> None:
        """Frees graphics and physics."""
        for world, _ in self._open.values():
            world.close()
        self._open.clear()

    def _opened(self, task: str) -> tuple[TaskEnvironment, Expert[TaskEnvironment]]:
        if task not in self._open:
            world = make_environment(
                task,
                cameras=[self.settings.camera],
                image_size=self.settings.image_size,
                # One image per episode: those of the clips are drawn after it.
                frame_hz=1 / LONGEST_S,
                time_limit_s=self.settings.time_limit_s,
            )
            self._open[task] = (world, make_expert(task))
        return self._open[task]

    def _run(self, world: TaskEnvironment, expert: Expert[TaskEnvironment], seed: int) -> _Course:
        looks = {OPTION: self.settings.looks}
        recording = record_episode(world, expert, seed, options=looks)
        # A recording lacks the state after its last action.
        states = np.stack([*recording.arrays["sim/state"], world.physics.get_state()])
        stages = np.append(recording.arrays["stage"], recording.stage)
        reached = world.task.stages[recording.stage]
        late = f"stage {reached!r} after {world.time:g} s"
        failure = "" if recording.success else recording.error or late
        return _Course(f"{world.task.name}-{seed}", states, stages, failure)

    def _clip(self, world: TaskEnvironment, course: _Course, part: EpisodePart) -> LabelledClip:
        camera = self.settings.camera
        drawn = [
            frame_at(world, course.states[step], step / world.contract.control_hz)
            for step in part.spread(self.settings.clip_frames)
        ]
        return LabelledClip(
            rgb=np.stack([frame[f"rgb/{camera}"] for frame in drawn]),
            depth=np.stack([frame[f"depth/{camera}"] for frame in drawn]),
            intrinsics=drawn[0][f"intrinsics/{camera}"],
            T_world_camera=np.stack([frame[f"T_base_camera/{camera}"] for frame in drawn]),
            label=_label(world, part),
            room=course.name,
            source=world.task.name,
        )


def _label(world: TaskEnvironment, part: EpisodePart) -> str:
    return stage_label(world.task.name, world.task.stages[part.stage])


def frame_at(world: TaskEnvironment, state: Array, time: float) -> dict[str, Array]:
    """Returns the camera frame at a recorded state of the world's last episode.

    Args:
        world: The world; its physics gets the state.
        state: (n,), positions and velocities, `sim/state` of a recording.
        time: Seconds since the episode began.
    """
    world.physics.set_state(state)
    return world.frame_of(world.snapshot(), time)


def stage_label(task: str, stage: str) -> str:
    """Returns the label of clips that end at a stage, such as "bowl on rack: over rack"."""
    return f"{task}: {stage}".replace("_", " ")


def episode_seed(seed: int, number: int) -> int:
    """Returns the seed of an episode, below 2^32, from the seed of all and its number."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


logger = logging.getLogger(__name__)


@dataclass
class StageTally:
    """Counts over episodes.

    Attributes:
        clips: Number of stored clips.
        episodes: Number of episodes.
        failed: Number of episodes in which the expert failed.
        short: Number of parts that were left out since they were too short, by label.
    """

    clips: int = 0
    episodes: int = 0
    failed: int = 0
    short: Counter[str] = field(default_factory=Counter)
    _empty: int = 0

    def add(self, episode: StageEpisode, kept: int) -> None:
        """Counts an episode, of which `kept` clips are stored, and logs its failure.

        Raises:
            ValueError: The last 30 episodes had no clip.
        """
        self.clips += kept
        self.episodes += 1
        self.short.update(episode.short)
        if episode.failure:
            self.failed += 1
            logger.info("The expert failed in %s: %s.", episode.name, episode.failure.rstrip("."))
        self._empty = 0 if episode.clips else self._empty + 1
        if self._empty == EMPTY_IN_A_ROW:
            raise ValueError(
                f"{self._empty} episodes in a row had no clip; allowed: fewer than {self._empty}. "
                f"{self} Choose other tasks, or a smaller clip_frames."
            )

    def __str__(self) -> str:
        """Returns the counts in sentences."""
        message = (
            f"{self.clips} clips of {self.episodes} episodes; the expert failed in {self.failed}."
        )
        if not self.short:
            return message
        counts = ", ".join(f"{label} ({count})" for label, count in sorted(self.short.items()))
        return f"{message} Left out for fewer control steps than clip_frames: {counts}."
