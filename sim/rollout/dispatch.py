"""The dispatcher: distributes episodes to workers and repeats the episodes of workers that died."""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from stringline.sim.rollout.cluster import WorkerHandle, WorkerPool
from stringline.sim.rollout.messages import (
    EpisodeEnd,
    EpisodeJob,
    Message,
    PlanRequest,
    TaskResult,
    WorkerLost,
    WorkerReady,
    WorldTask,
)
from stringline.sim.rollout.rollout import Answer

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

    def start(self, seed: int) -> EpisodeJob | WorldTask:
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
    assert isinstance(message, WorkerLost)
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
