"""Jobs: commands that run one after the other as processes, on this machine or on a cluster.

The process of a command ends with the process that started it, also when that is killed: SIGTERM
lets a training save its state. A job can be repeated; it skips the commands that have ended.
A `SharedFolder` checks that the processes of several machines see the same folder. The `Speed` of
work on this machine is a start, and a time for each unit.
"""

import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Protocol, Self, TypeVar

from stringline.datasets.files.atomic import write_file

PATIENCE_S = 10.0  # A network file system may show a new file with some delay.
_PREFIX = ".shared-"


@dataclass(frozen=True)
class SharedFolder:
    """A folder, by its absolute path, that contains a marker file with a unique name."""

    path: Path
    marker: str
    patience_s: float

    def check(self) -> None:
        """Raises a ValueError if this machine does not see the marker within `patience_s`."""
        end = time.monotonic() + self.patience_s
        while not (self.path / self.marker).exists():
            if time.monotonic() > end:
                raise ValueError(
                    f"The machine {platform.node()!r} does not see the folder {self.path} of the "
                    f"starting machine. Choose a folder that all machines share under the same "
                    f"path."
                )
            time.sleep(0.2)


@contextmanager
def shared(
    path: Path, patience_s: float = PATIENCE_S, *, alone: bool = False
) -> Iterator[SharedFolder]:
    """Puts a marker file into a folder for the time of a `with` block.

    Args:
        path: The folder.
        patience_s: Time in which other machines must see the marker, seconds.
        alone: Whether markers of other processes are refused.

    Raises:
        ValueError: There is one, and `alone` is true.
    """
    _remove_abandoned_markers(path)
    marker = path / f"{_PREFIX}{uuid.uuid4().hex}"
    with marker.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            # Not before: of two processes that begin at once, at least one must see the other.
            if alone and len(list(path.glob(f"{_PREFIX}*"))) > 1:
                raise ValueError(
                    f"Another process writes to {path}. Wait until it ends, or choose another "
                    "folder."
                )
            yield SharedFolder(path, marker.name, patience_s)
        finally:
            marker.unlink(missing_ok=True)


def _remove_abandoned_markers(path: Path) -> None:
    """Removes the markers of killed processes, which no process has locked."""
    for marker in path.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError, BlockingIOError), marker.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            marker.unlink()


FINISHED = "finished.json"
LOG = "log.txt"
_MODULES = {
    "stringline-collect": "stringline.sim.collect",
    "stringline-train": "stringline.sim.train",
    "stringline-eval": "stringline.sim.evaluate",
}
HandleT = TypeVar("HandleT")


@dataclass(frozen=True)
class Job:
    """Commands of Stringline in their order, with a log file and a record in a folder.

    Attributes:
        name: Name in messages.
        commands: Each is the name of a command, such as `stringline-train`, and its arguments.
        folder: Folder of the log and of the record of ended commands; absolute.
        directory: Working directory of the commands; absolute.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    folder: Path
    directory: Path

    @property
    def finished(self) -> bool:
        """Whether all commands have ended without an error."""
        return self._ended() >= set(map(_essence, self.commands))

    def run(self, threads: int = 0) -> str:
        """Runs the commands that have not ended yet.

        Args:
            threads: Number of threads of each command; 0: its default.

        Returns:
            The reason of a failure as a sentence; empty if there is none.
        """
        with lifeline() as line:
            return self.run_until(line, threads)

    def run_until(self, line: int, threads: int = 0) -> str:
        """Runs the commands as `run`; they end when the other end of a pipe, `line`, is closed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for command in self.commands:
            if _essence(command) in (ended := self._ended()):
                continue
            if failure := self._failure(command, line, threads):
                return failure
            done = [list(each) for each in (*sorted(ended), _essence(command))]
            write_file(self.folder / FINISHED, json.dumps(done).encode())
        return ""

    def _ended(self) -> set[tuple[str, ...]]:
        file = self.folder / FINISHED
        ended = json.loads(file.read_text()) if file.is_file() else []
        return {_essence(command) for command in ended}

    def _failure(self, command: Sequence[str], line: int, threads: int) -> str:
        """Runs a command; returns the reason of its failure, empty after its end."""
        name, *arguments = command
        code = (
            f"import sys; from stringline.sim.rollout.jobs import end_with; end_with({line}); "
            f"sys.argv[0] = {name!r}; from {_MODULES[name]} import main; main()"
        )
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if threads:
            environment.setdefault("OMP_NUM_THREADS", str(threads))
        with (self.folder / LOG).open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[line],
                start_new_session=True,  # Ctrl-C reaches only the process that started the job.
            )
            status = process.wait()
        if not status:
            return ""
        with (self.folder / LOG).open("rb") as log:
            log.seek(start)
            output = log.read().decode(errors="replace")
        return _reason(name, status, output)


def _essence(command: Sequence[str]) -> tuple[str, ...]:
    """Returns a command without the number of workers, which affects no result."""
    return tuple(part for part in command if not part.startswith("workers="))


def _reason(name: str, status: int, output: str) -> str:
    """Returns the last line of a command that failed, or its signal."""
    if status < 0:
        hint = "; memory may have run out" if status == -signal.SIGKILL else ""
        return f"{name} was ended by {signal.Signals(-status).name}{hint}."
    lines = [line.strip() for line in output.replace("\r", "\n").splitlines() if line.strip()]
    last = lines[-1] if lines else f"it ended with exit code {status}."
    return last if last.startswith(f"{name}:") else f"{name}: {last}"


def end_with(line: int) -> None:
    """Sends SIGTERM to this process when the other end of a pipe is closed."""

    def watch() -> None:
        os.read(line, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def lifeline() -> Iterator[int]:
    """Yields the reading end of a pipe for `end_with`; the end of the block closes the pipe."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


class JobCluster(Protocol):
    """A place where jobs run: processes of this machine, a Ray cluster, Slurm."""

    def run_jobs(
        self, jobs: Sequence[Job], parallel: int
    ) -> Generator[tuple[Job, str], None, None]:
        """Yields each job when it ends, with the reason of its failure; empty if there is none.

        At most `parallel` jobs run at the same time. The end of the iteration ends all jobs.
        """
        ...


def run_locally(jobs: Sequence[Job], parallel: int) -> Generator[tuple[Job, str], None, None]:
    """Runs jobs in processes of this machine; see `JobCluster.run_jobs`."""
    # Trainings side by side that each take all processors make each other slow.
    threads = max(1, (os.cpu_count() or 1) // parallel) if parallel > 1 else 0
    with ThreadPoolExecutor(parallel) as pool, lifeline() as line:
        running = {pool.submit(job.run_until, line, threads): job for job in jobs}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_beside(folder: SharedFolder, job: Job) -> str:
    """Runs a job on a machine that sees a folder of the starting machine; see `Job.run`."""
    folder.check()
    return job.run()


def run_submitted(
    jobs: Sequence[Job],
    parallel: int,
    submit: Callable[[Job], HandleT],
    wait: Callable[[Sequence[HandleT]], Sequence[tuple[HandleT, str]]],
) -> Generator[tuple[Job, str], None, None]:
    """Submits jobs to a cluster, at most `parallel` at a time, and yields each when it ends.

    `submit` returns a handle; `wait` returns the handles that have ended, with their reasons of
    failure.
    """
    waiting = list(jobs)
    running: dict[HandleT, Job] = {}
    while waiting or running:
        while waiting and len(running) < parallel:
            job = waiting.pop(0)
            running[submit(job)] = job
        for handle, failure in wait(list(running)):
            yield running.pop(handle), failure


@dataclass(frozen=True)
class Speed:
    """The duration of work: `start_s + each_s * count`, seconds."""

    start_s: float
    each_s: float

    @classmethod
    def of_training(cls, total_s: float, ends: Sequence[float]) -> Self:
        """Returns the speed of a training, given its duration and the time at each step's end."""
        each_s = median(after - before for before, after in pairwise(ends))
        return cls(max(total_s - len(ends) * each_s, 0.0), each_s)


def measure(work: Callable[[int], object], done: Callable[[], int], few: int) -> Speed:
    """Measures work by its first units, which remain done.

    Args:
        work: Continues the work up to a number of units.
        done: Returns the number of finished units.
        few: Units of the first of two calls of `work`; the second has twice as many.
    """
    seconds = []
    for units in (few, 2 * few):
        target = done() + units
        started = time.monotonic()
        work(target)
        seconds.append(time.monotonic() - started)
    # Both calls contain the start. On a busy machine their difference may be too small.
    each = max((seconds[1] - seconds[0]) / few, seconds[1] / (4 * few))
    return Speed(max(seconds[1] - 2 * few * each, 0.0), each)
