"""Measures a policy in simulation: fixed seeds, the same outcome for any number of workers, success with its interval.

The policy stays in this process and answers one observation at a time, in a session of its own per
episode; so an outcome depends on the policy and the seed alone, not on what runs beside it, nor on
which machine. This module imports without torch.
"""

import logging
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from stringline.datasets.contract.arguments import COUNT, WHOLE
from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.embodiments.catalogue import BODIES
from stringline.datasets.files.atomic import write_file
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.executed_session import ExecutedSession
from stringline.policies.execution.execution import Execution
from stringline.sim.evaluation.metrics import limit_hits
from stringline.sim.evaluation.results import EpisodeResult, ResultsFile
from stringline.sim.evaluation.trace import Trace, trace_of_video, write_trace
from stringline.sim.rollout.cluster import Cluster, LocalCluster, WorkerFace
from stringline.sim.rollout.messages import Asked, Ended, Job, Lost, MakeWorld, Ready
from stringline.sim.rollout.retries import Losses
from stringline.sim.rollout.rollout import Arrival, Rollout

logger = logging.getLogger(__name__)

EVALUATION_SEED = 1_000_000


def evaluation_seeds(count: int, first: int = EVALUATION_SEED) -> list[int]:
    """Returns the seeds that evaluations use; collection counts from 0, so no policy has seen them."""
    return list(range(first, first + count))


@dataclass
class _Episode:
    """An episode in progress."""

    job: Job
    session: ExecutedSession
    answer_ms: list[float] = field(default_factory=list)
    first_seen: Mapping[str, Array] = field(default_factory=dict)


class Evaluation:
    """Runs a policy on seeds.

    Args:
        policy: What is measured.
        make_world: Builds a world in each worker, such as `partial(make_environment,
            "hand_over_banana")`.
        execute_steps: Control periods between two plans; None: whole chunks.
        execution: What plans are blended with, and when they are in force; None: a receding horizon
            without delay.
        workers: Worlds at a time; 0 takes one per processor.
        options: Of the task, such as `table_height`.
        videos: Folder for a video of every episode, `<seed>.mp4`, and its trace, see `trace.py`;
            None for no videos.
        cluster: Where the worlds run; by default in processes of this machine.
    """

    def __init__(
        self,
        policy: Policy,
        make_world: MakeWorld,
        *,
        execute_steps: int | None,
        execution: Execution | None = None,
        workers: int = 2,
        options: Mapping[str, float] | None = None,
        videos: Path | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        if execute_steps is not None:
            COUNT.check(execute_steps=execute_steps)
        WHOLE.check(workers=workers)
        self._cluster = cluster or LocalCluster()
        self._policy = policy
        self._make_world = make_world
        self._workers = workers
        self._execute_steps = execute_steps
        self._execution = execution or Execution()
        self._options = dict(options or {})
        self._videos = videos

    def run(
        self, seeds: Sequence[int], file: Path | None = None, about: Mapping[str, Any] | None = None
    ) -> list[EpisodeResult]:
        """Runs the episodes that are not yet in the file.

        Args:
            seeds: Distinct seeds.
            file: Where results are kept, line by line; with it an interrupted evaluation continues.
            about: What is measured (checkpoint, task), plain JSON: a file that says otherwise is
                refused.

        Returns:
            One result per seed, in their order.

        Raises:
            ValueError: The world does not offer what the policy needs, or the file belongs to
                another evaluation.
            RuntimeError: Workers die before they are ready.
        """
        if len(set(seeds)) != len(seeds):
            raise ValueError("The seeds of an evaluation must differ from each other.")
        known = {
            "execute_steps": self._execute_steps,
            "options": self._options,
            **self._execution.about(),
        }
        settings = known | dict(about or {})
        kept = None if file is None else ResultsFile(file, settings)
        results = dict(kept.results) if kept else {}
        pending = deque(seed for seed in seeds if seed not in results)
        done = len(seeds) - len(pending)
        if done:
            logger.info("%d of %d episodes are done already.", done, len(seeds))
        with (
            tqdm(total=len(seeds), initial=done, desc="evaluating", unit="episode") as progress,
            closing(self._results(pending)) as fresh,
        ):
            for result in fresh:
                results[result.seed] = result
                if kept:
                    kept.add(result)
                successes = sum(results[seed].success for seed in seeds if seed in results)
                progress.set_postfix_str(f"{successes} successes", refresh=False)
                progress.update()
        return [results[seed] for seed in seeds]

    def _results(self, pending: deque[int]) -> Generator[EpisodeResult, None, None]:
        running = dict[WorkerFace, _Episode]()
        idle = set[WorkerFace]()
        stages = tuple[str, ...]()
        losses = Losses()
        if not pending:
            return
        with self._cluster.open(self._make_world, self._workers, len(pending)) as pool:
            for worker, message in pool.messages():
                if isinstance(message, Asked):
                    worker.send(_answer(running[worker], message))
                    continue
                (idle.discard if isinstance(message, Lost) else idle.add)(worker)
                if isinstance(message, Ready):
                    self._check(message.contract)
                    stages = message.stages
                elif episode := running.pop(worker, None):
                    if isinstance(message, Ended):
                        yield self._ended(episode, message, stages)
                    elif isinstance(message, Lost):
                        if losses.again(episode.job.seed, message.reason):
                            pending.appendleft(episode.job.seed)
                        else:
                            yield _unfinished(episode.job.seed, message.reason, stages)
                while (
                    pending and idle
                ):  # One that had nothing to do may take over from one that was lost.
                    free = idle.pop()
                    running[free] = self._begin(pending.popleft())
                    free.send(running[free].job)
                if not pending and not running:
                    return

    def _check(self, offered: Contract) -> None:
        if misfits := self._policy.contract.misfits(offered):
            raise ValueError(f"The policy does not fit this world. {' '.join(misfits)}")

    def _begin(self, seed: int) -> _Episode:
        steps = self._execution.ask_after(self._execute_steps)
        session = self._execution.session(self._policy, seed, execute_steps=self._execute_steps)
        return _Episode(Job(seed, steps, self._options, video=self._videos is not None), session)

    def _ended(self, episode: _Episode, message: Ended, stages: Sequence[str]) -> EpisodeResult:
        if self._videos is not None and message.video is not None:
            self._videos.mkdir(parents=True, exist_ok=True)
            video = self._videos / f"{episode.job.seed}.mp4"
            write_file(video, message.video)
            write_trace(
                trace_of_video(video),
                Trace.of(message.rollout, stages, self._policy.contract),
                episode.first_seen,
            )
        return _result(episode, message.rollout, stages, self._policy.contract)


def _answer(episode: _Episode, asked: Asked) -> Arrival:
    episode.first_seen = episode.first_seen or asked.observation
    start = time.perf_counter()
    chunk = episode.session.plan(asked.observation)
    episode.answer_ms.append((time.perf_counter() - start) * 1e3)
    return Arrival(chunk, episode.session.delay_steps)


def _result(
    episode: _Episode, rollout: Rollout, stages: Sequence[str], contract: Contract
) -> EpisodeResult:
    actions = np.stack(rollout.actions)
    return EpisodeResult(
        seed=episode.job.seed,
        success=rollout.success,
        stage=rollout.stage,
        stage_name=stages[rollout.stage],
        time_s=rollout.time_s,
        plans=rollout.plans,
        inference_ms=float(np.median(episode.answer_ms)),
        acceleration=command_acceleration(actions, contract),
        inference_p95_ms=float(np.percentile(episode.answer_ms, 95)),
        limit_hits=limit_hits(actions, contract) if contract.embodiment in BODIES else None,
        unstable=rollout.unstable,
    )


def _unfinished(seed: int, reason: str, stages: Sequence[str]) -> EpisodeResult:
    return EpisodeResult(
        seed,
        success=False,
        stage=0,
        stage_name=stages[0],
        time_s=0.0,
        plans=0,
        inference_ms=0.0,
        acceleration=0.0,
        trouble=reason,
    )


def command_acceleration(actions: NDArray[Any], contract: Contract) -> float:
    """Returns the root mean square of the second difference of the commands (T, A) of all joints but grippers, rad/s^2.

    It is 0 for fewer than three actions, or without joint commands.
    """
    joints = [index for index, dimension in enumerate(contract.action) if dimension.kind == "joint"]
    second = np.diff(actions[:, joints].astype(np.float64), n=2, axis=0) * contract.control_hz**2
    return float(np.sqrt(np.mean(second**2))) if second.size else 0.0
