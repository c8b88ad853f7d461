"""Killed and parallel writers and a full disk leave a store with complete episodes only."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.files.atomic import NoSpaceError

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / ".src")}


WRITE = """
import sys, numpy as np
from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
contract = Contract("none", "table", 10.0, (), ("a",), (), (ActionDimension("a", "one", "joint"),))
store = EpisodeStore.create(sys.argv[1])
for seed in range(int(sys.argv[2]), 40, 4):
    row = np.full((5, 1), seed, np.float32)
    arrays = {"time": np.arange(5.0), "joints/position": row, "action": row}
    store.write(arrays, EpisodeAttributes(contract, "reach", seed))
"""


def test_parallel_writers(tmp_path: Path) -> None:
    """Four processes create and fill one store at once without loss, ordered by seed."""
    path = tmp_path / "store"
    command = [sys.executable, "-c", WRITE, str(path)]
    writers = [subprocess.Popen([*command, str(first)], env=ENVIRONMENT) for first in range(4)]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    store = EpisodeStore.open(path)
    assert [int(episode.arrays["action"][0, 0]) for episode in store.episodes()] == list(range(40))
    assert [episode.attributes.seed for episode in store.episodes()] == list(range(40))
    assert not any(store.verify(name) for name in store.names())


RECORD = """
import sys, numpy as np
from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
store = EpisodeStore.create(sys.argv[1])
contract = Contract("none", "table", 10.0, (), ("a",), (), (ActionDimension("a", "one", "joint"),))
print("ready", flush=True)
for seed in range(100000):
    with store.writer(EpisodeAttributes(contract, "record", seed)) as writer:
        for t in range(50):
            row = np.full(1, seed + t, np.float32)
            state = np.full(5000, t, np.float32)
            writer.step({"time": np.float64(t), "joints/position": row, "sim/state": state}, row)
        writer.commit()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.stress)])
def test_kill_loses_only_the_open_episode(tmp_path: Path, kills: int) -> None:
    """A killed recorder leaves complete episodes without gaps, and at most one leftover."""
    path, rng = tmp_path / "store", np.random.default_rng(0)
    store, seen = EpisodeStore.create(path), set[str]()
    for kill, delay in enumerate(rng.uniform(0.0, 0.15, kills), 1):
        recorder = subprocess.Popen(
            [sys.executable, "-c", RECORD, str(path)], env=ENVIRONMENT, stdout=subprocess.PIPE
        )
        assert recorder.stdout is not None
        assert recorder.stdout.readline() == b"ready\n"
        before = len(store.leftovers())
        with pytest.raises(subprocess.TimeoutExpired):
            recorder.wait(delay)
        assert (
            len(EpisodeStore.open(path).leftovers()) == before
        )  # The folder of the running writer is not listed.
        recorder.send_signal(signal.SIGKILL)
        assert recorder.wait() == -signal.SIGKILL
        recorder.stdout.close()
        assert before <= len(store.leftovers()) <= before + 1 <= kill
        new = set(store.names()) - seen
        assert {store.episode(name).attributes.seed for name in new} == set(range(len(new)))
        for name in new:
            check_recorded(store, name)
        seen |= new
    assert (
        set(EpisodeStore.open(path).names()) == seen != set()
    )  # It was never repaired in between.
    assert len(store.remove_leftovers()) > 0
    # A writer that was killed before it had locked its folder leaves it empty; such folders
    # are removed when they are old.
    assert sorted(entry for entry in os.listdir(path) if not entry.startswith(".new-")) == sorted(
        [*seen, "zarr.json"]
    )
    assert not any(store.verify(name) for name in seen)


def test_an_old_empty_folder_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    starting = store.path / ".new-reach.0000000009.0123456789ab"
    starting.mkdir()
    assert store.remove_leftovers() == []
    os.utime(starting, (0, 0))
    assert store.remove_leftovers() == [starting]
    assert os.listdir(store.path) == ["zarr.json"]


def check_recorded(store: EpisodeStore, name: str) -> None:
    """Checks that an episode of `RECORD` equals the recorded one to the bit."""
    episode = store.episode(name)
    steps = np.arange(50)
    expected = {
        "time": steps.astype(np.float64),
        "sim/state": np.repeat(steps[:, None], 5000, 1).astype(np.float32),
    }
    row = (episode.attributes.seed + steps)[:, None].astype(np.float32)
    for key, array in (expected | {"action": row, "joints/position": row}).items():
        np.testing.assert_array_equal(episode.arrays[key], array)
    assert episode.steps == 50


FULL = """
import resource, signal, sys, numpy as np
from stringline.datasets.contract.contract import ActionDimension, Contract
from stringline.datasets.files.atomic import NoSpaceError
from stringline.datasets.store.episode import EpisodeAttributes
from stringline.datasets.store.store import EpisodeStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = EpisodeStore.create(sys.argv[1])
contract = Contract("none", "table", 10.0, (), ("a",), (), (ActionDimension("a", "one", "joint"),))
zeros = np.zeros((4, 1), "f4")
small = {"time": np.arange(4.0), "joints/position": zeros, "action": zeros}
store.write(small, EpisodeAttributes(contract, "t", 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    large = {**small, "sim/state": np.zeros((4, 1 << 20), "f4")}
    store.write(large, EpisodeAttributes(contract, "t", 1))
except NoSpaceError as error:
    print("whole:", error)
try:
    with store.writer(EpisodeAttributes(contract, "t", 2)) as writer:
        for t in range(100):
            row = np.zeros(1, "f4")
            state = np.zeros(1 << 16, "f4")
            writer.step({"time": np.float64(t), "joints/position": row, "sim/state": state}, row)
except NoSpaceError as error:
    print("stream:", error)
"""


def test_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A write error for lack of space is explained, and the store stays unchanged."""
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "store")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "whole: " in run.stdout
    assert "stream: " in run.stdout
    assert "No space left (File too large, sim/state, frame 0); make room" in run.stdout
    assert "No space left (File too large, sim/state, frame 4); make room" in run.stdout
    assert run.stdout.count("/store/t.000000000") == 2
    store = EpisodeStore.open(tmp_path / "store")
    assert len(store) == 1
    assert sorted(os.listdir(store.path)) == [store.names()[0], "zarr.json"]
    assert store.verify(store.names()[0]) == []


def test_too_little_space_is_reported_before_writing(tmp_path: Path, contract: Contract) -> None:
    """An episode larger than the disk is refused at once."""
    store = EpisodeStore.create(tmp_path / "store")
    with pytest.raises(NoSpaceError, match=r"MiB are needed, .* MiB are free") as caught:
        store.writer(EpisodeAttributes(contract, "reach", 0), expected_bytes=1 << 60)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(
        caught.value
    )  # Workers pass it to their parent.
    assert sorted(os.listdir(store.path)) == ["zarr.json"]
