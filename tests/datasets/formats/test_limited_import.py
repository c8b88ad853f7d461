"""An import has a process of its own: what ends or fills it costs one episode."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.formats.small_sets import OPENINGS, act

from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader
from stringline.datasets.formats.foreign import ForeignEpisode, Reference
from stringline.datasets.formats.limited_import import import_limited
from stringline.datasets.store.store import EpisodeStore


class Bad(ActHdf5Reader):
    """Does something at the first image of the second episode, as a decoder might."""

    def __init__(self, what: str) -> None:
        super().__init__(OPENINGS)
        self._what = what

    def episodes(self, path: Path) -> Iterator[Reference]:
        for reference in super().episodes(path):
            bad = reference.number == 1
            yield replace(reference, read=partial(self._bad, reference)) if bad else reference

    def _bad(self, reference: Reference) -> ForeignEpisode:
        episode = reference.read()
        return replace(episode, images={"rgb/top": self._frames})

    def _frames(self) -> Iterator[Array]:
        if self._what == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._what == "waits":
            Path(os.environ["MARK"]).touch()
            time.sleep(60)
        yield np.ones((2**29, 3), np.uint8)


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


def test_a_limit_must_be_positive(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    with pytest.raises(ValueError, match="memory_gib is -1; allowed: above 0"):
        import_limited(partial(Bad, "dies"), tmp_path, store, memory_gib=-1)


WAITING = """
import sys
from functools import partial
from pathlib import Path
from tests.datasets.formats.test_limited_import import Bad
from stringline.datasets.formats.limited_import import import_limited
from stringline.datasets.store.store import EpisodeStore
if __name__ == "__main__":
    store = EpisodeStore.create(sys.argv[2])
    import_limited(partial(Bad, "waits"), Path(sys.argv[1]), store, memory_gib=1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_process_ends_with_its_owner(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    mark = tmp_path / "mark"
    path = os.pathsep.join(filter(None, sys.path))
    owner = subprocess.Popen(
        [sys.executable, tmp_path / "waiting.py", act(tmp_path), tmp_path / "store"],
        env={**os.environ, "PYTHONPATH": path, "MARK": str(mark)},
        stderr=subprocess.PIPE,
    )
    while not mark.exists():
        assert owner.poll() is None
        time.sleep(0.05)
    owner.send_signal(number)
    # The pipe is closed when both processes have ended.
    _, said = owner.communicate(timeout=60)
    assert owner.returncode in (-number, 1, 130)
    assert b"Left out" not in said
    store = EpisodeStore.open(tmp_path / "store")
    assert len(store) == 1
    assert store.leftovers() == []
    assert multiprocessing.active_children() == []
