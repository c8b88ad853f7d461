"""Damaged LeRobotDatasets: the error names the place, and intact episodes are imported."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.datasets.formats.lerobot_recordings import CAMERA, DEPTH, encode, png, recorded

from stringline.datasets.formats.importing import Outcome
from stringline.datasets.formats.lerobot import LeRobotReader
from stringline.datasets.formats.vector_layout import AlohaLayout
from stringline.datasets.store.store import EpisodeStore

OPENINGS = AlohaLayout("opening", "opening")
Import = Callable[[LeRobotReader, Path], tuple[EpisodeStore, Outcome]]
Record = Callable[..., Path]


@pytest.fixture
def record(samples: Any) -> Record:
    return partial(recorded, samples)


def change(path: Path, column: str, edit: Callable[[list[Any]], list[Any]]) -> None:
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, pa.array(edit(table[column].to_pylist()))), path)


def put(frame: int, value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda old: [*old[:frame], value, *old[frame + 1 :]]


DATA = "data/chunk-000/episode_000001.parquet"
CLIP = f"videos/chunk-000/{CAMERA}/episode_000001.mp4"
PARTS = [0.0] * 14
BAD = [
    (
        ("libx264", DATA),
        lambda path: path.write_bytes(path.read_bytes()[:-50]),
        "cannot be read as parquet; it is truncated",
    ),
    (("libx264", DATA), lambda path: path.unlink(), "There is no file episode_000001.parquet in"),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", put(3, [np.nan, *PARTS[1:]])),
        "action at frame 3, 'left/waist', is nan",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", put(2, PARTS[1:])),
        "action at frame 2 has 13 numbers, the previous ones 14.",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", put(6, None)),
        "action at frame 6 is empty.",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "action", lambda old: ["x"] * len(old)),
        "action has type object",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "timestamp", put(4, 0.02)),
        "timestamp does not increase at frame 4.",
    ),
    (
        ("libx264", DATA),
        lambda path: change(path, "episode_index", put(7, 9)),
        "The data has 7 frames of it, the list of episodes has 8.",
    ),
    (
        ("libx264", CLIP),
        lambda path: path.unlink(),
        f"{CAMERA}: there is no video episode_000001.mp4 in",
    ),
    (
        ("libx264", CLIP),
        lambda path: path.write_bytes(path.read_bytes()[:600]),
        f"{CAMERA} at frame 0: episode_000001.mp4 does not decode",
    ),
    (
        ("libx264", CLIP),
        lambda path: path.write_bytes(b"no video"),
        f"{CAMERA} at frame 0: episode_000001.mp4 does not decode",
    ),
    (
        ("libx264", CLIP),
        lambda path: encode(path, np.zeros((6, 16, 24, 3), np.uint8)),
        f"{CAMERA} has 6 frames in episode_000001.mp4; the episode has 8.",
    ),
    (
        ("libx264", CLIP),
        lambda path: encode(path, np.zeros((8, 16, 32, 3), np.uint8)),
        f"{CAMERA} at frame 0 is uint8 (16, 32, 3); allowed: uint8 (16, 24, 3).",
    ),
    (
        ("image", DATA),
        lambda path: change(path, CAMERA, put(2, {"bytes": b"\x89PNG", "path": None})),
        f"{CAMERA} at frame 2 does not decode",
    ),
    (
        ("image", DATA),
        lambda path: change(path, CAMERA, put(2, {"bytes": None, "path": "x"})),
        f"{CAMERA} at frame 2 is empty.",
    ),
    (
        ("image", DATA),
        lambda path: change(path, DEPTH, put(5, png(np.full((16, 24), 2, np.uint16)))),
        f"{DEPTH} at frame 5 reaches 2; integers are millimetres. Are these metres?",
    ),
]


@pytest.mark.parametrize(("place", "spoil", "message"), BAD)
def test_a_damaged_episode_is_reported_and_the_others_are_imported(
    tmp_path: Path,
    imported: Import,
    record: Record,
    place: tuple[str, str],
    spoil: Any,
    message: str,
) -> None:
    root = record(tmp_path / "set", "v2.1", place[0])
    spoil(root / place[1])
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert list(outcome.refused) == ["episode 1 (data/chunk-000/episode_000001.parquet)"]
    assert message in next(iter(outcome.refused.values()))
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]
    assert store.leftovers() == []


def test_damage_in_the_middle_of_a_video_is_named(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    root = record(tmp_path / "set", "v3.0", "depth")
    path = root / f"videos/{DEPTH}/chunk-000/file-000.mp4"
    raw = bytearray(path.read_bytes())
    place = raw.index(b"mdat") + 3000
    raw[place : place + 1500] = bytes(1500)
    path.write_bytes(raw)
    outcome = imported(LeRobotReader(OPENINGS), root)[1]
    assert outcome.refused
    assert all(DEPTH in message for message in outcome.refused.values())


def test_the_entries_of_a_truncated_list_of_episodes_are_imported(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    path = root / "meta/episodes.jsonl"
    path.write_text(path.read_text()[:-20])
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert len(store) == 2
    assert "meta/episodes.jsonl is damaged in line 3" in outcome.refused["episode 2 (meta)"]


def test_a_list_of_episodes_that_is_not_text_is_reported(
    tmp_path: Path, imported: Import, record: Record
) -> None:
    root = record(tmp_path / "set", "v2.1", "image")
    path = root / "meta/episodes.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"stack"', b'"st\xffck"', 1))
    assert (
        "meta/episodes.jsonl is damaged in line 1"
        in imported(LeRobotReader(OPENINGS), root)[1].refused["episode 0 (meta)"]
    )
    (root / "meta/info.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match="meta/info.json is damaged"):
        list(LeRobotReader(OPENINGS).episodes(root))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a LeRobotDataset: it has no meta/info.json."),
        ("{", "meta/info.json is damaged"),
        ("{}", "meta/info.json is damaged: KeyError"),
        (
            json.dumps({"codebase_version": "v1.6", "features": {}, "fps": 1, "data_path": ""}),
            "is a LeRobotDataset v1.6; allowed: v2.0, v2.1 and v3.0.",
        ),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    (tmp_path / "meta").mkdir()
    if text is not None:
        (tmp_path / "meta" / "info.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        list(LeRobotReader(OPENINGS).episodes(tmp_path))
