"""Processes that hold one simulated world each and ask for every decision through a pipe.

They import neither torch nor the policy, so they start fast and stay small. They are fresh interpreters: graphics contexts and
threads do not survive a fork, and multiprocessing's own spawning would import the command that started it, torch included.
"""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from stringline.datasets.contract import Array, Contract
from stringline.policies.chunk import ActionChunk
from stringline.sim.film import Film
from stringline.sim.rollout import Rollout, Simulation, roll_out

MakeWorld = Callable[[], Simulation]


@dataclass(frozen=True)
class Job:
    """One episode to run.

    Attributes:
        seed: Of the world.
        execute_steps: See `roll_out`.
        options: Of the task.
        film: Where to write a film, if anywhere.
    """

    seed: int
    execute_steps: int
    options: Mapping[str, float]
    film: Path | None = None


@dataclass(frozen=True)
class Ready:
    """A worker has built its world."""

    contract: Contract
    stages: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """A worker waits for the answer to an observation."""

    observation: dict[str, Array]


@dataclass(frozen=True)
class Ended:
    """An episode is over."""

    rollout: Rollout


@dataclass(frozen=True)
class Failed:
    """A worker met an error and is gone."""

    error: Exception
    trace: str


class RemoteTracebackError(Exception):
    """The trace of an error in a worker, as text; the cause of the error where it is raised again."""


class Errand(Protocol):
    """Work for a world that needs no answers; it is pickled, and so is what it returns."""

    def run(self, world: Simulation) -> object:
        """Does it."""


@dataclass(frozen=True)
class Returned:
    """An errand is done."""

    result: object


Message = Ready | Asked | Ended | Returned | Failed


def serve(descriptor: int) -> None:
    """Builds the world that arrives first on a pipe, then runs jobs and errands until None arrives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what to do.
    connection = Connection(descriptor)
    with suppress(EOFError, BrokenPipeError):  # The parent is gone, and so is the reason to work.
        try:
            _work(connection)
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:
            connection.send(Failed(error, traceback.format_exc()))


def _work(connection: Connection) -> None:
    def ask(observation: Mapping[str, Array]) -> ActionChunk:
        connection.send(Asked(dict(observation)))
        answer = connection.recv()
        assert isinstance(answer, ActionChunk)
        return answer

    make: MakeWorld = connection.recv()
    world = make()
    connection.send(Ready(world.contract, tuple(world.task.stages)))
    while (job := connection.recv()) is not None:
        if not isinstance(job, Job):
            connection.send(Returned(job.run(world)))
            continue
        film = None if job.film is None else Film()
        rollout = roll_out(world, ask, job.seed, execute_steps=job.execute_steps, options=job.options, film=film)
        if film is not None and job.film is not None:
            film.write(job.film)
        connection.send(Ended(rollout))
    world.close()


class Worker:
    """One process and the pipe to it."""

    def __init__(self, make: MakeWorld) -> None:
        """Starts it; its first message is `Ready`."""
        self.connection, theirs = Pipe()
        code = f"from stringline.sim.workers import serve; serve({theirs.fileno()})"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self.send(make)

    def send(self, message: Job | Errand | ActionChunk | MakeWorld | None) -> None:
        """Hands it a job, an errand, an answer, or None to end it.

        Raises:
            RuntimeError: It has died.
        """
        try:
            self.connection.send(message)
        except BrokenPipeError as error:
            raise self._death() from error

    def receive(self) -> Message:
        """Returns its next message.

        Raises:
            RuntimeError: It has died.
        """
        try:
            message: Message = self.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise self._death() from error
        return message

    def end(self, *, at_once: bool) -> None:
        """Lets it close its world, or does not."""
        if at_once:
            self.process.terminate()
        else:
            with suppress(BrokenPipeError):
                self.connection.send(None)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.connection.close()

    def _death(self) -> RuntimeError:
        code = self.process.wait(5)
        hint = "; memory may have run out: use fewer workers" if code == -signal.SIGKILL else ""
        return RuntimeError(f"A simulation process ended with exit code {code}{hint}.")


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
        self._workers = [Worker(make) for _ in range(count)]

    def messages(self) -> Iterator[tuple[Worker, Message]]:
        """Yields what the workers say, as it comes.

        Raises:
            RuntimeError: A worker died.
            Exception: What a worker met, with the trace of it as its cause.
        """
        by_connection: dict[object, Worker] = {worker.connection: worker for worker in self._workers}
        while True:
            for connection in wait([worker.connection for worker in self._workers]):
                worker = by_connection[connection]
                message = worker.receive()
                if isinstance(message, Failed):
                    raise message.error from RemoteTracebackError(message.trace)
                yield worker, message

    def __enter__(self) -> Self:
        """Returns the workers."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Lets idle workers close their worlds; after an error they are ended at once."""
        for worker in self._workers:
            worker.end(at_once=kind is not None)
