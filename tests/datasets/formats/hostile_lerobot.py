"""Hostile LeRobotDatasets."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.datasets.formats.hostile_corpus import (
    Edit,
    cases,
    linked,
    linked_to,
    piped,
    secret_of,
    written,
)
from tests.datasets.formats.hostile_hdf5 import png_of
from tests.datasets.formats.lerobot_recordings import CAMERA
from tests.datasets.formats.small_sets import lerobot, video

DATA = "data/chunk-000/episode_000001.parquet"
CLIP = f"videos/chunk-000/{CAMERA}/episode_000001.mp4"


def described(**changes: Any) -> Edit:
    """Changes the description of a data set."""
    return lambda file, _: file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def shaped(*shape: int) -> dict[str, Any]:
    return {"features": {"x": {"dtype": "image", "shape": list(shape)}}}


DESCRIPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("path that leads out", {"data_path": "../../secret"}, "leads out of the data set, to"),
    ("absolute path", {"data_path": "/etc/passwd"}, "leads out of the data set, to /etc/passwd"),
    ("width of 2 GB", {"data_path": "{episode_index:>2000000000}"}, "allowed are names and widths"),
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
    ("shape beyond bounds", shaped(60000, 60000, 3), "The feature 'x' has 60000 x 60000 pixels"),
    ("negative shape", shaped(-1, 4, 3), "the feature 'x' has shape [-1, 4, 3]; allowed: an"),
    ("rate that is no number", {"fps": float("nan")}, "fps must be a number above 0 (got nan)"),
    ("rate that is a text", {"fps": "50"}, "fps must be a number above 0 (got '50')"),
    ("no chunks", {"chunks_size": 0}, "chunks_size must be an integer of at least 1 (got 0)"),
]


OUT = "leads out of the data set, to"
INFO, LIST, VIDEOS = "meta/info.json", "meta/episodes.jsonl", partial(lerobot, images="libx264")
LEADING_OUT = described(video_path="../../{video_key}.mp4")
LARGE = written(b" " * (17 * 2**20))


def outside_camera(file: Path, _: Path) -> None:
    file.write_text(file.read_text().replace(CAMERA, "../../../../../secret"))


def nested_entry(file: Path, _: Path) -> None:
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], "[" * 100_000, lines[2]]))


CHANGED = [(name, described(**changes), says, 0) for name, changes, says in DESCRIPTIONS]
cases(
    "lerobot",
    "lerobot",
    lerobot,
    INFO,
    [
        *CHANGED,
        ("description without an end", linked_to("/dev/zero"), f"{OUT} /dev/zero", 0),
        ("description of 17 MiB", LARGE, "info.json has 16777217 bytes or more; allowed", 0),
        ("nested description", written('{"a":' * 100_000), "info.json is damaged: RecursionErr", 0),
    ],
)
cases(
    "lerobot",
    "lerobot",
    VIDEOS,
    INFO,
    [
        ("video path that leads out", LEADING_OUT, OUT, 0),
        ("name of a camera that leads out", outside_camera, OUT, 0),
    ],
)
cases(
    "lerobot",
    "lerobot",
    lerobot,
    LIST,
    [
        ("list of episodes that is a pipe", piped, "is neither a file nor a folder", 0),
        ("nested entry", nested_entry, "meta/episodes.jsonl is damaged in line 2", 1),
    ],
)


def changed(file: Path, column: str, values: pa.Array) -> None:
    table = pq.read_table(file)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, values), file)


def large_image(file: Path, _: Path) -> None:
    changed(file, CAMERA, pa.array([{"bytes": png_of(60000, 60000), "path": None}] * 8))


def image_by_a_path(file: Path, folder: Path) -> None:
    changed(file, CAMERA, pa.array([{"bytes": None, "path": str(secret_of(folder))}] * 8))


def many_rows(file: Path, _: Path) -> None:
    needed = ("episode_index", "observation.state", "action", "timestamp")
    flags = pa.nulls(20_000_000, pa.int8())
    pq.write_table(pa.table(dict.fromkeys(needed, flags)), file)


def long_vectors(file: Path, _: Path) -> None:
    flags = pa.nulls(70_000_000, pa.int8())
    offsets = pa.array([0, *[70_000_000] * 8], pa.int32())
    changed(file, "action", pa.ListArray.from_arrays(offsets, flags))


cases(
    "lerobot",
    "lerobot",
    lerobot,
    DATA,
    [
        ("data that is a link out", linked, OUT, 1),
        ("image of 60000 x 60000", large_image, "does not decode: Image size (3600000000", 2),
        ("image by a path", image_by_a_path, f"{CAMERA} at frame 0 is empty.", 2),
        ("20 million rows", many_rows, "has 20000000 rows; allowed: 16777216.", 2),
        ("vectors of 70 million numbers", long_vectors, "have 560", 2),
    ],
)


def playlist(file: Path, _: Path) -> None:
    file.rename(f"{file}2")
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n"
    file.write_text(f"{head}{file}2\n#EXT-X-ENDLIST\n")


def list_of_files(file: Path, folder: Path) -> None:
    file.rename(folder.parent / f"{folder.name}.mp4")
    file.write_text(f"ffconcat version 1.0\nfile {folder.parent / folder.name}.mp4\n")


def another_codec(file: Path, folder: Path) -> None:
    with av.open(str(file), "w", format="mov") as container:
        stream = container.add_stream("qtrle", rate=50)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 24, 16, "rgb24"
        for _ in range(8):
            frame = av.VideoFrame.from_ndarray(np.zeros((16, 24, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def large_frame(file: Path, _: Path) -> None:
    video(file, [np.zeros((6000, 6000, 3), np.uint8)])


def billion_samples(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    place = data.index(b"stts") + 4
    data[place + 8 : place + 12] = (2**30).to_bytes(4, "big")
    place = data.index(b"stsz") + 4
    data[place + 4 : place + 12] = b"\0\0\0\1" + (2**30).to_bytes(4, "big")
    file.write_bytes(data)


cases(
    "lerobot",
    "lerobot",
    VIDEOS,
    CLIP,
    [
        ("playlist as a video", playlist, "does not decode (Invalid data found", 2),
        ("list of files as a video", list_of_files, "does not decode (Invalid data found", 2),
        ("another codec", another_codec, "has the codec 'qtrle'; allowed: av1, ffv1, h264", 2),
        ("video of 6000 x 6000", large_frame, "has 6000 x 6000 pixels; allowed: 33554432", 2),
        ("video of a billion samples", billion_samples, f"{CAMERA} at frame 0", 2),
    ],
)
