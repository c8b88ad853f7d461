"""Labelled clips of the stages of experts' episodes: each part between two stages gives one."""

from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE, WHOLE, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.sim.collection.demonstration import check_looks_of_demonstrations, record_episode
from stringline.sim.collection.episode_parts import EpisodePart, parts_of
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.environment.factory import make_environment
from stringline.sim.experts.expert import Expert
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.looks.looks import OPTION, PLAIN, check_looks
from stringline.sim.scenes.motion_clips import FRAMES
from stringline.sim.scenes.viewpoints import SIZES
from stringline.sim.tasks.task_registry import TASKS, task_class

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
        check_looks_of_demonstrations({OPTION: check_looks(OPTION, self.looks)})


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
