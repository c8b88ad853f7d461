"""Plans for several worlds at once: all are answered, also while episodes end and workers die."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.sim.deaths import Deaths
from tests.sim.evaluation.test_late_plans import Constant, outcome
from tests.sim.in_process import InProcess
from tests.sim.track import Track, mortal_track

from stringline.datasets.contract.contract import Observation
from stringline.policies.chunks.chunk import ActionChunk, ActionPrefix, Session
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.rollout.workers import Command, MakeWorld, Message, WorldHost

SEEDS, STEPS = list(range(20, 27)), 20


class Recorded(Constant):
    """Plans one by one and records the number of observations of each batch."""

    def __init__(self) -> None:
        super().__init__(8)
        self.sizes = list[int]()

    def plan_batch(
        self,
        sessions: Sequence[Session],
        observations: Sequence[Observation],
        prefixes: Sequence[ActionPrefix | None],
    ) -> list[ActionChunk]:
        assert list(prefixes) == [None] * len(sessions)
        self.sizes.append(len(sessions))
        return [each.plan(seen) for each, seen in zip(sessions, observations, strict=True)]


class World:
    """A worker of `InTurns`."""

    def __init__(self, make: MakeWorld, messages: deque[tuple["World", Message]]) -> None:
        self._host, self._messages = WorldHost(make), messages
        messages.append((self, self._host.open()))

    def send(self, command: Command) -> None:
        self._messages.append((self, self._host.handle(command)))


class InTurns:
    """Several worlds in this process, whose messages arrive in the order of their commands."""

    @contextmanager
    def open(self, make: MakeWorld, workers: int, most: int) -> Iterator["InTurns"]:
        self._messages = deque[tuple[World, Message]]()
        self._worlds = [World(make, self._messages) for _ in range(workers)]
        yield self

    def messages(self) -> Iterator[tuple[World, Message]]:
        """Ends the test if the dispatcher waits for a world that waits for a plan."""
        while self._messages:
            yield self._messages.popleft()
        raise AssertionError("All worlds wait.")


@pytest.fixture(scope="module")
def serial() -> list[EpisodeResult]:
    return Evaluation(Constant(8), partial(Track, STEPS), execute_steps=3, cluster=InProcess()).run(
        SEEDS
    )


@pytest.mark.parametrize(("size", "workers"), [(1, 2), (2, 3), (3, 3), (9, 2), (4, 9)])
def test_results_equal_those_without_batches(
    serial: list[EpisodeResult], size: int, workers: int
) -> None:
    """At the end fewer episodes run than a batch has; their plans do not wait."""
    policy = Recorded()
    got = Evaluation(
        policy,
        partial(Track, STEPS),
        execute_steps=3,
        workers=workers,
        cluster=InTurns(),
        plan_batch=size,
    ).run(SEEDS)
    assert outcome(got) == outcome(serial)
    assert max(policy.sizes, default=1) == min(size, workers)
    assert sum(policy.sizes) <= sum(result.plans for result in got)


def test_processes_that_die(serial: list[EpisodeResult], tmp_path: Path) -> None:
    world = partial(mortal_track, Deaths(tmp_path, by_kill={21: 1, 24: 2}, by_fault={}), STEPS)
    got = Evaluation(Recorded(), world, execute_steps=3, workers=3, plan_batch=3).run(SEEDS)
    assert outcome(got) == outcome(serial)
