"""Import in a process with a memory limit, so that no data set exhausts the machine's memory.

The checks of the readers bound what is decoded, but not what a decoder of images or videos needs in
between. An allocation beyond the limit fails, which refuses the episode. If the process dies of it,
or of another error of a decoder, the episode is refused as well and a new process goes on. The lock
of the store is held throughout; each process inherits it and keeps it until it ends.
"""

import ctypes
import logging
import math
import multiprocessing
import os
import re
import resource
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import FrameType
from typing import Any

from stringline.datasets.command.application import start_logging
from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.files.atomic import exclusive
from stringline.datasets.formats.foreign import (
    ForeignDataError,
    ImportedEpisode,
    Reader,
    Reference,
    SkippedFields,
)
from stringline.datasets.formats.importing import (
    SKIPPED_FIELDS,
    ImportedCameras,
    Outcome,
    import_locked,
    origin_of,
)
from stringline.datasets.store.store import EpisodeStore

_SPAWN = multiprocessing.get_context("spawn")
_LONGEST_NAME = 1000
_STACK_BYTES = 8 * 2**20
_THREADS = "OPENBLAS_NUM_THREADS"


class RemoteTracebackError(Exception):
    """The traceback of an error in the process of an import, as the cause of that error."""


class _Inherited:
    """A file descriptor that a new process gets, too, as the argument of its function."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[Any], "_Inherited"], tuple[Any]]:
        return _received, (DupFd(self._descriptor),)


def _received(copy: Any) -> _Inherited:
    return _Inherited(copy.detach())


@dataclass(frozen=True)
class _Work:
    """The arguments of an import; `fatal` has the reasons of episodes that ended a process."""

    reader: Callable[[], Reader]
    path: Path
    store: Path
    task: str
    cameras: ImportedCameras | None
    gib: float
    disk_gib: float
    log_level: int
    fatal: Mapping[str, str]
    lock: _Inherited


def import_limited(
    reader: Callable[[], Reader],
    path: Path,
    store: EpisodeStore,
    *,
    task: str = "",
    cameras: ImportedCameras | None = None,
    memory_gib: float,
    disk_gib: float = math.inf,
) -> Outcome:
    """Imports as `import_data` does, in a process with at most `memory_gib` beyond its libraries.

    `reader` is picklable and returns the reader; `cameras` is picklable, too.

    Raises:
        ValueError: The path is not such a data set, an option does not fit it, listing the
            episodes needs more memory, or storing them more of the disk.
        NoSpaceError: The disk is full; complete episodes stay.
    """
    POSITIVE.check(memory_gib=memory_gib)
    level = logging.getLogger("stringline").level
    most = (memory_gib, disk_gib)
    with exclusive(store.path) as lock:
        before = set(store.names())
        work = _Work(reader, path, store.path, task, cameras, *most, level, {}, _Inherited(lock))
        outcome = _in_processes(work)
        # Processes that ended did not send what they imported. Recordings take no lock.
        names = [name for name in store.names() if name not in before]
        new = tuple(name for name in names if origin_of(store.episode(name)))
        earlier = len(new) - len(outcome.imported)
        present = outcome.present - earlier
        skipped_fields = _skipped_fields(store, new)
        return replace(outcome, imported=new, present=present, skipped_fields=skipped_fields)


def _in_processes(work: _Work) -> Outcome:
    """Returns the outcome of the last process; the earlier ones ended in an episode each."""
    fatal: dict[str, str] = {}
    while True:
        current = _SPAWN.Array(ctypes.c_char, _LONGEST_NAME)
        found = _in_process(replace(work, fatal=dict(fatal)), current)
        if isinstance(found, Outcome):
            return found
        episode = current.value.decode(errors="replace")
        reason = f"Reading it ended the process of the import ({found}); it is not read again."
        if not episode or episode in fatal:
            raise ValueError(f"{work.path} cannot be imported. {reason}")
        fatal[episode] = reason


def _skipped_fields(store: EpisodeStore, names: tuple[str, ...]) -> SkippedFields:
    """Returns what the episodes lack; processes that ended did not send it."""
    parts: SkippedFields = Counter()
    for name in names:
        parts.update(store.episode(name).attributes.extra.get(SKIPPED_FIELDS, {}).items())
    return parts


def _in_process(work: _Work, current: Any) -> Outcome | str:
    """Returns the outcome, or the signal or exit status with which the process ended."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_run, args=(work, current, theirs), daemon=True)
    # A terminal sends Ctrl-C to both; only this process takes it, and ends the other one.
    with _blocked(signal.SIGINT), _one_thread_of_numpy():
        process.start()
    theirs.close()
    try:
        outcome, error, trace = ours.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"
    except BaseException:
        process.terminate()
        process.join()
        raise
    process.join()
    if isinstance(error, MemoryError):
        raise ValueError(
            f"The import needs more than {work.gib:g} GiB of memory; allow more for a data set "
            "that you trust, memory_gib=NUMBER."
        ) from error
    if error is not None:
        raise error from RemoteTracebackError(trace)
    assert isinstance(outcome, Outcome)
    return outcome


@contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Blocks a signal, also in processes that are started within the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread_of_numpy() -> Iterator[None]:
    """Makes processes that start in the block multiply matrices in one thread.

    Each image is resampled by products of small matrices, for which several threads mostly wait for
    each other: up to twenty times as long beside other work. The user's number has priority.
    """
    if _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = "1"
    try:
        yield
    finally:
        del os.environ[_THREADS]


def _run(work: _Work, current: Any, channel: Connection) -> None:
    """Imports and sends the outcome, or the error with its traceback."""
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_owner, args=(channel,), daemon=True).start()
    start_logging(work.log_level)
    # Arrow's own allocator would reserve a gigabyte at once.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    limit_memory(work.gib)
    try:
        reader = _Announced(work.reader(), current, work.fatal)
        store = EpisodeStore.open(work.store)
        outcome = import_locked(reader, work.path, store, work.task, work.cameras, work.disk_gib)
        channel.send((outcome, None, ""))
    except KeyboardInterrupt:
        return
    except Exception as error:
        channel.send((None, error, traceback.format_exc()))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_with_owner(channel: Connection) -> None:
    """Waits for the end of the channel, which the owner holds until it has the outcome."""
    channel.poll(None)
    os.kill(os.getpid(), signal.SIGTERM)


def limit_memory(gib: float) -> None:
    """Limits the data of this process to what it has now, plus `gib`, plus the stacks of threads.

    RLIMIT_DATA counts what is written to, of which stacks of threads use few pages. RLIMIT_AS would
    count mapped files and reservations, too, of which libraries make many gigabytes.
    """
    status = Path("/proc/self/status")
    if not status.exists():  # Other systems than Linux do not enforce such a limit.
        return
    found = re.search(r"VmData:\s+(\d+) kB", status.read_text())
    assert found is not None
    stacks = 2 * (os.cpu_count() or 1) * _STACK_BYTES
    most = int(found[1]) * 1024 + round(gib * 2**30) + stacks
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


class _Announced:
    """A reader that leaves the name of the episode that it reads in shared memory."""

    def __init__(self, reader: Reader, current: Any, fatal: Mapping[str, str]) -> None:
        self._reader = reader
        self._current = current
        self._fatal = fatal

    def episodes(self, path: Path) -> Iterator[Reference]:
        for reference in self._reader.episodes(path):
            yield replace(reference, read=partial(self._read, reference))

    def _read(self, reference: Reference) -> ImportedEpisode:
        name = str(reference).encode()[: _LONGEST_NAME - 1].decode(errors="ignore")
        if name in self._fatal:
            raise ForeignDataError(self._fatal[name])
        self._current.value = name.encode()
        return reference.read()
