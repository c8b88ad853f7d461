"""Worlds in the process of a test, for tests of results; other tests have real processes.

A process costs two seconds before its first step. Here a host is the same, and what it is told and
says goes through pickle as through a pipe; and a world that was built stays for the next evaluation
that asks for the same.
"""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

from stringline.sim.rollout.messages import (
    Command,
    MakeWorld,
    Message,
    RemoteTracebackError,
    WorkerFailed,
)
from stringline.sim.rollout.world_host import WorldHost


class InProcess:
    """Replaces processes: `monkeypatch.setattr(LocalCluster, "open", worlds.open)`."""

    def __init__(self) -> None:
        self._hosts: dict[bytes, tuple[WorldHost, Message]] = {}

    @contextmanager
    def open(self, make: MakeWorld, workers: int, most: int) -> Iterator["OneWorld"]:
        """As `LocalCluster.open`, with one world however many are asked for."""
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
        self._host, self._message, self._told = host, ready, list[Command]()

    def send(self, command: Command) -> None:
        self._told.append(pickle.loads(pickle.dumps(command)))

    def messages(self) -> Iterator[tuple["OneWorld", Message]]:
        while True:
            if isinstance(self._message, WorkerFailed):
                raise self._message.error from RemoteTracebackError(self._message.trace)
            yield self, pickle.loads(pickle.dumps(self._message))
            self._message = self._host.handle(self._told.pop())
