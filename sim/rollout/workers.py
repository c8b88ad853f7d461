"""Worker processes of this machine: each holds one simulated world.

A worker requests plans through a pipe. It imports neither torch nor the policy, so it starts fast
and stays small; see `start_child`. A worker that dies is replaced.
"""

import os
import pickle
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from stringline.sim.rollout.child_process import end_with_parent, start_child
from stringline.sim.rollout.messages import (
    Command,
    MakeWorld,
    Message,
    RemoteTracebackError,
    WorkerFailed,
    WorkerLost,
    WorkerReady,
)
from stringline.sim.rollout.world_host import WorldHost

MOST_FAILED_STARTS = 3


def serve(descriptor: int, lifeline: int) -> None:
    """Builds the world that arrives first on a pipe, then runs jobs and tasks until None arrives.

    The arguments are file descriptors: of the pipe, and of one that ends with the parent process.
    """
    end_with_parent(lifeline)
    connection = Connection(descriptor)
    # These errors mean that the parent has ended.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        host = WorldHost(_receive(connection))
        _send(connection, message := host.open())
        while (
            not isinstance(message, WorkerFailed) and (command := _receive(connection)) is not None
        ):
            _send(connection, message := host.handle(command))
        host.close()


def _send(connection: Connection, message: object) -> None:
    # `Connection.send` uses an older protocol, which takes eight times as long for images.
    connection.send_bytes(pickle.dumps(message, protocol=5))


def _receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


class Worker:
    """A worker process and the pipe to it; its first message is `WorkerReady`."""

    def __init__(self, make: MakeWorld) -> None:
        self.connection, theirs = Pipe()
        self.process, self._lifeline = start_child(f"{__name__}:serve", [theirs.fileno()])
        theirs.close()
        self.is_ready = False
        self._put(make)

    def send(self, command: Command) -> None:
        """Sends a job, a task or a plan; if the process has died, `receive` reports it."""
        self._put(command)

    def receive(self) -> Message:
        """Returns the next message: `WorkerLost` if the process has died."""
        try:
            message: Message = _receive(self.connection)
        except (EOFError, OSError):
            return WorkerLost(self._death())
        self.is_ready = self.is_ready or isinstance(message, WorkerReady)
        return message

    def end(self, *, at_once: bool) -> None:
        """Ends the process; unless `at_once`, it closes its world first."""
        if at_once:
            self.process.terminate()
        else:
            self._put(None)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.connection.close()
        os.close(self._lifeline)

    def _put(self, message: Command | MakeWorld | None) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            _send(self.connection, message)

    def _death(self) -> str:
        self.process.terminate()  # It may still run without its pipe.
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "A simulation process does not answer."
        if code >= 0:
            return f"A simulation process ended with exit code {code}."
        hint = "; memory may have run out: use fewer workers" if code == -signal.SIGKILL else ""
        return f"A simulation process was ended by {signal.Signals(-code).name}{hint}."


class Workers:
    """A fixed number of workers, at least 1; the end of the `with` block ends them.

    `make` is pickled, so it must be importable.
    """

    def __init__(self, make: MakeWorld, count: int) -> None:
        if count < 1:
            raise ValueError(f"workers is {count}; allowed: 1 and above.")
        self._make = make
        self._failed_starts = 0
        self._workers = [Worker(make) for _ in range(count)]

    def messages(self) -> Iterator[tuple[Worker, Message]]:
        """Yields the messages of all workers; see `WorkerPool`."""
        while True:
            by_connection: dict[object, Worker] = {
                worker.connection: worker for worker in self._workers
            }
            for connection in wait([worker.connection for worker in self._workers]):
                worker = by_connection[connection]
                message = worker.receive()
                if isinstance(message, WorkerFailed):
                    raise message.error from RemoteTracebackError(message.trace)
                if isinstance(message, WorkerReady):
                    self._failed_starts = 0
                if isinstance(message, WorkerLost):
                    self._replace(worker, message.reason)
                yield worker, message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error it does not wait for them.
        for worker in self._workers:
            worker.end(at_once=kind is not None)

    def _replace(self, worker: Worker, reason: str) -> None:
        self._failed_starts += not worker.is_ready
        if self._failed_starts == MOST_FAILED_STARTS:
            raise RuntimeError(f"{reason} So did others; no process could build its world.")
        self._workers.remove(worker)
        worker.end(at_once=True)
        self._workers.append(Worker(self._make))
