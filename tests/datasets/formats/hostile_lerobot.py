"""Hostile LeRobotDatasets."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.datasets.formats.hostile_corpus import case, secret_of
from tests.datasets.formats.hostile_hdf5 import png_of
from tests.datasets.formats.lerobot_recordings import CAMERA
from tests.datasets.formats.small_sets import lerobot

from stringline.datasets.formats.video import write_video

LEROBOT = "lerobot"
DATA = "data/chunk-000/episode_000001.parquet"
CLIP = f"videos/chunk-000/{CAMERA}/episode_000001.mp4"


def described(folder: Path, images: str = "image", **changes: Any) -> Path:
    """Writes a data set and changes its description."""
    root = lerobot(folder, images)
    file = root / "meta/info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return root


DESCRIPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("path that leads out", {"data_path": "../../secret"}, "leads out of the data set, to"),
    ("absolute path", {"data_path": "/etc/passwd"}, "leads out of the data set, to /etc/passwd"),
    (
        "width of 2 GB",
        {"data_path": "{episode_index:>2000000000}"},
        "allowed are names and widths, as in {episode_index:06d}. Its fields are episode_index",
    ),
    ("width in a field", {"data_path": "{episode_index:{episode_chunk}}"}, "allowed are names"),
    ("attribute", {"data_path": "{episode_index.__class__}"}, "allowed are names and widths"),
    ("item", {"data_path": "{episode_index[0]}"}, "allowed are names and widths"),
    ("conversion", {"data_path": "{episode_index!r}"}, "allowed are names and widths"),
    ("unknown field", {"data_path": "{home}"}, "allowed are names and widths"),
    ("open brace", {"data_path": "{episode_index"}, "data_path of meta/info.json is"),
    ("null character", {"data_path": "data/\0"}, "cannot be resolved: "),
    ("path that is a list", {"data_path": ["x"]}, "data_path of meta/info.json is ['x']"),
    ("features that are a list", {"features": ["x"]}, "features is a list; allowed"),
    ("feature that is a text", {"features": {"action": "x"}}, "the feature 'action' has no dtype"),
    (
        "shape beyond bounds",
        {"features": {"x": {"dtype": "image", "shape": [60000, 60000, 3]}}},
        "The feature 'x' has 60000 x 60000 pixels; allowed: 33554432 in all.",
    ),
    (
        "negative shape",
        {"features": {"x": {"dtype": "image", "shape": [-1, 4, 3]}}},
        "the feature 'x' has shape [-1, 4, 3]; allowed: whole numbers 1 and above.",
    ),
    ("rate that is no number", {"fps": float("nan")}, "fps is nan; allowed: above 0"),
    ("rate that is a text", {"fps": "50"}, "fps is '50'; allowed: above 0"),
    ("no chunks", {"chunks_size": 0}, "chunks_size is 0; allowed: whole numbers 1 and above"),
]


def _described(changes: dict[str, Any]) -> Callable[[Path], Path]:
    return lambda folder: described(folder, **changes)


for _name, _changes, _says in DESCRIPTIONS:
    case(f"lerobot, {_name}", LEROBOT, _says)(_described(_changes))


@case("lerobot, video path that leads out", LEROBOT, "leads out of the data set, to")
def _(folder: Path) -> Path:
    return described(folder, "libx264", video_path="../../{video_key}.mp4")


@case("lerobot, name of a camera that leads out", LEROBOT, "leads out of the data set, to")
def _(folder: Path) -> Path:
    root = lerobot(folder, "libx264")
    file = root / "meta/info.json"
    file.write_text(file.read_text().replace(CAMERA, "../../../../../secret"))
    return root


@case("lerobot, description without an end", LEROBOT, "leads out of the data set, to /dev/zero")
def _(folder: Path) -> Path:
    root = lerobot(folder)
    (root / "meta/info.json").unlink()
    (root / "meta/info.json").symlink_to("/dev/zero")
    return root


@case("lerobot, description of 17 MiB", LEROBOT, "info.json has 16777217 bytes or more; allowed")
def _(folder: Path) -> Path:
    root = lerobot(folder)
    (root / "meta/info.json").write_bytes(b" " * (17 * 2**20))
    return root


@case("lerobot, nested description", LEROBOT, "meta/info.json is damaged: RecursionError")
def _(folder: Path) -> Path:
    root = lerobot(folder)
    (root / "meta/info.json").write_text('{"a":' * 100_000)
    return root


@case("lerobot, list of episodes that is a pipe", LEROBOT, "is neither a file nor a folder")
def _(folder: Path) -> Path:
    root = lerobot(folder)
    (root / "meta/episodes.jsonl").unlink()
    os.mkfifo(root / "meta/episodes.jsonl")
    return root


@case("lerobot, nested entry", LEROBOT, "meta/episodes.jsonl is damaged in line 2", 1)
def _(folder: Path) -> Path:
    root = lerobot(folder)
    file = root / "meta/episodes.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "[" * 100_000, lines[2]]))
    return root


@case("lerobot, data that is a link out", LEROBOT, "leads out of the data set, to", 1)
def _(folder: Path) -> Path:
    root = lerobot(folder)
    (root / DATA).rename(folder.parent / f"{folder.name}.parquet")
    (root / DATA).symlink_to(folder.parent / f"{folder.name}.parquet")
    return root


def changed(root: Path, column: str, values: pa.Array) -> None:
    table = pq.read_table(root / DATA)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, values), root / DATA)


@case("lerobot, image of 60000 x 60000", LEROBOT, "does not decode: Image size (3600000000", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder)
    row = {"bytes": png_of(60000, 60000), "path": None}
    changed(root, CAMERA, pa.array([row] * 8))
    return root


@case("lerobot, image by a path", LEROBOT, f"{CAMERA} at frame 0 is empty.", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder)
    changed(root, CAMERA, pa.array([{"bytes": None, "path": str(secret_of(folder))}] * 8))
    return root


@case("lerobot, 20 million rows", LEROBOT, "has 20000000 rows; allowed: 16777216.", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder)
    needed = ("episode_index", "observation.state", "action", "timestamp")
    flags = pa.nulls(20_000_000, pa.int8())
    pq.write_table(pa.table(dict.fromkeys(needed, flags)), root / DATA)
    return root


@case("lerobot, vectors of 70 million numbers", LEROBOT, "have 560", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder)
    flags = pa.nulls(70_000_000, pa.int8())
    offsets = pa.array([0, *[70_000_000] * 8], pa.int32())
    changed(root, "action", pa.ListArray.from_arrays(offsets, flags))
    return root


@case("lerobot, playlist as a video", LEROBOT, "does not decode (Invalid data found", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder, "libx264")
    list_of = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{root / CLIP}2\n#EXT-X-ENDLIST\n"
    (root / CLIP).rename(root / f"{CLIP}2")
    (root / CLIP).write_text(list_of)
    return root


@case("lerobot, list of files as a video", LEROBOT, "does not decode (Invalid data found", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder, "libx264")
    (root / CLIP).rename(folder.parent / f"{folder.name}.mp4")
    (root / CLIP).write_text(f"ffconcat version 1.0\nfile {folder.parent / folder.name}.mp4\n")
    return root


@case("lerobot, another codec", LEROBOT, "has the codec 'qtrle'; allowed: av1, ffv1, h264", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder, "libx264")
    with av.open(str(root / CLIP), "w", format="mov") as container:
        stream = container.add_stream("qtrle", rate=50)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 24, 16, "rgb24"
        for _ in range(8):
            frame = av.VideoFrame.from_ndarray(np.zeros((16, 24, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return root


@case("lerobot, video of 6000 x 6000", LEROBOT, "has 6000 x 6000 pixels; allowed: 33554432", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder, "libx264")
    write_video(
        root / CLIP,
        [np.zeros((6000, 6000, 3), np.uint8)],
        fps=50,
        codec="libx264",
        pixel_format="yuv420p",
        options={"preset": "ultrafast"},
    )
    return root


@case("lerobot, video of a billion samples", LEROBOT, f"{CAMERA} at frame 0", 2)
def _(folder: Path) -> Path:
    root = lerobot(folder, "libx264")
    data = bytearray((root / CLIP).read_bytes())
    place = data.index(b"stts") + 4
    data[place + 8 : place + 12] = (2**30).to_bytes(4, "big")
    place = data.index(b"stsz") + 4
    data[place + 4 : place + 12] = b"\0\0\0\1" + (2**30).to_bytes(4, "big")
    (root / CLIP).write_bytes(data)
    return root
