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
from tests.datasets.formats.conftest import OPENINGS, Import
from tests.datasets.formats.lerobot_recordings import CAMERA, DEPTH, encode, png, recorded

from stringline.datasets.formats.lerobot import LeRobotReader

Record = Callable[..., Path]
Spoil = Callable[[Path], object]


@pytest.fixture
def record(samples: Any, tmp_path: Path) -> Record:
    return partial(recorded, samples, tmp_path / "set")


def changed(column: str, edit: Callable[[list[Any]], list[Any]]) -> Spoil:
    def spoil(path: Path) -> None:
        table = pq.read_table(path)
        place, values = table.schema.get_field_index(column), edit(table[column].to_pylist())
        pq.write_table(table.set_column(place, column, pa.array(values)), path)

    return spoil


def put(column: str, frame: int, value: Any) -> Spoil:
    return changed(column, lambda old: [*old[:frame], value, *old[frame + 1 :]])


def cut(end: int) -> Spoil:
    return lambda path: path.write_bytes(path.read_bytes()[:end])


def filmed(frames: int, width: int) -> Spoil:
    return lambda path: encode(path, np.zeros((frames, 16, width, 3), np.uint8))


DATA = "data/chunk-000/episode_000001.parquet"
CLIP = f"videos/chunk-000/{CAMERA}/episode_000001.mp4"
PARTS = [0.0] * 14
NO_PNG, NO_BYTES = {"bytes": b"\x89PNG", "path": None}, {"bytes": None, "path": "x"}
TWO_MM = png(np.full((16, 24), 2, np.uint16))
BAD: list[tuple[str, str, Spoil, str]] = [
    ("libx264", DATA, cut(-50), "cannot be read as parquet; it is truncated"),
    ("libx264", DATA, Path.unlink, "There is no file episode_000001.parquet in"),
    ("libx264", DATA, put("action", 3, [np.nan, *PARTS[1:]]), "action at frame 3, 'left/waist'"),
    ("libx264", DATA, put("action", 2, PARTS[1:]), "action at frame 2 has 13 numbers, the"),
    ("libx264", DATA, put("action", 6, None), "action at frame 6 is empty."),
    ("libx264", DATA, changed("action", lambda old: ["x"] * len(old)), "action has type object"),
    ("libx264", DATA, put("timestamp", 4, 0.02), "timestamp does not increase at frame 4."),
    ("libx264", DATA, put("episode_index", 7, 9), "The data has 7 frames of it, the list"),
    ("libx264", CLIP, Path.unlink, f"{CAMERA}: there is no video episode_000001.mp4 in"),
    ("libx264", CLIP, cut(600), f"{CAMERA} at frame 0: episode_000001.mp4 does not decode"),
    ("libx264", CLIP, lambda path: path.write_bytes(b"no video"), "0: episode_000001.mp4 does not"),
    ("libx264", CLIP, filmed(6, 24), f"{CAMERA} has 6 frames in episode_000001.mp4; the"),
    ("libx264", CLIP, filmed(8, 32), f"{CAMERA} at frame 0 is uint8 (16, 32, 3); allowed"),
    ("image", DATA, put(CAMERA, 2, NO_PNG), f"{CAMERA} at frame 2 does not decode"),
    ("image", DATA, put(CAMERA, 2, NO_BYTES), f"{CAMERA} at frame 2 is empty."),
    ("image", DATA, put(DEPTH, 5, TWO_MM), "frame 5 reaches 2; integers are millimetres. Are"),
]


@pytest.mark.parametrize(("images", "file", "spoil", "message"), BAD)
def test_a_damaged_episode_is_reported_and_the_others_are_imported(
    imported: Import, record: Record, images: str, file: str, spoil: Spoil, message: str
) -> None:
    root = record("v2.1", images)
    spoil(root / file)
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert list(outcome.refused) == ["episode 1 (data/chunk-000/episode_000001.parquet)"]
    assert message in next(iter(outcome.refused.values()))
    assert [episode.attributes.seed for episode in store.episodes()] == [0, 2]
    assert store.leftovers() == []


def test_damage_in_the_middle_of_a_video_is_named(imported: Import, record: Record) -> None:
    root = record("v3.0", "depth")
    path = root / f"videos/{DEPTH}/chunk-000/file-000.mp4"
    raw = bytearray(path.read_bytes())
    place = raw.index(b"mdat") + 3000
    raw[place : place + 1500] = bytes(1500)
    path.write_bytes(raw)
    outcome = imported(LeRobotReader(OPENINGS), root)[1]
    assert outcome.refused
    assert all(DEPTH in message for message in outcome.refused.values())


@pytest.mark.parametrize(
    ("spoil", "episode", "line", "others"),
    [
        (lambda raw: raw[:-20], 2, 3, 2),
        (lambda raw: raw.replace(b'"stack"', b'"st\xffck"', 1), 0, 1, 0),
    ],
)
def test_damage_of_the_list_of_episodes_is_named(
    imported: Import,
    record: Record,
    spoil: Callable[[bytes], bytes],
    episode: int,
    line: int,
    others: int,
) -> None:
    root = record("v2.1", "image")
    path = root / "meta/episodes.jsonl"
    path.write_bytes(spoil(path.read_bytes()))
    store, outcome = imported(LeRobotReader(OPENINGS), root)
    assert len(store) == others
    why = outcome.refused[f"episode {episode} (meta)"]
    assert f"meta/episodes.jsonl is damaged in line {line}" in why


OLD = json.dumps({"codebase_version": "v1.6", "features": {}, "fps": 1, "data_path": ""})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "meta/info.json is damaged"),
        (b"\xff\xfe{}", "meta/info.json is damaged"),
        (b"{}", "meta/info.json is damaged: KeyError"),
        (OLD.encode(), "is a LeRobotDataset v1.6; allowed: v2.0, v2.1 and v3.0."),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_bytes(text)
    with pytest.raises(ValueError, match=message):
        list(LeRobotReader(OPENINGS).episodes(tmp_path))
