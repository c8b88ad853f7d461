"""An import has a process of its own: what ends or fills it costs one episode."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.conftest import random_episode
from tests.datasets.formats.small_sets import OPENINGS, act

from stringline.datasets.contract.contract import Array, Contract
from stringline.datasets.files.atomic import is_locked
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader
from stringline.datasets.formats.foreign import ForeignDataError, ImportedEpisode, Reference
from stringline.datasets.formats.limited_import import import_limited
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore


def wait_until(happened: Callable[[], bool]) -> None:
    """Waits for an event, at most a minute."""
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


class Bad(ActHdf5Reader):
    """Does something at the first image of the second episode, as a decoder might."""

    def __init__(self, what: str) -> None:
        super().__init__(OPENINGS, control_hz=50)
        self._what = what

    def episodes(self, path: Path) -> Iterator[Reference]:
        for reference in super().episodes(path):
            bad = reference.number == 1
            yield replace(reference, read=partial(self._bad, reference)) if bad else reference

    def _bad(self, reference: Reference) -> ImportedEpisode:
        episode = reference.read()
        self._images = episode.images["rgb/top"]
        return replace(episode, images={"rgb/top": self._frames})

    def _frames(self) -> Iterator[Array]:
        if self._what == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._what == "waits":
            Path(os.environ["MARK"]).touch()
            time.sleep(60)
        if self._what == "stays":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            Path(os.environ["MARK"]).touch()
            wait_until(lambda: Path(os.environ["MARK"]).with_name("end").exists())
        if self._what == "counts":
            raise ForeignDataError(f"It has {len(os.listdir('/proc/self/task'))} threads.")
        if self._what == "fills":
            yield np.ones((2**29, 3), np.uint8)
        yield from self._images()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("dies", "Reading it ended the process of the import (SIGSEGV); it is not read again."),
        ("fills", "It needs more memory than an import may use; allow more for a data set that"),
    ],
)
def test_a_bad_decoder_costs_one_episode(tmp_path: Path, what: str, message: str) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    path = act(tmp_path)
    outcome = import_limited(partial(Bad, what), path, store, memory_gib=0.5)
    assert list(outcome.refused) == ["episode 1 (episode_1.hdf5)"]
    assert message in outcome.refused["episode 1 (episode_1.hdf5)"]
    assert (len(outcome.imported), outcome.present) == (2, 0)
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]
    assert store.leftovers() == []


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="NumPy has one thread then anyway")
def test_products_of_small_matrices_take_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other libraries have threads of their own, whose number stays the same."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = dict(os.environ)
    store = EpisodeStore.create(tmp_path / "store")
    path = act(tmp_path)

    def threads() -> int:
        outcome = import_limited(partial(Bad, "counts"), path, store, memory_gib=0.5)
        (message,) = outcome.refused.values()
        return int(re.findall(r"It has (\d+) threads", message)[0])

    ours = threads()
    assert dict(os.environ) == before
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    assert ours == threads()
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    assert ours < threads()


def test_a_limit_must_be_positive(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    with pytest.raises(ValueError, match=r"memory_gib must be a number above 0 \(got -1\)"):
        import_limited(partial(Bad, "dies"), tmp_path, store, memory_gib=-1)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["nothing", "dies"])
def test_imports_of_a_data_set_at_once_count_their_own_episodes(tmp_path: Path, what: str) -> None:
    reader = partial(Bad, what)
    store = EpisodeStore.create(tmp_path / "store")
    path = act(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(import_limited, reader, path, store, memory_gib=1) for _ in range(2)]
    second, first = sorted((job.result() for job in jobs), key=lambda each: len(each.imported))
    assert sorted(first.imported) == store.names()
    assert (first.present, second.present, second.imported) == (0, len(store), ())
    assert first.refused == second.refused


@pytest.mark.slow
def test_an_episode_recorded_meanwhile_is_not_counted(
    tmp_path: Path, contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recordings take no lock."""
    monkeypatch.setenv("MARK", str(tmp_path / "mark"))
    store = EpisodeStore.create(tmp_path / "store")
    path = act(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(import_limited, partial(Bad, "stays"), path, store, memory_gib=1)
        wait_until((tmp_path / "mark").exists)
        recorded = store.write(random_episode(), EpisodeAttributes(contract, "reach", 0))
        (tmp_path / "end").touch()
    assert sorted([recorded, *job.result().imported]) == store.names()


WAITING = """
import sys
from functools import partial
from pathlib import Path
from tests.datasets.formats.test_limited_import import Bad
from stringline.datasets.formats.limited_import import import_limited
from stringline.datasets.store.store import EpisodeStore
if __name__ == "__main__":
    store = EpisodeStore.create(sys.argv[2])
    import_limited(partial(Bad, sys.argv[3]), Path(sys.argv[1]), store, memory_gib=1)
"""


def start_owner(tmp_path: Path, what: str) -> "subprocess.Popen[bytes]":
    """Starts an import in another process and waits until it reads its second episode."""
    (tmp_path / "waiting.py").write_text(WAITING)
    mark = tmp_path / "mark"
    path = os.pathsep.join(filter(None, sys.path))
    owner = subprocess.Popen(
        [sys.executable, tmp_path / "waiting.py", act(tmp_path), tmp_path / "store", what],
        env={**os.environ, "PYTHONPATH": path, "MARK": str(mark)},
        stderr=subprocess.PIPE,
    )
    while not mark.exists():
        assert owner.poll() is None
        time.sleep(0.05)
    return owner


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_process_ends_with_its_owner(tmp_path: Path, number: signal.Signals) -> None:
    owner = start_owner(tmp_path, "waits")
    owner.send_signal(number)
    # The pipe is closed when both processes have ended.
    _, output = owner.communicate(timeout=60)
    assert owner.returncode in (-number, 1, 130)
    assert b"Left out" not in output
    store = EpisodeStore.open(tmp_path / "store")
    assert len(store) == 1
    assert store.leftovers() == []
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_the_store_stays_locked_while_a_process_of_a_killed_import_works(tmp_path: Path) -> None:
    owner = start_owner(tmp_path, "stays")
    owner.kill()
    owner.wait()
    assert is_locked(tmp_path / "store")
    (tmp_path / "end").touch()
    owner.communicate(timeout=60)
    wait_until(lambda: not is_locked(tmp_path / "store"))
