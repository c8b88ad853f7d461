"""Stores with more episodes than a process may open files."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.conftest import random_episode

from stringline import Contract, EpisodeAttributes, EpisodeStore, Windows
from stringline.datasets.files.atomic import link_tree
from stringline.datasets.store.store import episode_name

FILES = 64
READER = f"""
import resource, sys
import numpy as np
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
from stringline.datasets.loading.statistics import Statistics
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore
store = EpisodeStore.open(sys.argv[1])
several = [Windows(store, chunk=4, past=(2,)) for _ in range(2)]
for windows in several:
    batch = windows.batch(np.arange(len(windows)))
Statistics.of_episodes(store.episodes())
np.savez(sys.argv[2], **{{key.replace("/", "."): value for key, value in batch.items()}})
"""


def many(path: Path, contract: Contract, steps: int, episodes: int) -> EpisodeStore:
    """Returns a store with hard links of one episode."""
    store = EpisodeStore.create(path)
    name = store.write(random_episode(steps=steps), EpisodeAttributes(contract, "reach", 0))
    for seed in range(1, episodes):
        link_tree(path / name, path / episode_name("reach", seed))
    return store


@pytest.mark.slow
def test_few_open_files_suffice(tmp_path: Path, contract: Contract) -> None:
    """Two sets of windows and the statistics, with fewer open files than there are episodes."""
    store = many(tmp_path / "store", contract, 6, 200)
    result = tmp_path / "batch.npz"
    done = subprocess.run(
        [sys.executable, "-c", READER, str(store.path), str(result)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / ".src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    windows = Windows(store, chunk=4, past=(2,))
    expected = windows.batch(np.arange(len(windows)))
    with np.load(result) as got:
        for key, value in expected.items():
            np.testing.assert_array_equal(got[key.replace("/", ".")], value, err_msg=key)


def test_rows_that_are_read_from_files_are_checked(tmp_path: Path, contract: Contract) -> None:
    """A truncated file is an error also where it is not mapped, and names the episode."""
    store = many(tmp_path / "store", contract, 20, 3)
    windows = Windows(store, chunk=4, open_files=1)
    windows.batch(np.arange(len(windows)))
    damaged = store.path / windows.names[2] / "rgb.front/c/0/0/0/0"
    data = damaged.read_bytes()
    damaged.unlink()
    damaged.write_bytes(data[: len(data) // 2])
    last = np.flatnonzero(windows.episode == 2)[-1:]
    with pytest.raises(ValueError, match=rf"{windows.names[2]}: rgb/front has .* it is damaged"):
        windows.batch(last)
