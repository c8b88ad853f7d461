"""Edits give correct new episodes at one moment and lose nothing, even if they are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract
from stringline.datasets.data import main
from stringline.datasets.editing.edit import delete, part_of, relabel, select, split_episode, trim
from stringline.datasets.editing.selection import Conditions, filter_store, merge, split_store
from stringline.datasets.store.episode import EpisodeAttributes, read_episode
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.transactions import recover, trash_of
from stringline.datasets.store.verification import verify_store

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / ".src")}
MakeEpisode = Callable[..., dict[str, NDArray[Any]]]
STEPS = 40


@pytest.fixture
def store(tmp_path: Path, contract: Contract, make_episode: MakeEpisode) -> EpisodeStore:
    """Six episodes of 40 steps of 0.02 s; the even ones succeeded, the last was never judged."""
    store = EpisodeStore.create(tmp_path / "store")
    for seed in range(6):
        success = None if seed == 5 else seed % 2 == 0
        arrays = make_episode(steps=STEPS, seed=seed) | {
            "reward": np.arange(STEPS, dtype=np.float32)
        }
        source = "expert" if seed < 3 else "teleoperation"
        store.write(
            arrays, EpisodeAttributes(contract, "reach", seed, success, source, extra={"scale": 2})
        )
    return store


def seeds(store: EpisodeStore) -> list[int]:
    """Returns the seeds of the episodes in order."""
    return [episode.attributes.seed for episode in store.episodes()]


def contents(store: EpisodeStore, name: str) -> dict[str, NDArray[Any]]:
    """Returns copies of all arrays of an episode."""
    return {key: np.array(array) for key, array in store.episode(name).arrays.items()}


def test_trimming_keeps_each_step_with_what_it_saw(store: EpisodeStore) -> None:
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
        (
            lambda s, n: trim(s, n, from_s=0.9),
            r"lasts 0.78 s; nothing is left from 0.9 s to 0.78 s",
        ),
        (lambda s, n: trim(s, n, from_s=0.5, to_s=-0.5), r"nothing is left from 0.5 s to 0.28 s"),
        (lambda s, n: trim(s, n, from_s=-1), r"nothing is left from -1 s"),
        (lambda s, n: split_episode(s, n[0], []), "Set at_s, the times of the splits"),
        (lambda s, n: split_episode(s, n[0], [0.0]), r"a split at \[0.0\] leaves an empty part"),
        (lambda s, n: split_episode(s, n[0], [0.2, 0.201, 0.209]), "leaves an empty part"),
        (
            lambda s, n: relabel(s, n),
            "Nothing to change: give one of success, instruction, task, source",
        ),
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
        (
            lambda s, n: split_store(s, {s.path / "x": 0.5}),
            r"The shares are \[0.5\]; allowed: positive numbers with the sum 1",
        ),
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


def test_a_damaged_episode_is_not_made_into_a_new_one(store: EpisodeStore) -> None:
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
    assert (attributes.success, attributes.instruction, attributes.task, attributes.seed) == (
        True,
        "touch it",
        "touch",
        5,
    )
    assert attributes.source == "teleoperation"
    assert (store.path / new / "rgb.front/c/0/0/0/0").stat().st_ino == inode
    for key, array in contents(store, new).items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Conditions(success=True), [0, 2, 4]),
        (Conditions(success=False), [1, 3]),
        (Conditions(), [0, 1, 2, 3, 4, 5]),
        (Conditions(source="tele*"), [3, 4, 5]),
        (Conditions(success=True, task="rea*", shortest_s=0.7, longest_s=0.79), [0, 2, 4]),
        (Conditions(shortest_s=0.5), [0, 1, 2, 3, 4]),
    ],
)
def test_filtering(
    store: EpisodeStore, tmp_path: Path, wanted: Conditions, expected: list[int]
) -> None:
    trim(store, store.names()[5:], to_s=0.3)
    kept = filter_store(store, tmp_path / "kept", wanted)
    assert seeds(kept) == expected
    assert set(kept.names()) <= set(store.names())
    assert verify_store(kept) == {}
    assert filter_store(store, tmp_path / "kept", wanted).names() == kept.names()
    assert len(store) == 6


def test_splitting_and_merging_again_gives_the_store(store: EpisodeStore, tmp_path: Path) -> None:
    outputs = {tmp_path / "train": 0.5, tmp_path / "validation": 0.3, tmp_path / "test": 0.2}
    parts = split_store(store, outputs)
    assert [len(part) for part in parts] == [3, 2, 1]
    assert [seeds(part) for part in split_store(store, outputs)] == [seeds(part) for part in parts]
    whole = merge(parts, tmp_path / "whole")
    assert whole.names() == store.names()
    assert verify_store(whole) == {}
    assert {
        path.stat().st_nlink for path in (whole.path / whole.names()[0]).glob("rgb.*/c/0/0/0/0")
    } == {3}


def test_across_disks_arrays_are_copied(
    store: EpisodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no second name can be given, the copy is whole."""

    def refuse(old: Path, new: Path) -> None:
        raise OSError(18, os.strerror(18))

    monkeypatch.setattr(os, "link", refuse)
    kept = filter_store(store, tmp_path / "kept", Conditions(success=True))
    assert verify_store(kept) == {}
    assert len(kept) == 3


def test_stores_that_differ_are_not_merged(
    store: EpisodeStore, tmp_path: Path, contract: Contract, make_episode: MakeEpisode
) -> None:
    for change, message in (
        ({"control_hz": 10.0}, "control_hz: 50.0 is required, 10.0 is offered"),
        (
            {"cameras": (replace(contract.cameras[0], depth_unit_m=0.0005), contract.cameras[1])},
            "depth_unit_m=0.0005",
        ),
    ):
        other = EpisodeStore.create(tmp_path / message[:5])
        other.write(make_episode(), EpisodeAttributes(replace(contract, **change), "reach", 9))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"cannot be merged. .*{message}"):
            merge([store, other], tmp_path / "merged")


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


@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.stress)])
def test_killed_editors_leave_the_old_or_the_new(store: EpisodeStore, kills: int) -> None:
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
def test_an_edit_that_fails_is_taken_back(
    store: EpisodeStore, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full at the third of six episodes: none is replaced."""
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


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            ["trim", "episodes=*", "to_s=0.3"],
            "6 episodes of {} replaced by 6; the old ones are in {}.trash",
        ),
        (
            ["delete", "episodes=[reach.0000000001.*,reach.0000000002.*]"],
            "2 episodes moved to {}.trash; 4 are left in {}",
        ),
        (["split", "parts={train: 0.5, test: 0.5}"], "{}_train: 3 episodes"),
        (["split", "episode=reach.0000000003.*", "at_s=[0.3]"], "1 episodes of {} replaced by 2"),
        (
            ["relabel", "episodes=reach.0000000003.*", "success=true"],
            "1 episodes of {} replaced by 1",
        ),
        (["filter", "output={}_good"], "{}_good: 3 episodes"),
        (["merge", "stores=[{},{}]", "output={}_all"], "{}_all: 6 episodes"),
        (["archive", "output={}_archive"], "6 episodes added"),
        (["cache", "output={}_small", "height=3", "width=4"], "{}_small: 6 episodes"),
    ],
)
def test_verbs(
    store: EpisodeStore,
    arguments: list[str],
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(store.path)
    stores = [] if arguments[0] == "merge" else [f"store={path}"]
    arguments = [argument.replace("{}", path) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["stringline-data", *arguments, *stores])
    main()
    assert answer.replace("{}", path) in capsys.readouterr().out


def test_splitting_asks_for_one_thing(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, answer in (
        ([], "Set parts="),
        (["episode=*", "at_s=[1]"], "Only one episode can be split at a time; got 6"),
    ):
        monkeypatch.setattr(
            sys, "argv", ["stringline-data", "split", f"store={store.path}", *arguments]
        )
        with pytest.raises(SystemExit):
            main()
        assert answer in capsys.readouterr().err
