"""Worlds in the process of a test, for tests of results; other tests have real processes.

A process takes two seconds until its first step. Here the host is the same, commands and messages
are pickled as for a pipe, and a world stays for the next evaluation with the same recipe.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stringline.datasets.contract.contract import Array
from stringline.sim.rollout.rollout import Answer, Rollout, run_episode
from stringline.sim.rollout.workers import (
    Command,
    MakeWorld,
    Message,
    RemoteTracebackError,
    WorkerFailed,
    WorldHost,
)
from stringline.sim.rollout.world_interface import Simulation


def roll_out(
    world: Simulation, plan: Callable[[Mapping[str, Array]], Answer], seed: int, **settings: Any
) -> Rollout:
    """Runs one episode with `run_episode`; `plan` answers its observations."""
    episode = run_episode(world, seed, **settings)
    observation = next(episode)
    while True:
        try:
            observation = episode.send(plan(observation))
        except StopIteration as end:
            rollout: Rollout = end.value
            return rollout


class InProcess:
    """Replaces processes: `monkeypatch.setattr(LocalCluster, "open", worlds.open)`."""

    def __init__(self) -> None:
        self._hosts: dict[bytes, tuple[WorldHost, Message]] = {}

    @contextmanager
    def open(self, make: MakeWorld, workers: int, most: int) -> Iterator["OneWorld"]:
        """As `LocalCluster.open`, with one world for any number of workers."""
        recipe = pickle.dumps(make)
        if recipe not in self._hosts:
            host = WorldHost(pickle.loads(recipe))
            self._hosts[recipe] = host, host.open()
        yield OneWorld(*self._hosts[recipe])

    def close(self) -> None:
        for host, _ in self._hosts.values():
            host.close()


class OneWorld:
    """A pool and its only worker."""

    def __init__(self, host: WorldHost, ready: Message) -> None:
        self._host, self._message, self._sent = host, ready, list[Command]()

    def send(self, command: Command) -> None:
        self._sent.append(pickle.loads(pickle.dumps(command)))

    def messages(self) -> Iterator[tuple["OneWorld", Message]]:
        while True:
            if isinstance(self._message, WorkerFailed):
                raise self._message.error from RemoteTracebackError(self._message.trace)
            yield self, pickle.loads(pickle.dumps(self._message))
            self._message = self._host.handle(self._sent.pop())
