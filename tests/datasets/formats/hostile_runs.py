"""Runs hostile data sets in one process with the limit on memory that an import has."""

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.datasets.formats import (
    hostile_hdf5,
    hostile_lerobot,
    hostile_libero,
    hostile_recordings,
    hostile_videos,
    hostile_zarr,
)
from tests.datasets.formats.hostile_corpus import CASES, SECRET, canary_of, secret_of
from tests.datasets.formats.small_sets import READERS

from stringline.datasets.formats.importing import import_data
from stringline.datasets.formats.limited_import import limit_memory
from stringline.datasets.store.store import EpisodeStore

FILES = (
    hostile_hdf5,
    hostile_lerobot,
    hostile_libero,
    hostile_recordings,
    hostile_videos,
    hostile_zarr,
)
HANGS_S = 60


class HangsError(BaseException):
    """A run takes too long; not an `Exception`, which readers turn into messages."""


@dataclass(frozen=True)
class Run:
    """What an import of a hostile data set did.

    Attributes:
        messages: The errors of episodes, or that of the whole set.
        error: The type of the error of the whole set; empty without one.
        gib: Largest memory beyond that before.
        seconds: Time on the processor.
        told: Whether the store or a message has bytes of the file outside.
        ran: Whether code of the data set ran.
    """

    messages: tuple[str, ...]
    error: str
    imported: int
    gib: float
    seconds: float
    told: bool
    ran: bool


def run_all(names: Sequence[str], folder: Path, gib: float) -> dict[str, Run]:
    """Writes all data sets below a folder, and imports each into a store of its own."""
    roots = {name: folder / f"{number}" / "set" for number, name in enumerate(names)}
    paths = {name: _built(name, root) for name, root in roots.items()}
    signal.signal(signal.SIGALRM, hangs)
    limit_memory(gib)
    return {name: _run(name, roots[name], paths[name]) for name in names}


def _built(name: str, root: Path) -> Path:
    root.mkdir(parents=True)
    secret_of(root).write_bytes(SECRET * 2000)
    return CASES[name].build(root)


def hangs(number: int, frame: FrameType | None) -> None:
    """Answers the alarm of a run that takes too long."""
    raise HangsError


def _run(name: str, root: Path, path: Path) -> Run:
    store = EpisodeStore.create(root.parent / "store")
    messages: tuple[str, ...] = ()
    error = ""
    imported = 0
    Path("/proc/self/clear_refs").write_text("5")  # Resets the peak.
    before = _memory("VmRSS")
    start = time.process_time()
    signal.alarm(HANGS_S)
    try:
        outcome = import_data(READERS[CASES[name].format], path, store)
        messages = tuple(outcome.refused.values())
        imported = len(outcome.imported)
    except Exception as raised:
        error = type(raised).__name__
        messages = (str(raised),)
    finally:
        signal.alarm(0)
    seconds = time.process_time() - start
    gib = (_memory("VmHWM") - before) / 2**30
    written = [file.read_bytes() for file in store.path.rglob("*") if file.is_file()]
    told = any(SECRET[:16] in data for data in [*written, *(m.encode() for m in messages)])
    return Run(messages, error, imported, gib, seconds, told, canary_of(root).exists())


def _memory(kind: str) -> int:
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
