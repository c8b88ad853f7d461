"""Readers keep the episodes of a store, whatever is edited, and leave nothing behind."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.conftest import random_episode

from stringline import EpisodeAttributes, EpisodeStore, Windows
from stringline.datasets.editing.edit import delete, relabel, trim
from stringline.datasets.store.transactions import trash_of

READER = """
import sys
from stringline.datasets.store.store import EpisodeStore
pin = EpisodeStore.open(sys.argv[1]).pin()
print("pinned", flush=True)
sys.stdin.read()
"""


def edit_everything(store: EpisodeStore) -> None:
    """Trims, relabels and deletes all episodes of a store, and empties its trash."""
    names = store.names()
    trim(store, names[:2], from_s=0.1)
    relabel(store, names[2:4], success=True)
    delete(store, names[4:])
    shutil.rmtree(trash_of(store.path))


@contextmanager
def reader_of(store: EpisodeStore) -> "Iterator[subprocess.Popen[str]]":
    """Runs a process that pins a store."""
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / ".src")},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "pinned\n"
        yield process
        process.communicate()


def pins_of(store: EpisodeStore) -> Path:
    return store.path.with_name(f"{store.path.name}.pins")


@pytest.mark.slow
def test_windows_keep_their_episodes(six_episodes: EpisodeStore) -> None:
    """Images are read after the edits for the first time; with the last reader the copies go."""
    before = Windows(six_episodes, chunk=4)
    expected = before.batch(np.arange(len(before)))
    windows = Windows(six_episodes, chunk=4)
    edit_everything(six_episodes)
    got = windows.batch(np.arange(len(windows)))
    for key, value in expected.items():
        np.testing.assert_array_equal(got[key], value, err_msg=key)
    assert six_episodes.names() != list(windows.names)
    del before, windows
    gc.collect()
    assert not pins_of(six_episodes).exists()


def test_an_open_episode_is_read_from_the_trash(six_episodes: EpisodeStore) -> None:
    """Also one whose arrays were not looked at before; new readers do not see it."""
    names = six_episodes.names()
    opened = six_episodes.episodes()
    expected = random_episode(steps=40, seed=3)
    delete(six_episodes, names)
    np.testing.assert_array_equal(opened[3].arrays["rgb/front"], expected["rgb/front"])
    assert opened[3].damaged() == []
    assert six_episodes.episode(names[3], removed=True).attributes == opened[3].attributes
    with pytest.raises(ValueError, match=f"no episode '{names[3]}'"):
        six_episodes.episode(names[3])
    shutil.rmtree(trash_of(six_episodes.path))
    with pytest.raises(ValueError, match="rgb/front is missing or empty"):
        opened[3].arrays["rgb/front"]
    with pytest.raises(ValueError, match=f"no episode '{names[3]}'"):
        six_episodes.episode(names[3], removed=True)


def test_another_episode_of_the_same_name_is_not_taken(six_episodes: EpisodeStore) -> None:
    """The trash may have an older copy at another resolution, for example."""
    name = six_episodes.names()[0]
    episode = six_episodes.episode(name)
    expected = np.array(episode.arrays["action"])
    delete(six_episodes, [name])
    other = EpisodeStore.create(six_episodes.path.with_name("other"))
    changed = random_episode(steps=40, seed=9) | {"reward": np.zeros(40, np.float32)}
    written = other.write(changed, EpisodeAttributes(episode.attributes.contract, "reach", 0))
    mine = trash_of(six_episodes.path) / name
    mine.rename(mine.with_name(f"{name}.0123abcd"))
    (other.path / written).rename(mine)
    np.testing.assert_array_equal(episode.arrays["action"], expected)


def test_each_of_two_readers_keeps_its_episodes(six_episodes: EpisodeStore) -> None:
    """The copies of a killed reader are removed by the next edit, those of a living one stay."""
    names = six_episodes.names()
    with reader_of(six_episodes):
        with reader_of(six_episodes) as killed:
            delete(six_episodes, names[:1])
            assert len(list(pins_of(six_episodes).glob(f"*/{names[0]}/zarr.json"))) == 2
            killed.send_signal(signal.SIGKILL)
        delete(six_episodes, names[1:2])
        for name in names[:2]:
            assert len(list(pins_of(six_episodes).glob(f"*/{name}/zarr.json"))) == 1
    assert not pins_of(six_episodes).exists()


def test_copies_share_their_bytes(six_episodes: EpisodeStore) -> None:
    """A removed episode needs no further space."""
    pin = six_episodes.pin()
    name = six_episodes.names()[0]
    delete(six_episodes, [name])
    (copy,) = pins_of(six_episodes).glob(f"*/{name}/action/c/0/0")
    assert copy.samefile(trash_of(six_episodes.path) / name / "action/c/0/0")
    del pin


def test_file_systems_without_hard_links(
    six_episodes: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the episodes are copied."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    windows = Windows(six_episodes, chunk=4)
    edit_everything(six_episodes)
    expected = random_episode(steps=40, seed=0)["rgb/front"]
    np.testing.assert_array_equal(windows.batch([0])["rgb/front"][0], expected[0])


def test_a_store_that_cannot_be_pinned_is_read(
    six_episodes: EpisodeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As beside a read-only folder; the log says where removed episodes are read from."""
    pins_of(six_episodes).write_text("")
    with caplog.at_level("INFO"):
        windows = Windows(six_episodes, chunk=4)
    assert "cannot be pinned" in caplog.text
    assert "read from the trash" in caplog.text
    pins_of(six_episodes).unlink()
    delete(six_episodes, six_episodes.names())
    assert windows.batch([0])["rgb/front"].any()
