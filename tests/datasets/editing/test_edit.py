"""Edits give correct new episodes at one moment and lose nothing, even if they are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.datasets.conftest import MakeEpisode
from tests.datasets.editing.waiting import delete_locked, waiting

from stringline import Contract, EpisodeAttributes, EpisodeStore
from stringline.datasets.contract.contract import INSTRUCTIONS, PER_STEP
from stringline.datasets.editing.derived_stores import Conditions, filter_store, merge, split_store
from stringline.datasets.editing.edit import (
    delete,
    part_of,
    relabel,
    select,
    split_episode,
    take_over,
    trim,
)
from stringline.datasets.files.atomic import exclusive
from stringline.datasets.store.episode import read_episode
from stringline.datasets.store.store import verify_store
from stringline.datasets.store.transactions import recover, transaction, trash_of

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / ".src")}
STEPS = 40


@pytest.fixture
def store(six_episodes: EpisodeStore) -> EpisodeStore:
    return six_episodes


def seeds(store: EpisodeStore) -> list[int]:
    """Returns the seeds of the episodes in order."""
    return [episode.attributes.seed for episode in store.episodes()]


def contents(store: EpisodeStore, name: str) -> dict[str, NDArray[Any]]:
    """Returns copies of all arrays of an episode."""
    return {key: np.array(array) for key, array in store.episode(name).arrays.items()}


def test_trimming_keeps_the_images_of_each_step(store: EpisodeStore) -> None:
    name = store.names()[2]
    old = contents(store, name)
    (new,) = trim(store, [name], from_s=0.1, to_s=0.5)
    assert seeds(store) == [0, 1, 2, 3, 4, 5]
    assert verify_store(store) == {}
    arrays, steps = store.episode(new).arrays, slice(5, 26)
    for key in ("time", "action", "joints/position", "T_base_gripper/one", "reward"):
        np.testing.assert_array_equal(arrays[key], old[key][steps])
    for camera, keys in {
        "front": ("rgb", "depth", "time"),
        "wrist": ("rgb", "time", "T_base_camera"),
    }.items():
        frames, before = arrays[f"frame/{camera}"], old[f"frame/{camera}"][steps]
        assert frames[0] == 0
        for key in keys:
            now = arrays[f"{key}/{camera}"]
            np.testing.assert_array_equal(now[frames], old[f"{key}/{camera}"][before])
            assert len(now) == frames[-1] + 1
        np.testing.assert_array_equal(arrays[f"intrinsics/{camera}"], old[f"intrinsics/{camera}"])
    np.testing.assert_array_equal(arrays["T_base_camera/front"], old["T_base_camera/front"])
    assert store.episode(new).attributes.extra == {
        "scale": 2,
        "edits": [{"of": name, "steps": [5, 26]}],
    }
    assert os.listdir(trash_of(store.path)) == [name]
    for key, array in read_episode(trash_of(store.path) / name).arrays.items():
        np.testing.assert_array_equal(array, old[key])


def test_the_parts_of_an_episode_are_the_episode(store: EpisodeStore) -> None:
    name = store.names()[0]
    old = contents(store, name)
    parts = split_episode(store, name, [0.4, 0.1])
    assert len(store) == 8
    assert [store.episode(part).steps for part in parts] == [5, 15, 20]
    for key in ("time", "action", "joints/position", "reward"):
        np.testing.assert_array_equal(
            np.concatenate([store.episode(part).arrays[key] for part in parts]), old[key]
        )
    for part in parts:
        seen = store.episode(part).arrays
        np.testing.assert_array_equal(
            seen["rgb/front"][seen["frame/front"][0]][None], seen["rgb/front"][:1]
        )


def test_the_whole_is_a_part(store: EpisodeStore) -> None:
    episode = store.episodes()[1]
    for key, array in part_of(episode, 0, STEPS).items():
        np.testing.assert_array_equal(array, episode.arrays[key])


def test_times_from_the_end(store: EpisodeStore) -> None:
    new = trim(store, store.names()[:2], to_s=-0.2)
    assert [store.episode(name).steps for name in new] == [30, 30]
    assert store.episode(new[0]).attributes.extra["edits"][0]["steps"] == [0, 30]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda s, n: trim(s, n, from_s=0.9), "lasts 0.78 s; nothing is left from 0.9 s to 0.78 s"),
        (lambda s, n: trim(s, n, from_s=0.5, to_s=-0.5), r"nothing is left from 0.5 s to 0.28 s"),
        (lambda s, n: trim(s, n, from_s=-1), r"nothing is left from -1 s"),
        (lambda s, n: split_episode(s, n[0], []), "Set at_s, the times of the splits"),
        (lambda s, n: split_episode(s, n[0], [0.0]), r"a split at \[0.0\] leaves an empty part"),
        (lambda s, n: split_episode(s, n[0], [0.2, 0.201, 0.209]), "leaves an empty part"),
        (lambda s, n: relabel(s, n), "Nothing to change: give one of success, instruction, task"),
        (lambda s, n: relabel(s, n, task=""), "An episode needs the name of its task"),
        (
            lambda s, n: select(s, ["reach.0000000001.x"]),
            "There is no episode 'reach.0000000001.x'. Did you mean 'reach.0000000001",
        ),
        (lambda s, n: merge([], s.path / "x"), "There are no episodes to merge in: no stores"),
        (
            lambda s, n: filter_store(s, s.path / "x", Conditions(task="fly")),
            "None of the 6 episodes in .* meets .*task='fly'",
        ),
        (lambda s, n: split_store(s, {s.path / "x": 0.5}), r"The shares are \[0.5\]"),
        (
            lambda s, n: split_store(s, {s.path / "x": 0.99, s.path / "y": 0.01}),
            "A share of 0.01 of 6 episodes leaves none for",
        ),
    ],
)
def test_a_mistake_changes_nothing(
    store: EpisodeStore, edit: Callable[[EpisodeStore, list[str]], object], message: str
) -> None:
    names = store.names()
    with pytest.raises(ValueError, match=message):
        edit(store, names[:2])
    assert store.names() == names
    assert sorted(os.listdir(store.path)) == sorted([*names, "zarr.json"])


def test_a_damaged_episode_is_not_edited(store: EpisodeStore) -> None:
    good, bad = store.names()[:2]
    chunk = store.path / bad / "depth.front/c/0/0/0"
    chunk.write_bytes(b"xy" + chunk.read_bytes()[2:])
    with pytest.raises(ValueError, match=f"Episode {bad}: depth/front has checksum"):
        trim(store, [good, bad], to_s=0.3)
    assert len(store) == 6


def test_deleted_episodes_can_be_put_back(store: EpisodeStore) -> None:
    names = store.names()
    delete(store, select(store, ["reach.0000000001.*", names[4]]))
    assert seeds(store) == [0, 2, 3, 5]
    (trash_of(store.path) / names[1]).rename(store.path / names[1])
    assert seeds(store) == [0, 1, 2, 3, 5]
    delete(store, [names[1]])
    assert sorted(os.listdir(trash_of(store.path))) == [names[1], names[4]]


def test_relabelling_copies_no_image(store: EpisodeStore) -> None:
    name = store.names()[5]
    before = contents(store, name)
    inode = (store.path / name / "rgb.front/c/0/0/0/0").stat().st_ino
    (new,) = relabel(store, [name], success=True, instruction="touch it", task="touch")
    assert verify_store(store) == {}
    attributes = store.episode(new).attributes
    assert attributes.success is True
    assert attributes.instruction == "touch it"
    assert attributes.task == "touch"
    assert attributes.seed == 5
    assert attributes.source == "teleoperation"
    assert (store.path / new / "rgb.front/c/0/0/0/0").stat().st_ino == inode
    for key, array in contents(store, new).items():
        np.testing.assert_array_equal(array, before[key])


RELABEL = """
import sys
from stringline.datasets.editing.edit import relabel
from stringline.datasets.store.store import EpisodeStore
store = EpisodeStore.open(sys.argv[1])
print("ready", flush=True)
while True:
    success = store.episodes()[0].attributes.success
    relabel(store, store.names(), success=not success)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.stress)])
def test_killed_editors_leave_the_old_or_the_new_episodes(store: EpisodeStore, kills: int) -> None:
    """After a kill, a reader sees each episode once, all before the edit or all after it."""
    relabel(store, store.names(), success=True)
    expected = {
        episode.attributes.seed: contents(store, episode.name) for episode in store.episodes()
    }
    rng, interrupted = np.random.default_rng(0), 0
    for delay in rng.uniform(0.0, 0.15, kills):
        editor = subprocess.Popen(
            [sys.executable, "-c", RELABEL, str(store.path)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
        )
        assert editor.stdout is not None
        assert editor.stdout.readline() == b"ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            editor.wait(delay)
        editor.send_signal(signal.SIGKILL)
        editor.wait()
        editor.stdout.close()
        interrupted += bool(list(store.path.glob(".edit-*")))
        assert seeds(store) == [0, 1, 2, 3, 4, 5]
        assert len({episode.attributes.success for episode in store.episodes()}) == 1
        assert not any(store.verify(name) for name in store.names())
    assert interrupted > 0
    names = store.names()
    recover(store.path)
    store.remove_leftovers()
    assert store.names() == names
    assert sorted(
        entry for entry in os.listdir(store.path) if not entry.startswith(".new-")
    ) == sorted([*names, "zarr.json"])
    for episode in store.episodes():
        for key, array in expected[episode.attributes.seed].items():
            np.testing.assert_array_equal(episode.arrays[key], array)


@pytest.mark.parametrize("failing", [5, 6])
def test_a_failed_edit_is_rolled_back(
    store: EpisodeStore, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full at the third of six episodes, none is replaced."""
    names, calls = store.names(), []
    rename = Path.rename

    def fill_up(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == failing:
            raise OSError(28, os.strerror(28), str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fill_up)
    with pytest.raises(OSError, match="No space left"):
        relabel(store, names, success=True)
    assert store.names() == names
    assert sorted(os.listdir(store.path)) == sorted([*names, "zarr.json"])


EDITS = {
    "trim": lambda store, names: trim(store, names, to_s=0.3),
    "split": lambda store, names: split_episode(store, names[-1], [0.3]),
    "relabel": lambda store, names: relabel(store, names, success=True),
    "delete": delete,
}


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("number", [1, 2])
def test_a_deleted_episode_is_not_edited_by_a_command_that_waited(
    store: EpisodeStore, kind: str, number: int
) -> None:
    """Nothing comes back, and episodes that only the second command names stay as they are."""
    first, second = store.names()[:2]
    named = [second, first][-number:]
    with waiting() as edits, exclusive(store.path):
        edits.start(lambda: EDITS[kind](store, named))
        delete_locked(store, first)
    with pytest.raises(ValueError, match=f"Another command has replaced or removed {first} of"):
        edits.results()
    assert seeds(store) == [1, 2, 3, 4, 5]
    assert second in store.names()
    assert sorted(os.listdir(store.path)) == sorted([*store.names(), "zarr.json"])
    assert os.listdir(trash_of(store.path)) == [first]


@pytest.mark.parametrize("kind", EDITS)
def test_one_of_two_edits_of_an_episode_is_refused(store: EpisodeStore, kind: str) -> None:
    name = store.names()[2]
    with waiting() as edits, exclusive(store.path):
        for _ in range(2):
            edits.start(lambda: EDITS[kind](store, [name]))
    with pytest.raises(ValueError, match="Another command has replaced or removed") as caught:
        edits.results()
    assert "Nothing was changed; repeat the command" in str(caught.value)
    assert edits.succeeded == 1
    assert os.listdir(trash_of(store.path)) == [name]
    parts = {"trim": 1, "split": 2, "relabel": 1, "delete": 0}[kind]
    assert seeds(store) == [0, 1, *[2] * parts, 3, 4, 5]
    assert verify_store(store) == {}


def test_a_command_does_not_report_the_deletion_of_another(store: EpisodeStore) -> None:
    name = store.names()[0]
    command = [sys.executable, "-m", "stringline.datasets.data", "delete"]
    with exclusive(store.path):
        late = subprocess.Popen(
            [*command, f"store={store.path}", f"episodes={name}"],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert late.stderr is not None
        assert "Waiting for another process" in late.stderr.readline()
        delete_locked(store, name)
    printed, error = late.communicate(timeout=60)
    assert (late.returncode, printed) == (2, "")
    assert f"Another command has replaced or removed {name} of {store.path}" in error


def test_a_listing_while_an_edit_ends_has_each_episode_once(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of the edit disappears after the listing that contains old and new episodes."""
    (old,) = store.names()[:1]
    new = old.rpartition(".")[0] + ".0123456789ab"
    episode = store.episode(old)
    edit = transaction(store.path, [new], [old])
    edit.__enter__()
    take_over(episode, store.path, new, episode.attributes)
    listdir = os.listdir

    def end_after_listing(path: Path) -> list[str]:
        entries = listdir(path)
        monkeypatch.undo()
        edit.__exit__(None, None, None)
        return entries

    monkeypatch.setattr(os, "listdir", end_after_listing)
    names = store.names()
    assert len(names) == 6
    assert new in names
    assert old not in names


@pytest.mark.parametrize(
    ("range_s", "text", "several"),
    [
        ((0.0, 0.2), "open the drawer", False),
        ((0.3, 0.7), "put the cup in", False),
        ((0.1, 0.7), "put the cup in", True),
    ],
)
def test_a_part_has_the_instruction_of_its_steps(
    tmp_path: Path,
    contract: Contract,
    make_episode: MakeEpisode,
    range_s: tuple[float, float],
    text: str,
    several: bool,
) -> None:
    """That of most steps, as in imports; with a single one the series is gone."""
    store = EpisodeStore.create(tmp_path / "said")
    texts = ["open the drawer", "put the cup in"]
    said = {PER_STEP: np.repeat(np.array([0, 1], np.float32), [12, 28])}
    attributes = EpisodeAttributes(
        contract, "reach", 0, instruction=texts[1], extra={INSTRUCTIONS: texts}
    )
    name = store.write(make_episode(steps=STEPS) | said, attributes)
    (part,) = trim(store, [name], from_s=range_s[0], to_s=range_s[1])
    episode = store.episode(part)
    assert episode.attributes.instruction == text
    assert (INSTRUCTIONS in episode.attributes.extra) == several
    assert (PER_STEP in episode.arrays) == several
