"""Where simulated worlds run: processes of this machine, or actors of a Ray cluster."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from stringline.sim.rollout.jobs import Job, run_locally
from stringline.sim.rollout.messages import Command, MakeWorld, Message
from stringline.sim.rollout.workers import Workers


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
