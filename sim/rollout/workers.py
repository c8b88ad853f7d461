"""Worker processes that hold one simulated world each, and their messages to the main process.

A worker requests plans through a pipe. It imports neither torch nor the policy, so it starts fast
and stays small; see `start_child`. It ends with the process that started it, also when that is
killed. A worker that dies is replaced. `WorldHost` is the part of a worker that holds the world:
one message for each command.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self, runtime_checkable

from stringline.datasets.contract.contract import Array, Contract
from stringline.policies.chunks.chunk import ActionChunk
from stringline.sim.rollout.rollout import Answer, DelayedChunk, Rollout, Video, run_episode
from stringline.sim.rollout.world_interface import Simulation, WorldLostError

MakeWorld = Callable[[], Simulation]


@dataclass(frozen=True)
class EpisodeJob:
    """An episode to run, with the arguments of `run_episode`."""

    seed: int
    execute_steps: int | None
    options: Mapping[str, Any]
    video: bool = False


class WorldTask(Protocol):
    """Work on a world that needs no plans; the object and its result are pickled."""

    def run(self, world: Simulation) -> object:
        """Does the work."""


@runtime_checkable
class PlannedTask(Protocol):
    """Work on a world that needs plans; the object and its result are pickled."""

    def course(self, world: Simulation) -> Generator[dict[str, Array], Answer, object]:
        """Does the work: yields observations, receives their plans, and returns the result."""
        ...


@dataclass(frozen=True)
class WorkerReady:
    """A worker has built its world."""

    contract: Contract
    stages: tuple[str, ...]


@dataclass(frozen=True)
class PlanRequest:
    """A worker waits for the plan for an observation."""

    observation: dict[str, Array]


@dataclass(frozen=True)
class EpisodeEnd:
    """An episode has ended.

    The video is the content of an MP4 file, because the machines of a cluster may have no common
    disk.
    """

    rollout: Rollout
    video: bytes | None = None


@dataclass(frozen=True)
class TaskResult:
    """A `WorldTask` or `PlannedTask` has ended."""

    result: object


@dataclass(frozen=True)
class EpisodeLost:
    """The world of an episode has failed; `reason` is a sentence. Its worker continues."""

    reason: str


@dataclass(frozen=True)
class WorkerFailed:
    """A worker met an error and cannot continue."""

    error: Exception
    trace: str


@dataclass(frozen=True)
class WorkerLost:
    """A worker has died during its work; `reason` is a sentence. Another worker replaces it."""

    reason: str


Command = EpisodeJob | WorldTask | PlannedTask | ActionChunk | DelayedChunk
Message = (
    WorkerReady | PlanRequest | EpisodeEnd | TaskResult | EpisodeLost | WorkerFailed | WorkerLost
)


class RemoteTracebackError(Exception):
    """The traceback of an error in a worker, as text; the cause of the error in this process."""


class WorldHost:
    """Holds one world.

    All calls must come from one thread, because a graphics context belongs to one thread.
    """

    def __init__(self, make: MakeWorld) -> None:
        self._make = make
        self._world: Simulation | None = None
        self._episode: Generator[dict[str, Array], Answer, object] | None = None
        self._video: Video | None = None

    def open(self) -> Message:
        """Builds the world and returns `WorkerReady` or `WorkerFailed`."""
        try:
            self._world = self._make()
            return WorkerReady(self._world.contract, tuple(self._world.task.stages))
        except Exception as error:
            return WorkerFailed(error, traceback.format_exc())

    def handle(self, command: Command) -> Message:
        """Handles a job, a task, or the plan for the last request, and returns the next message.

        That is `PlanRequest` or `EpisodeEnd` for a job, `TaskResult` for a task, after requests of
        one that needs plans, or for both `EpisodeLost` or `WorkerFailed`.
        """
        assert self._world is not None
        try:
            if isinstance(command, (ActionChunk, DelayedChunk)):
                assert self._episode is not None
                return self._continue(self._episode, command)
            if isinstance(command, EpisodeJob):
                return self._begin(command, self._world)
            if isinstance(command, PlannedTask):
                self._episode = command.course(self._world)
                return self._continue(self._episode, None)
            return TaskResult(command.run(self._world))
        except WorldLostError as error:
            self._episode = self._video = None
            return EpisodeLost(str(error))
        except Exception as error:
            return WorkerFailed(error, traceback.format_exc())

    def close(self) -> None:
        """Closes the world."""
        if self._world is not None:
            self._world.close()

    def _begin(self, job: EpisodeJob, world: Simulation) -> Message:
        self._video = Video() if job.video else None
        self._episode = run_episode(
            world, job.seed, execute_steps=job.execute_steps, options=job.options, video=self._video
        )
        return self._continue(self._episode, None)

    def _continue(
        self, episode: Generator[dict[str, Array], Answer, object], answer: Answer | None
    ) -> Message:
        """Sends a plan, or begins the episode with None."""
        try:
            return PlanRequest(next(episode) if answer is None else episode.send(answer))
        except StopIteration as end:
            video = None if self._video is None else _mp4(self._video)
            self._episode = self._video = None
            if isinstance(end.value, Rollout):
                return EpisodeEnd(end.value, video)
            return TaskResult(end.value)


def _mp4(video: Video) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        video.write(path)
        return path.read_bytes()


def start_child(
    function: str,
    descriptors: Sequence[int] = (),
    *,
    stdin: IO[bytes] | int | None = None,
    output: IO[bytes] | None = None,
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a fresh interpreter that calls a function, which calls `end_with_parent` first.

    It imports the module of the function only. multiprocessing's `spawn` would import the program
    that started it as well, torch included, and graphics contexts and threads do not survive a
    fork.

    Args:
        function: Module and name, such as `stringline.sim.rollout.workers:serve`. Its arguments are
            the descriptors and the lifeline.
        descriptors: File descriptors that the process inherits.
        stdin: Standard input; if None, that of this process.
        output: File of both outputs; if None, those of this process.

    Returns:
        The process, and the other end of its lifeline; closing it ends the process at once.
    """
    module, name = function.split(":")
    lifeline, own_end = os.pipe()
    passed = [*descriptors, lifeline]
    code = f"from {module} import {name}; {name}({', '.join(map(str, passed))})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=passed,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=stdin,
        stdout=output,
        stderr=output,
    )
    os.close(lifeline)
    return process, own_end


def end_with_parent(lifeline: int) -> None:
    """Lets this process end when its parent has ended or closes its end of the lifeline.

    Ctrl-C reaches the whole process group, but the parent decides how to end, so it is ignored.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_and_exit, args=[lifeline], daemon=True).start()


def _wait_and_exit(lifeline: int) -> None:
    # Otherwise an episode of a killed parent would be stored again by the process that continues.
    os.read(lifeline, 1)
    os._exit(1)


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
            raise ValueError(f"workers must be an integer of at least 1 (got {count}).")
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
