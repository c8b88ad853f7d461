"""Imports keep further series, and name everything that they leave out."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.lerobot_recordings import LENGTHS, parquet, recorded
from tests.datasets.formats.replay_buffers import replay_buffer

from stringline.datasets.editing.edit import relabel
from stringline.datasets.formats.act_hdf5 import ActHdf5Reader, ActHdf5Writer
from stringline.datasets.formats.diffusion_policy import (
    DiffusionPolicyReader,
    DiffusionPolicyWriter,
)
from stringline.datasets.formats.foreign import (
    Described,
    ForeignDataError,
    Reader,
    Writer,
    extra_series,
    table_of,
)
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.lerobot_writer import LeRobotWriter, tasks_of
from stringline.datasets.loading.windows import Windows
from stringline.datasets.store.store import EpisodeStore


@pytest.fixture
def act(tmp_path: Path, samples: Any) -> Path:
    """One episode of ACT with two cameras, efforts, a wrench, depth and an instruction."""
    store = EpisodeStore.create(tmp_path / "original")
    store.write(*samples.episode(4))
    ActHdf5Writer(state_gripper="opening", action_gripper="opening").write(store, tmp_path / "act")
    with h5py.File(tmp_path / "act/episode_0.hdf5", "r+") as file:
        file["observations/effort"] = np.arange(56, dtype=np.float32).reshape(4, 14)
        file["observations/wrench.left"] = np.full((4, 6), 1e-9)
        file["observations/images_depth/overhead"] = np.zeros((4, 16, 24), np.uint16)
        file["base_action"] = np.ones((4, 2))
        file["instruction"] = "stack the cups"
        file["notes"] = ["a", "b", "c", "d"]
        file["bias"] = np.zeros(3)
        file["tactile"] = np.full((4, 2), np.nan)
    return tmp_path / "act"


def test_further_series_of_act_are_kept_and_the_rest_is_named(act: Path, imported: Import) -> None:
    store, outcome = imported(ActHdf5Reader(OPENINGS, cameras={"overhead": "top"}, depth={}), act)
    (episode,) = store.episodes()
    series = {key: episode.arrays[key] for key in episode.arrays if key.startswith("series/")}
    assert sorted(series) == [
        "series/base_action",
        "series/observations/effort",
        "series/observations/wrench/left",
    ]
    np.testing.assert_array_equal(series["series/observations/effort"].ravel(), np.arange(56))
    wrench = series["series/observations/wrench/left"]
    assert wrench.dtype == np.float64
    assert wrench[0, 0] == 1e-9
    assert episode.attributes.instruction == "stack the cups"
    images = "images that no camera uses"
    assert outcome.skipped_fields == {
        ("observations/images/wrist_left", images): 1,
        ("observations/images_depth/overhead", images): 1,
        ("notes", "no numbers"): 1,
        ("bias", "its length is not that of the action"): 1,
        ("tactile", "values that are not finite"): 1,
    }
    assert episode.attributes.extra["skipped_fields"]["tactile"] == "values that are not finite"
    assert store.verify(episode.name) == []
    assert not [key for key in Windows(store).batch([0]) if key.startswith("series/")]


def test_a_table_names_what_is_left_out_and_counts_the_episodes(
    act: Path, imported: Import
) -> None:
    outcome = imported(ActHdf5Reader(OPENINGS, depth={}), act)[1]
    assert table_of(outcome.skipped_fields, 1) == (
        "Left out of the data:\n"
        "  bias                                1 of 1 episodes: its length is not that of the "
        "action\n"
        "  notes                               1 of 1 episodes: no numbers\n"
        "  observations/images_depth/overhead  1 of 1 episodes: images that no camera uses\n"
        "  tactile                             1 of 1 episodes: values that are not finite\n"
    )


@pytest.fixture
def joints(samples: Any) -> dict[str, Any]:
    return {
        "state": np.concatenate([samples.joints(n, e) for e, n in enumerate(LENGTHS)]),
        "action": np.concatenate([samples.joints(n, e + 100) for e, n in enumerate(LENGTHS)]),
    }


def test_further_series_and_orders_of_colours_of_replay_buffers(
    tmp_path: Path, samples: Any, joints: dict[str, Any], imported: Import
) -> None:
    images = np.stack([samples.image(frame) for frame in range(sum(LENGTHS))])
    path = replay_buffer(
        tmp_path / "set.zarr",
        joints
        | {
            "img": np.concatenate([images, images[..., :1]], axis=-1),
            "first": images.transpose(0, 3, 1, 2),
            "depth_0": np.ones((sum(LENGTHS), 16, 24), np.uint16),
            "keypoint": np.arange(sum(LENGTHS) * 18.0).reshape(-1, 9, 2),
            "stage": np.arange(sum(LENGTHS)),
        },
    )
    store, outcome = imported(DiffusionPolicyReader(OPENINGS, control_hz=50, depth={}), path)
    assert outcome.refused == {}
    episode = store.episodes()[1]
    for camera in ("img", "first"):
        np.testing.assert_array_equal(episode.arrays[f"rgb/{camera}"], images[5:13])
    assert episode.arrays["series/keypoint"].shape == (8, 9, 2)
    np.testing.assert_array_equal(episode.arrays["series/stage"], np.arange(5, 13))
    assert outcome.skipped_fields == {
        ("alpha of img", "transparency"): 3,
        ("depth_0", "images that no camera uses"): 3,
    }


@pytest.fixture
def lerobot(tmp_path: Path, samples: Any) -> Path:
    """Two tasks in the second episode, a force, a text, and a validation split."""
    root = recorded(samples, tmp_path / "set", "v2.1", "image")
    info = json.loads((root / "meta/info.json").read_text())
    info["features"] |= {
        "observation.force": {"dtype": "float32", "shape": [3], "names": None},
        "observation.state.speed": {"dtype": "float64", "shape": [1], "names": None},
        "note": {"dtype": "string", "shape": [1], "names": None},
        "lost": {"dtype": "float32", "shape": [2], "names": None},
    }
    info["splits"] = {"train": "0:2", "val": "2:3"}
    (root / "meta/info.json").write_text(json.dumps(info))
    tasks = ["stack", "wave"]
    (root / "meta/tasks.jsonl").write_text(
        "\n".join(json.dumps({"task_index": i, "task": task}) for i, task in enumerate(tasks))
    )
    lines = (root / "meta/episodes.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    entries[1]["tasks"] = tasks
    (root / "meta/episodes.jsonl").write_text("\n".join(json.dumps(entry) for entry in entries))
    for number, steps in enumerate(LENGTHS):
        path = root / f"data/chunk-000/episode_{number:06d}.parquet"
        table = pq.read_table(path)
        force = np.arange(3 * steps, dtype=np.float32).reshape(-1, 3)
        table = table.append_column("observation.force", pa.array(list(force)))
        table = table.append_column("observation.state.speed", pa.array(np.arange(steps) / 3))
        table = table.append_column("note", pa.array(["a"] * steps))
        if number == 1:
            place = table.schema.get_field_index("task_index")
            table = table.set_column(place, "task_index", pa.array([0] * 3 + [1] * (steps - 3)))
        parquet(path, table)
    return root


def test_further_features_and_instructions_of_lerobot_are_kept(
    lerobot: Path, imported: Import
) -> None:
    store, outcome = imported(LeRobotReader(OPENINGS), lerobot)
    assert outcome.refused == {}
    one, two, _ = store.episodes()
    np.testing.assert_array_equal(one.arrays["series/observation/force"].ravel(), np.arange(15))
    np.testing.assert_array_equal(one.arrays["series/observation/state/speed"], np.arange(5) / 3)
    assert (one.attributes.instruction, two.attributes.instruction) == ("stack", "wave")
    assert two.attributes.extra["instructions"] == ["stack", "wave"]
    np.testing.assert_array_equal(two.arrays["series/instruction_index"], [0, 0, 0, 1, 1, 1, 1, 1])
    kept = "training uses the longest one; series/instruction_index keeps all"
    assert outcome.skipped_fields == {
        ("changes of the task", kept): 1,
        ("lost", "no column of the data"): 3,
        ("note", "no numbers"): 3,
    }
    splits = [episode.attributes.extra["split"] for episode in store.episodes()]
    assert splits == ["train", "train", "validation"]


@pytest.fixture
def rich(tmp_path: Path, samples: Any) -> EpisodeStore:
    """Two episodes with forces, rewards, known success and a change of the instruction."""
    store = EpisodeStore.create(tmp_path / "rich")
    for seed, steps in enumerate((5, 8)):
        arrays, attributes = samples.episode(steps, seed)
        arrays["series/observation/force"] = np.arange(3.0 * steps).reshape(-1, 3)
        arrays["series/speed"] = np.arange(steps, dtype=np.float32)
        arrays["reward"] = np.eye(steps, dtype=np.float32)[-1]
        arrays["series/instruction_index"] = (np.arange(steps) > 2).astype(np.float32)
        extra = {"instructions": ["stack the cups", f"wave {seed}"]}
        store.write(arrays, replace(attributes, success=seed == 1, extra=extra))
    return store


WAYS: list[tuple[str, Writer, Reader, set[str]]] = [
    ("set", LeRobotWriter(images="image"), LeRobotReader(OPENINGS), set()),
    (
        "set.zarr",
        DiffusionPolicyWriter(),
        DiffusionPolicyReader(OPENINGS, control_hz=50),
        {"reward", "success", "instruction", "attribute instructions"},
    ),
    (
        "act",
        ActHdf5Writer(state_gripper="opening", action_gripper="opening"),
        ActHdf5Reader(OPENINGS),
        {"reward", "success", "attribute instructions"},
    ),
]


@pytest.mark.parametrize("way", WAYS)
def test_exports_keep_what_the_format_has_a_place_for(
    tmp_path: Path,
    rich: EpisodeStore,
    imported: Import,
    way: tuple[str, Writer, Reader, set[str]],
) -> None:
    name, writer, reader, lost = way
    skipped_fields = {key for key, _ in writer.write(rich, tmp_path / name)}
    assert skipped_fields - {"T_base_gripper"} == lost
    store, outcome = imported(reader, tmp_path / name)
    assert outcome.refused == {}
    for before, after in zip(rich.episodes(), store.episodes(), strict=True):
        for key in ("series/observation/force", "series/speed", "series/instruction_index"):
            np.testing.assert_array_equal(after.arrays[key], before.arrays[key])
            assert after.arrays[key].dtype == before.arrays[key].dtype
        if "reward" not in lost:
            np.testing.assert_array_equal(after.arrays["reward"], before.arrays["reward"])
            assert after.attributes.success == before.attributes.success
            expected = before.attributes.extra["instructions"]
            assert after.attributes.extra["instructions"] == expected


def test_lerobot_exports_have_the_names_of_lerobot(tmp_path: Path, rich: EpisodeStore) -> None:
    LeRobotWriter(images="image").write(rich, tmp_path / "set")
    features = json.loads((tmp_path / "set/meta/info.json").read_text())["features"]
    for key, dtype in (("next.reward", "float32"), ("next.success", "bool"), ("next.done", "bool")):
        assert features[key] == {"dtype": dtype, "shape": [1], "names": None}
    assert features["observation.force"] == {"dtype": "float64", "shape": [3], "names": None}
    table = pq.read_table(tmp_path / "set/data/chunk-000/file-001.parquet").to_pydict()
    assert table["next.success"] == table["next.done"] == [False] * 7 + [True]
    assert table["task_index"] == [0, 0, 0, 2, 2, 2, 2, 2]


def test_a_series_that_not_all_episodes_have_is_named(
    tmp_path: Path, rich: EpisodeStore, samples: Any
) -> None:
    rich.write(*samples.episode(4, 7))
    skipped_fields = LeRobotWriter(images="image").write(rich, tmp_path / "set")
    why = "no place in the format"
    assert (
        skipped_fields["series/speed", why]
        == skipped_fields["reward", why]
        == skipped_fields["success", why]
        == 2
    )


def test_a_new_instruction_replaces_those_of_the_steps(rich: EpisodeStore) -> None:
    (name,) = relabel(rich, rich.names()[:1], instruction="tidy up")
    episode = rich.episode(name)
    assert "instructions" not in episode.attributes.extra
    assert tasks_of(episode) == ["tidy up"]


def test_names_of_what_is_left_out_forge_no_lines() -> None:
    """A name of the data with an escape sequence, a line end and a mark of direction."""
    skipped_fields = Counter(
        {("a\n3 episodes imported", "\x1b[2J"): 1, ("\u202eb", "no numbers"): 2}
    )
    table = table_of(skipped_fields, 3)
    assert len(table.splitlines()) == 3
    assert all(character.isprintable() for line in table.splitlines() for character in line)


def test_a_set_of_very_many_series_is_refused() -> None:
    offered = {f"s{number}": Described((3,), np.dtype(np.float32)) for number in range(60_000)}
    with pytest.raises(ForeignDataError, match="has 60000 series; allowed: up to 1024"):
        extra_series(offered, lambda name: np.zeros(3), 3)
