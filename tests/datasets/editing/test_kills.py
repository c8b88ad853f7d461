"""Killed splits, deletions and archives: all before them or all after, and nothing is lost."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.editing.archive import SUFFIX, archive, expand
from stringline.datasets.editing.edit import delete
from stringline.datasets.store.store import EpisodeStore, verify_store
from stringline.datasets.store.transactions import recover, trash_of

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / ".src")}
KILLS = pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.stress)])
START = """
import sys
from stringline.datasets.editing.archive import archive
from stringline.datasets.editing.edit import delete, split_episode
from stringline.datasets.store.store import EpisodeStore
store = EpisodeStore.open(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
"""
SPLIT = START + "split_episode(store, store.names()[int(sys.argv[2])], [0.1, 0.2, 0.3])"
DELETE = START + "delete(store, store.names()[1:5])"
ARCHIVE = START + "archive(store, sys.argv[2])"


@pytest.fixture
def store(six_episodes: EpisodeStore) -> EpisodeStore:
    return six_episodes


def actions(store: EpisodeStore) -> dict[int, NDArray[Any]]:
    """Returns the actions (T, A) of each seed over all its episodes, in their order."""
    found: dict[int, list[NDArray[Any]]] = {}
    for episode in sorted(store.episodes(), key=lambda one: float(one.arrays["time"][0])):
        found.setdefault(episode.attributes.seed, []).append(np.array(episode.arrays["action"]))
    return {seed: np.concatenate(parts) for seed, parts in found.items()}


def kill_after(script: str, delay_s: float, *arguments: str) -> None:
    """Runs a script that waits for its start, and kills it so long after that."""
    running = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stdin is not None
    assert running.stdout.readline() == b"ready\n"
    running.stdin.write(b"\n")
    running.stdin.flush()
    try:
        running.wait(delay_s)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        running.wait()
    running.stdin.close()
    running.stdout.close()


def mended(store: EpisodeStore) -> None:
    """Opens a store as the next command does."""
    recover(store.path)
    store.remove_leftovers()
    assert verify_store(store) == {}
    assert sorted(os.listdir(store.path)) == sorted([*store.names(), "zarr.json"])


@pytest.mark.slow
@KILLS
def test_a_killed_split_leaves_the_whole_episode_or_all_its_parts(
    store: EpisodeStore, kills: int
) -> None:
    whole = actions(store)
    outcomes = Counter[bool]()
    for delay in np.random.default_rng(0).uniform(0.0, 0.12, kills):
        name = next(one.name for one in store.episodes() if one.attributes.seed == 3)
        number = store.names().index(name)
        kill_after(SPLIT, float(delay), str(store.path), str(number))
        parts = [one for one in store.episodes() if one.attributes.seed == 3]
        assert len(parts) in (1, 4)
        outcomes[len(parts) == 4] += 1
        now = actions(store)
        assert now.keys() == whole.keys()
        for seed, action in whole.items():
            np.testing.assert_array_equal(now[seed], action)
        mended(store)
        if len(parts) == 4:  # Back to the whole one, which is in the trash.
            new = [one.name for one in store.episodes() if one.attributes.seed == 3]
            delete(store, new)
            (trash_of(store.path) / name).rename(store.path / name)
            store = EpisodeStore.open(store.path)
    assert sum(outcomes.values()) == kills


@pytest.mark.slow
@KILLS
def test_a_killed_deletion_leaves_all_or_none_of_the_episodes(
    store: EpisodeStore, kills: int
) -> None:
    names, whole = store.names(), actions(store)
    for delay in np.random.default_rng(1).uniform(0.0, 0.03, kills):
        kill_after(DELETE, float(delay), str(store.path))
        there = store.names()
        assert there in (names, [names[0], names[5]])
        mended(store)
        trash = trash_of(store.path)
        gone = sorted(os.listdir(trash)) if trash.exists() else []
        assert sorted([*store.names(), *gone]) == names, "each is here or in the trash"
        for name in gone:
            (trash / name).rename(store.path / name)
        store = EpisodeStore.open(store.path)
        for seed, action in actions(store).items():
            np.testing.assert_array_equal(whole[seed], action)


@pytest.mark.slow
@KILLS
def test_a_killed_archive_has_only_whole_episodes_and_is_completed_by_the_next(
    store: EpisodeStore, tmp_path: Path, kills: int
) -> None:
    whole = actions(store)
    for number, delay in enumerate(np.random.default_rng(2).uniform(0.0, 0.4, kills)):
        url = tmp_path / f"archive{number}"
        kill_after(ARCHIVE, float(delay), str(store.path), str(url))
        there = list(url.glob(f"*{SUFFIX}")) if url.exists() else []
        if there:
            part = actions(expand(str(url), tmp_path / f"part{number}"))
            assert len(part) == len(there)
            for seed, action in part.items():
                np.testing.assert_array_equal(whole[seed], action)
        assert len(archive(store, str(url))) == 6 - len(there)
        expanded = expand(str(url), tmp_path / f"all{number}")
        assert verify_store(expanded) == {}
        for seed, action in actions(expanded).items():
            np.testing.assert_array_equal(whole[seed], action)
        assert not list(url.glob(".archive-*")), "what the killed one left is gone"
