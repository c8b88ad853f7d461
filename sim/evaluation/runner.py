"""Evaluation of a policy in simulation, equal for any number of workers, and traces of episodes.

The policy stays in this process, with a session for each episode, and answers one observation at a
time, or with `plan_batch` those of several worlds at once. So a result depends on the policy and
the seed alone, not on parallel episodes or machines; in batches also on rounding, and with
`execution.delay_s=measured` on the time that a plan takes. `run_seeds`
keeps stored results, continues after an interruption, and shows the progress.
This module imports without torch.
"""

import io
import logging
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from stringline.datasets.contract.argument_checks import COUNT, WHOLE
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.files.atomic import write_file
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import (
    ChunkExecutor,
    Execution,
    check_instruction,
    check_plan_batch,
    plan_batch,
)
from stringline.sim.evaluation.results import EpisodeResult, ResultsFile
from stringline.sim.rollout.cluster import Cluster, LocalCluster, dispatch
from stringline.sim.rollout.rollout import DelayedChunk, Rollout
from stringline.sim.rollout.workers import (
    EpisodeEnd,
    EpisodeJob,
    MakeWorld,
    PlanRequest,
    TaskResult,
    WorkerReady,
)

_MOST_SAMPLES = 200
_SEEN = "observation/"
_MOTION_TIME = "motion/time"
_MOTION_POSITIONS = "motion/positions"


@dataclass(frozen=True)
class Trace:
    """Courses of an episode, with at most 200 samples each.

    Attributes:
        names: All stages of the task, in order.
        stages: Times of the first arrival at each stage but the first, seconds, in order of time.
        time: (S,) start of each sample, seconds.
        openings: (S,) commanded openings by arm, 0 closed to 1 open.
        speed: (S,) largest speed of any commanded joint during a sample, rad/s.
    """

    names: tuple[str, ...]
    stages: Mapping[str, float]
    time: NDArray[np.float32]
    openings: Mapping[str, NDArray[np.float32]]
    speed: NDArray[np.float32]

    @classmethod
    def of(cls, rollout: Rollout, stages: Sequence[str], contract: Contract) -> Self:
        """Returns the trace of an episode of at least one action; `stages` are all names."""
        actions = np.stack(rollout.actions).astype(np.float32)
        kinds = [(dimension.kind, dimension.mode) for dimension in contract.action]
        joints = [column for column, kind in enumerate(kinds) if kind == ("joint", "absolute")]
        speeds = (
            np.abs(np.diff(actions[:, joints], axis=0, prepend=actions[:1, joints]))
            * contract.control_hz
        )
        groups = np.array_split(np.arange(len(actions)), min(len(actions), _MOST_SAMPLES))
        starts = np.array([group[0] for group in groups])
        return cls(
            tuple(stages),
            {stages[stage]: time for stage, time in rollout.stage_times.items() if stage},
            (starts / contract.control_hz).astype(np.float32),
            {
                dimension.arm: actions[starts, column]
                for column, dimension in enumerate(contract.action)
                if kinds[column] == ("gripper", "absolute")
            },
            np.array([speeds[group].max(initial=0.0) for group in groups], np.float32),
        )


@dataclass(frozen=True)
class Motion:
    """The motion of all bodies in an episode.

    Attributes:
        time: (F,) time of each frame, seconds.
        positions: (F, nq) positions of all joints of the world, in MuJoCo's order.
    """

    time: NDArray[np.float64]
    positions: NDArray[np.float64]

    @classmethod
    def of(cls, rollout: Rollout) -> Self | None:
        """Returns the motion of an episode; None if it was not recorded."""
        if not rollout.motion:
            return None
        return cls(np.array(list(rollout.motion)), np.stack(list(rollout.motion.values())))


def trace_of_video(video: Path) -> Path:
    """Returns the file of the trace of a video."""
    return video.with_suffix(".npz")


def write_trace(
    path: Path, trace: Trace, observation: Mapping[str, Array], motion: Motion | None = None
) -> None:
    """Writes a trace with the first observation and the motion, if known, compressed."""
    arrays: dict[str, Any] = {
        "names": np.array(trace.names, np.str_),
        "stages": np.array(list(trace.stages), np.str_),
        "reached": np.array(list(trace.stages.values()), np.float64),
        "time": trace.time,
        "speed": trace.speed,
        **{f"opening/{arm}": course for arm, course in trace.openings.items()},
        **{_SEEN + key: value for key, value in observation.items()},
    }
    if motion is not None:
        arrays[_MOTION_TIME] = motion.time
        arrays[_MOTION_POSITIONS] = motion.positions.astype(np.float32)
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    write_file(path, data.getvalue())


def read_trace(path: Path) -> Trace | None:
    """Reads a trace without its observation; None if the file does not exist."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        stages = dict(zip(file["stages"].tolist(), file["reached"].tolist(), strict=True))
        openings = {
            key.partition("/")[2]: file[key] for key in file.files if key.startswith("opening/")
        }
        return Trace(tuple(file["names"].tolist()), stages, file["time"], openings, file["speed"])


def read_motion(path: Path) -> Motion | None:
    """Reads the motion of an episode; None if the file does not exist or has no motion."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        if _MOTION_TIME not in file.files:
            return None
        return Motion(file[_MOTION_TIME], file[_MOTION_POSITIONS].astype(np.float64))


def read_first_observation(path: Path) -> dict[str, Array] | None:
    """Reads the first observation of the policy; None if the file does not exist."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as file:
        return {key.removeprefix(_SEEN): file[key] for key in file.files if key.startswith(_SEEN)}


logger = logging.getLogger(__name__)

Results = Generator[EpisodeResult, None, None]


def run_seeds(
    seeds: Sequence[int],
    run: Callable[[Sequence[int]], Results],
    *,
    file: Path | None = None,
    about: Mapping[str, Any],
    description: str = "evaluating",
) -> list[EpisodeResult]:
    """Runs the episodes of the seeds that have no result yet.

    Args:
        seeds: Distinct seeds.
        run: Runs the episodes of seeds; yields each result when its episode ends.
        file: File of the results, one per line; an interrupted evaluation continues it.
        about: The evaluated policy and task, plain JSON; must agree with the file.
        description: Label of the progress bar.

    Returns:
        One result per seed, in the order of the seeds.
    """
    if len(set(seeds)) != len(seeds):
        raise ValueError("The seeds of an evaluation must differ from each other.")
    stored = None if file is None else ResultsFile(file, about)
    results = dict(stored.results) if stored else {}
    pending = [seed for seed in seeds if seed not in results]
    done = len(seeds) - len(pending)
    if done:
        logger.info("%d of %d episodes are done already.", done, len(seeds))
    fresh = run(pending)
    with (
        tqdm(total=len(seeds), initial=done, desc=description, unit="episode") as progress,
        closing(fresh),
    ):
        for result in fresh:
            results[result.seed] = result
            if stored:
                stored.add(result)
            successes = sum(results[seed].success for seed in seeds if seed in results)
            progress.set_postfix_str(f"{successes} successes", refresh=False)
            progress.update()
    return [results[seed] for seed in seeds]


class Evaluation:
    """Runs a policy on seeds.

    Args:
        policy: The policy to measure.
        make_world: Builds a world in each worker, such as `partial(make_environment,
            "hand_over_banana")`.
        execute_steps: Control periods between two plans; if None, whole chunks.
        execution: Blending and delay of plans; if None, a receding horizon without delay.
        instruction: Added to the observations; if None, none is added.
        workers: Number of parallel worlds; 0 takes one per processor.
        options: Options of the task, such as `table_height`.
        videos: Folder of a video `<seed>.mp4` and a trace of every episode; if None, no videos.
        cluster: Where the worlds run; by default in processes of this machine.
        plan_batch: Largest number of observations of parallel worlds that the policy answers at
            once.

    Raises:
        ValueError: The policy rejects the instruction, cannot plan in batches, or an argument is
            out of range.
    """

    def __init__(
        self,
        policy: Policy,
        make_world: MakeWorld,
        *,
        execute_steps: int | None,
        execution: Execution | None = None,
        instruction: str | None = None,
        workers: int = 2,
        options: Mapping[str, Any] | None = None,
        videos: Path | None = None,
        cluster: Cluster | None = None,
        plan_batch: int = 1,
    ) -> None:
        if execute_steps is not None:
            COUNT.check(execute_steps=execute_steps)
        WHOLE.check(workers=workers)
        check_plan_batch(policy, plan_batch)
        if instruction is not None:
            check_instruction(policy, instruction)
        self.policy = policy
        self.execute_steps = execute_steps
        self.execution = execution or Execution()
        self.instruction = instruction
        self.options = dict(options or {})
        self.videos = videos
        self.plan_batch = plan_batch
        self._make_world = make_world
        self._workers = workers
        self._cluster = cluster or LocalCluster()

    def run(
        self, seeds: Sequence[int], file: Path | None = None, about: Mapping[str, Any] | None = None
    ) -> list[EpisodeResult]:
        """Runs the episodes of the seeds that have no result yet.

        Args:
            seeds: Distinct seeds.
            file: See `run_seeds`.
            about: Checkpoint and task, plain JSON; see `run_seeds`.

        Returns:
            One result per seed, in the order of the seeds.
        """
        known = {
            "execute_steps": self.execute_steps,
            "options": self.options,
            **self.execution.about(),
        }
        return run_seeds(seeds, self._results, file=file, about=known | dict(about or {}))

    def _results(self, seeds: Sequence[int]) -> Results:
        if not seeds:
            return
        with self._cluster.open(self._make_world, self._workers, len(seeds)) as pool:
            yield from dispatch(pool, _PolicyEpisodes(self, seeds))


@dataclass
class RunningEpisode:
    """A running episode of a policy: its session, the times of its answers, what it saw first."""

    executor: ChunkExecutor
    answer_ms: list[float] = field(default_factory=list)
    first_observation: Mapping[str, Array] = field(default_factory=dict)


class PolicySessions:
    """The sessions of a policy in the running episodes, by their seeds.

    Args:
        policy: The policy.
        execution: Blending and delay of plans.
        execute_steps: Control periods between two plans; if None, whole chunks.
        instruction: Added to the observations; if None, none is added.
    """

    def __init__(
        self,
        policy: Policy,
        execution: Execution,
        execute_steps: int | None,
        instruction: str | None = None,
    ) -> None:
        self.policy = policy
        self._execution = execution
        self._execute_steps = execute_steps
        self._instruction = instruction
        self._running: dict[int, RunningEpisode] = {}

    @property
    def replan_after(self) -> int | None:
        """Control periods between two planned observations; None means a whole plan."""
        return self._execution.replan_after(self._execute_steps)

    def check(self, message: WorkerReady) -> None:
        """Checks that the policy fits the world of a worker.

        Raises:
            ValueError: It does not.
        """
        required = self.policy.contract
        offered = message.contract
        if reasons := required.incompatibilities(offered):
            arm = required.kinematics is not None and offered.kinematics != required.kinematics
            way = " task.embodiment=menagerie:NAME or FILE chooses the arm of the world."
            raise ValueError(
                f"The policy does not fit this world. {' '.join(reasons)}{way if arm else ''}"
            )

    def begin(self, seed: int) -> None:
        """Begins the episode of a seed; one that has begun already begins again."""
        self._running[seed] = RunningEpisode(
            ChunkExecutor(
                self.policy,
                seed,
                self._execution,
                execute_steps=self._execute_steps,
                instruction=self._instruction,
            )
        )

    def plans(self, requests: Mapping[int, PlanRequest]) -> Mapping[int, DelayedChunk]:
        """Returns the plans for the observations of episodes, by their seeds."""
        episodes = [self._running[seed] for seed in requests]
        observations = [request.observation for request in requests.values()]
        start = time.perf_counter()
        executors = [episode.executor for episode in episodes]
        chunks = plan_batch(self.policy, executors, observations)
        answer_ms = (time.perf_counter() - start) * 1e3
        for episode, observation in zip(episodes, observations, strict=True):
            episode.answer_ms.append(answer_ms)
            if not episode.first_observation:
                # As the policy receives it, since reports ask the policy again.
                episode.first_observation = episode.executor.add_instruction(observation)
        answers = map(DelayedChunk, chunks, (each.delay_steps for each in executors))
        return dict(zip(requests, answers, strict=True))

    def end(self, seed: int) -> RunningEpisode:
        """Ends the episode of a seed."""
        return self._running.pop(seed)


class _PolicyEpisodes:
    """The episodes of an evaluation, for the dispatcher."""

    def __init__(self, evaluation: Evaluation, seeds: Sequence[int]) -> None:
        self._evaluation = evaluation
        self._contract = evaluation.policy.contract
        self._seeds = list(seeds)
        self._sessions = PolicySessions(
            evaluation.policy,
            evaluation.execution,
            evaluation.execute_steps,
            evaluation.instruction,
        )
        self._stages: tuple[str, ...] = ()

    def waiting(self, running: Collection[int]) -> list[int]:
        return [seed for seed in self._seeds if seed not in running]

    def on_ready(self, message: WorkerReady) -> None:
        self._sessions.check(message)
        self._stages = message.stages

    def start(self, seed: int) -> EpisodeJob:
        chosen = self._evaluation
        self._sessions.begin(seed)
        return EpisodeJob(
            seed, self._sessions.replan_after, chosen.options, chosen.videos is not None
        )

    @property
    def plan_batch(self) -> int:
        return self._evaluation.plan_batch

    def plans(self, requests: Mapping[int, PlanRequest]) -> Mapping[int, DelayedChunk]:
        return self._sessions.plans(requests)

    def finish(self, seed: int, message: EpisodeEnd | TaskResult) -> EpisodeResult:
        assert isinstance(message, EpisodeEnd)
        self._seeds.remove(seed)
        episode = self._sessions.end(seed)
        if message.video is not None:
            self._store_video(seed, message, episode)
        rollout = message.rollout
        return EpisodeResult.measured(
            np.stack(rollout.actions),
            episode.answer_ms,
            self._contract,
            seed=seed,
            success=rollout.success,
            stage=rollout.stage,
            stage_name=self._stages[rollout.stage],
            time_s=rollout.time_s,
            unstable=rollout.unstable,
            drawn=rollout.drawn,
        )

    def recover(self, seed: int) -> None:
        """Returns None, because workers store nothing."""

    def give_up(self, seed: int, reason: str) -> EpisodeResult:
        self._seeds.remove(seed)
        return EpisodeResult(
            seed,
            success=False,
            stage=0,
            stage_name=self._stages[0],
            time_s=0.0,
            plans=0,
            inference_ms=0.0,
            acceleration=0.0,
            error=reason,
        )

    def _store_video(self, seed: int, message: EpisodeEnd, episode: RunningEpisode) -> None:
        assert self._evaluation.videos is not None
        assert message.video is not None
        self._evaluation.videos.mkdir(parents=True, exist_ok=True)
        video = self._evaluation.videos / f"{seed}.mp4"
        write_file(video, message.video)
        trace = Trace.of(message.rollout, self._stages, self._contract)
        motion = Motion.of(message.rollout)
        write_trace(trace_of_video(video), trace, episode.first_observation, motion)
