"""Processes of this machine that hold one simulated world each and ask for every decision through a pipe.

They import neither torch nor the policy, so they start fast and stay small. They are fresh
interpreters: graphics contexts and threads do not survive a fork, and multiprocessing's own
spawning would import the command that started it, torch included. One that dies is replaced; and
they die with the process that started them, however that ends.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from stringline.sim.rollout.messages import (
    Command,
    Failed,
    Lost,
    MakeWorld,
    Message,
    Ready,
    RemoteTracebackError,
)
from stringline.sim.rollout.world_host import WorldHost

MOST_STILLBORN = 3


def serve(descriptor: int, lifeline: int) -> None:
    """Builds the world that arrives first on a pipe, then runs jobs and errands until None arrives.

    Args:
        descriptor: Of the pipe.
        lifeline: Of a pipe that ends with the parent.
    """
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent decides what to do.
    threading.Thread(target=_die_with_parent, args=[lifeline], daemon=True).start()
    connection = Connection(descriptor)
    with suppress(
        EOFError, BrokenPipeError, ConnectionResetError
    ):  # The parent is gone, and so is the reason to work.
        host = WorldHost(_receive(connection))
        _send(connection, message := host.open())
        while not isinstance(message, Failed) and (command := _receive(connection)) is not None:
            _send(connection, message := host.take(command))
        host.close()


def _send(connection: Connection, message: object) -> None:
    """Images take an eighth of the time that the connection's own `send` needs, which pickles by an older protocol."""
    connection.send_bytes(pickle.dumps(message, protocol=5))


def _receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


def _die_with_parent(lifeline: int) -> None:
    """Else what a killed parent had ordered would be stored a second time by the one that continues."""
    os.read(lifeline, 1)
    os._exit(1)


class Worker:
    """One process and the pipe to it."""

    def __init__(self, make: MakeWorld) -> None:
        """Starts it; its first message is `Ready`."""
        self.connection, theirs = Pipe()
        end_of_line, self._lifeline = os.pipe()
        code = (
            f"from stringline.sim.rollout.workers import serve; serve({theirs.fileno()}, "
            f"{end_of_line})"
        )
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)
        }
        passed = [theirs.fileno(), end_of_line]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=passed, env=environment
        )
        theirs.close()
        os.close(end_of_line)
        self.is_ready = False
        self._put(make)

    def send(self, command: Command) -> None:
        """Hands it a job, an errand or an answer; where it has died, `receive` says so."""
        self._put(command)

    def receive(self) -> Message:
        """Returns its next message: `Lost` where it has died."""
        try:
            message: Message = _receive(self.connection)
        except (EOFError, OSError):
            return Lost(self._death())
        self.is_ready = self.is_ready or isinstance(message, Ready)
        return message

    def end(self, *, at_once: bool) -> None:
        """Lets it close its world, or does not."""
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
        self.process.terminate()  # It may live on without its pipe.
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "A simulation process stopped to answer."
        if code >= 0:
            return f"A simulation process ended with exit code {code}."
        hint = "; memory may have run out: use fewer workers" if code == -signal.SIGKILL else ""
        return f"A simulation process was ended by {signal.Signals(-code).name}{hint}."


class Workers:
    """A fixed number of workers; leaving the `with` block ends them all."""

    def __init__(self, make: MakeWorld, count: int) -> None:
        """Starts them.

        Args:
            make: Builds a world; it is pickled, so it must be importable.
            count: At least 1.

        Raises:
            ValueError: The count is below 1.
        """
        if count < 1:
            raise ValueError(f"workers is {count}; allowed: 1 and above.")
        self._make = make
        self._stillborn = 0
        self._workers = [Worker(make) for _ in range(count)]

    def messages(self) -> Iterator[tuple[Worker, Message]]:
        """Yields what the workers say, as it comes; after `Lost` comes the `Ready` of another worker.

        Raises:
            RuntimeError: Workers die before they are ready.
            Exception: What a worker met, with the trace of it as its cause.
        """
        while True:
            by_connection: dict[object, Worker] = {
                worker.connection: worker for worker in self._workers
            }
            for connection in wait([worker.connection for worker in self._workers]):
                worker = by_connection[connection]
                message = worker.receive()
                if isinstance(message, Failed):
                    raise message.error from RemoteTracebackError(message.trace)
                if isinstance(message, Ready):
                    self._stillborn = 0
                if isinstance(message, Lost):
                    self._replace(worker, message.reason)
                yield worker, message

    def __enter__(self) -> Self:
        """Returns the workers."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Lets idle workers close their worlds; after an error they are ended at once."""
        for worker in self._workers:
            worker.end(at_once=kind is not None)

    def _replace(self, worker: Worker, reason: str) -> None:
        self._stillborn += not worker.is_ready
        if self._stillborn == MOST_STILLBORN:
            raise RuntimeError(f"{reason} So did others; none could build its world.")
        self._workers.remove(worker)
        worker.end(at_once=True)
        self._workers.append(Worker(self._make))
