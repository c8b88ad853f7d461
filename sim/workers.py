"""Spawned processes that hold one simulated world each and ask for every decision through a pipe.

They import neither torch nor the policy, so they start fast and stay small; they are spawned, not forked, because graphics contexts
and threads do not survive a fork.
"""

import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self

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

    message: str
    user_error: bool


Message = Ready | Asked | Ended | Failed


def _serve(connection: Connection, make: MakeWorld) -> None:
    """Runs jobs until None arrives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what to do.

    def ask(observation: Mapping[str, Array]) -> ActionChunk:
        connection.send(Asked(dict(observation)))
        answer = connection.recv()
        assert isinstance(answer, ActionChunk)
        return answer

    try:
        world = make()
        connection.send(Ready(world.contract, tuple(world.task.stages)))
        while isinstance(job := connection.recv(), Job):
            film = None if job.film is None else Film()
            rollout = roll_out(world, ask, job.seed, execute_steps=job.execute_steps, options=job.options, film=film)
            if film is not None and job.film is not None:
                film.write(job.film)
            connection.send(Ended(rollout))
        world.close()
    except (EOFError, BrokenPipeError):
        pass  # The parent is gone; so is the reason to work.
    except Exception as error:
        user_error = isinstance(error, ValueError)
        connection.send(Failed(str(error) if user_error else traceback.format_exc(), user_error))


class Worker:
    """One process and the pipe to it."""

    def __init__(self, make: MakeWorld, number: int) -> None:
        """Starts it; its first message is `Ready`."""
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, make), name=f"world-{number}", daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message: Job | ActionChunk | None) -> None:
        """Hands it a job, an answer, or None to end it.

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

    def _death(self) -> RuntimeError:
        self.process.join(5)
        return RuntimeError(
            f"A simulation process ended with exit code {self.process.exitcode}; -9 usually means that memory ran out: use fewer workers."
        )


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
        self._workers = [Worker(make, number) for number in range(count)]

    def messages(self) -> Iterator[tuple[Worker, Message]]:
        """Yields what the workers say, as it comes.

        Raises:
            ValueError: A worker met a user's mistake.
            RuntimeError: A worker died or met another error.
        """
        by_connection: dict[object, Worker] = {worker.connection: worker for worker in self._workers}
        while True:
            for connection in wait([worker.connection for worker in self._workers]):
                worker = by_connection[connection]
                message = worker.receive()
                if isinstance(message, Failed):
                    raise ValueError(message.message) if message.user_error else RuntimeError(message.message)
                yield worker, message

    def __enter__(self) -> Self:
        """Returns the workers."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Lets idle workers close their worlds; after an error they are ended at once."""
        for worker in self._workers:
            if kind is None and worker.process.is_alive():
                worker.send(None)
            else:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.connection.close()
