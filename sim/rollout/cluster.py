"""Where simulated worlds run: as processes of this machine, or as actors on the machines of a Ray cluster."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from stringline.sim.rollout.messages import Command, MakeWorld, Message
from stringline.sim.rollout.workers import Workers


class WorkerFace(Protocol):
    """Something that holds one world."""

    def send(self, command: Command) -> None:
        """Hands it a job, an errand, or an answer; it answers by a message."""


class Pool(Protocol):
    """Some of them."""

    def messages(self) -> Iterator[tuple[WorkerFace, Message]]:
        """Yields what they say: `Ready` first; after `Lost` comes the `Ready` of another one.

        Raises:
            RuntimeError: No more can be had.
            Exception: What one of them met.
        """
        ...


class Cluster(Protocol):
    """Where to get them."""

    def open(self, make: MakeWorld, workers: int, most: int) -> AbstractContextManager[Pool]:
        """Starts workers; leaving the `with` block ends them.

        Args:
            make: Builds a world; it is pickled.
            workers: How many; 0 takes one per processor.
            most: More than that are of no use.
        """
        ...


@dataclass(frozen=True)
class LocalCluster:
    """Processes of this machine."""

    def open(self, make: MakeWorld, workers: int, most: int) -> AbstractContextManager[Pool]:
        """Starts processes; see `Workers`."""
        return Workers(make, min(workers or os.cpu_count() or 1, most))
