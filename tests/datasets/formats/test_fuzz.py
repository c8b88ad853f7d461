"""Changed bytes of valid data sets: an import ends with one-line errors, or is right."""

import multiprocessing
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.datasets.formats.hostile_runs import hangs
from tests.datasets.formats.small_sets import READERS, VARIANTS

from stringline.datasets.formats.foreign import Reader
from stringline.datasets.formats.importing import import_data
from stringline.datasets.formats.limited_import import import_limited, limit_memory
from stringline.datasets.store.store import EpisodeStore

pytestmark = pytest.mark.stress
EXAMPLES = 100
HANGS_S = 60
# What damages a length, a flag or a type.
BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
TEXTS = (b"-1", b"1e999", b"NaN", b"null", b"[]", b"{}", b'"', b"999999999999999999999")


@dataclass(frozen=True)
class Change:
    """Bytes at a share of a file, the `file`-th of the set, and how many they replace."""

    file: int
    share: float
    data: bytes
    replaced: int

    def apply(self, root: Path) -> None:
        """Changes a data set."""
        files = [root] if root.is_file() else sorted(f for f in root.rglob("*") if f.is_file())
        path = files[self.file % len(files)]
        old = path.read_bytes()
        start = int(self.share * len(old))
        path.write_bytes(old[:start] + self.data + old[start + self.replaced :])


def changes() -> st.SearchStrategy[Change]:
    """Overwrites, insertions and cuts."""
    data = st.one_of(
        st.sampled_from([bytes([byte]) for byte in BYTES]),
        st.sampled_from(TEXTS),
        st.binary(min_size=0, max_size=8),
    )
    share = st.floats(0, 1, exclude_max=True)
    overwritten = st.builds(lambda f, s, d: Change(f, s, d, len(d)), files(), share, data)
    moved = st.builds(Change, files(), share, data, st.integers(0, 10**5))
    return st.one_of(overwritten, overwritten, moved)


def files() -> st.SearchStrategy[int]:
    return st.integers(0, 200)


@dataclass
class Worker:
    """A process with the limits of an import, which is replaced when it has died."""

    deaths: int = 0
    _pool: ProcessPoolExecutor | None = field(default=None)

    def imported(self, name: str, path: Path, store: Path) -> tuple[str, ...]:
        """Returns the messages of an import."""
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_begin)
        try:
            return self._pool.submit(_imported, name, path, store).result()
        except BrokenProcessPool:
            self.close()
            self.deaths += 1
            # The command goes on where a decoder ends the process.
            shutil.rmtree(store)
            reader = partial(_reader_of, name)
            try:
                outcome = import_limited(reader, path, EpisodeStore.create(store), memory_gib=1)
            except ValueError as error:
                return (str(error),)
            return tuple(outcome.refused.values())

    def close(self) -> None:
        """Ends the process."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _reader_of(name: str) -> Reader:
    return READERS[name]


def _begin() -> None:
    signal.signal(signal.SIGALRM, hangs)
    limit_memory(1)


def _imported(name: str, path: Path, store: Path) -> tuple[str, ...]:
    signal.alarm(HANGS_S)
    try:
        outcome = import_data(READERS[name], path, EpisodeStore.create(store))
    except ValueError as error:
        return (str(error),)
    finally:
        signal.alarm(0)
    return tuple(outcome.refused.values())


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    # As in an import: Arrow's own allocator would reserve a gigabyte at once.
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")
    found = Worker()
    yield found
    found.close()


@pytest.mark.parametrize("name", VARIANTS)
def test_changed_bytes_are_answered_in_one_line(
    tmp_path: Path, name: str, worker: Worker, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "whole").mkdir()
    of, write = VARIANTS[name]
    whole = write(tmp_path / "whole")
    refused = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.lists(changes(), min_size=1, max_size=3))
    def check(made: list[Change]) -> None:
        folder = tmp_path / uuid.uuid4().hex
        (shutil.copytree if whole.is_dir() else _copy)(whole, folder / whole.name)
        for change in made:
            change.apply(folder / whole.name)
        messages = worker.imported(of, folder / whole.name, folder / "store")
        assert all(message and "\n" not in message for message in messages), messages
        assert all(len(message) < 1500 for message in messages), messages
        refused.append(bool(messages))
        store = EpisodeStore.open(folder / "store")
        assert not any(store.verify(episode) for episode in store.names())
        assert store.leftovers() == []
        shutil.rmtree(folder)

    check()
    record_property(
        "says",
        f"{name}: {sum(refused)} of {len(refused)} changed data sets were refused in part or as a "
        f"whole; {worker.deaths} ended the process.",
    )
    assert any(refused)


def _copy(file: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True)
    return Path(shutil.copyfile(file, target))
