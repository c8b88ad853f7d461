"""Where simulated worlds run, such as processes of this machine, and the dispatch of episodes.

The dispatcher distributes episodes to workers and repeats the episodes of workers that died, and of
worlds that failed.
"""

import logging
import os
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stringline.sim.rollout.jobs import Job, run_locally
from stringline.sim.rollout.rollout import Answer
from stringline.sim.rollout.workers import (
    Command,
    EpisodeEnd,
    EpisodeJob,
    EpisodeLost,
    MakeWorld,
    Message,
    PlannedTask,
    PlanRequest,
    TaskResult,
    WorkerLost,
    WorkerReady,
    Workers,
    WorldTask,
)


class WorkerHandle(Protocol):
    """The connection to a worker, which holds one world."""

    def send(self, command: Command) -> None:
        """Sends a job, a task or a plan; the worker answers with a message."""
        ...


class WorkerPool(Protocol):
    """The workers of a cluster."""

    def messages(self) -> Iterator[tuple[WorkerHandle, Message]]:
        """Yields the messages of all workers; raises the error of a worker.

        The first message of a worker is `WorkerReady`. After `WorkerLost` another worker starts.
        """
        ...


class Cluster(Protocol):
    """A source of workers."""

    def open(self, make: MakeWorld, workers: int, most: int) -> AbstractContextManager[WorkerPool]:
        """Starts up to `most` workers; the end of the `with` block ends them.

        `make` builds a world and is pickled. 0 workers: one per processor.
        """
        ...


@dataclass(frozen=True)
class LocalCluster:
    """Processes of this machine."""

    def open(self, make: MakeWorld, workers: int, most: int) -> AbstractContextManager[WorkerPool]:
        """Starts processes; see `Workers`."""
        return Workers(make, min(workers or os.cpu_count() or 1, most))

    def run_jobs(
        self, jobs: Sequence[Job], parallel: int
    ) -> Generator[tuple[Job, str], None, None]:
        """Runs jobs in processes; see `JobCluster.run_jobs`."""
        return run_locally(jobs, parallel)


logger = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
ResultT = TypeVar("ResultT", covariant=True)


class Episodes(Protocol[ResultT]):
    """Episodes to run, one for each seed."""

    def waiting(self, running: Collection[int]) -> Sequence[int]:
        """Returns the seeds that neither run nor have a result; if empty, the dispatcher ends."""
        ...

    def on_ready(self, message: WorkerReady) -> None:
        """Checks the world of a worker."""
        ...

    def start(self, seed: int) -> EpisodeJob | WorldTask | PlannedTask:
        """Returns the command that starts an episode."""
        ...

    @property
    def plan_batch(self) -> int:
        """Number of observations that are answered at once, if as many episodes run."""
        ...

    def plans(self, requests: Mapping[int, PlanRequest]) -> Mapping[int, Answer]:
        """Returns the plans for the observations of episodes, by their seeds."""
        ...

    def finish(self, seed: int, message: EpisodeEnd | TaskResult) -> ResultT:
        """Returns the result of an episode that ended."""
        ...

    def recover(self, seed: int) -> ResultT | None:
        """Returns the result of an episode whose worker died after it had stored the episode."""
        ...

    def give_up(self, seed: int, reason: str) -> ResultT:
        """Returns the result of an episode whose workers died in every attempt."""
        ...


def dispatch(pool: WorkerPool, episodes: Episodes[ResultT]) -> Iterator[ResultT]:
    """Runs episodes on the workers of a pool and yields each result when its episode ends."""
    running = dict[WorkerHandle, int]()
    idle = set[WorkerHandle]()
    asked = dict[WorkerHandle, PlanRequest]()
    losses = Counter[int]()
    for worker, message in pool.messages():
        if isinstance(message, PlanRequest):
            asked[worker] = message
        else:
            asked.pop(worker, None)
            (idle.discard if isinstance(message, WorkerLost) else idle.add)(worker)
            if isinstance(message, WorkerReady):
                episodes.on_ready(message)
            elif worker in running:
                result = _result(episodes, running.pop(worker), message, losses)
                if result is not None:
                    yield result
            waiting = list(episodes.waiting(running.values()))
            # Any idle worker may take over the episode of a lost worker.
            while waiting and idle:
                free = idle.pop()
                running[free] = waiting.pop(0)
                free.send(episodes.start(running[free]))
            if not waiting and not running:
                return
        if asked and len(asked) >= min(episodes.plan_batch, len(running)):
            _answer(episodes, {running[each]: (each, asked[each]) for each in asked})
            asked.clear()


def _answer(
    episodes: Episodes[ResultT], asked: Mapping[int, tuple[WorkerHandle, PlanRequest]]
) -> None:
    """Sends the plans for the requests of episodes, by their seeds."""
    requests = {seed: asked[seed][1] for seed in sorted(asked)}
    for seed, answer in episodes.plans(requests).items():
        asked[seed][0].send(answer)


def _result(
    episodes: Episodes[ResultT], seed: int, message: Message, losses: Counter[int]
) -> ResultT | None:
    """Returns the result of an episode; None if it has to run again. Counts losses by seed."""
    if isinstance(message, (EpisodeEnd, TaskResult)):
        return episodes.finish(seed, message)
    assert isinstance(message, (EpisodeLost, WorkerLost))
    stored = episodes.recover(seed)
    if stored is not None:
        return stored
    losses[seed] += 1
    if losses[seed] < MOST_ATTEMPTS:
        logger.warning("Seed %d: %s The episode is run again.", seed, message.reason)
        return None
    logger.error(
        "Seed %d: %s That happened %d times; the episode counts as failed.",
        seed,
        message.reason,
        MOST_ATTEMPTS,
    )
    return episodes.give_up(seed, message.reason)
