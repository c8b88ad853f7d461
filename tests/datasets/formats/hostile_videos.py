"""Hostile videos: of diffusion_policy's raw recordings, and of LeRobotDatasets v3.0."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.datasets.formats.hostile_corpus import (
    Edit,
    cases,
    cut,
    linked,
    linked_to_secret,
    piped,
    written,
)
from tests.datasets.formats.lerobot_recordings import CAMERA, encode
from tests.datasets.formats.small_sets import lerobot, recording, video

FILE = f"videos/{CAMERA}/chunk-000/file-000.mp4"
START = f"videos/{CAMERA}/from_timestamp"
END = f"videos/{CAMERA}/to_timestamp"


def without_middle(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    start = data.index(b"mdat") + 4
    stop = data.index(b"moov")
    middle = (start + stop) // 2
    data[middle : stop - 8] = bytes(stop - 8 - middle)
    file.write_bytes(data)


def playlist(file: Path, folder: Path) -> None:
    outside = folder.parent / f"{folder.name}.mp4"
    file.rename(outside)
    file.write_text(f"ffconcat version 1.0\nfile {outside}\n")


def emptied(file: Path, _: Path) -> None:
    """Puts a folder in the place of a file."""
    file.unlink()
    file.mkdir()


def filmed(frames: int, height: int = 16, width: int = 24) -> Edit:
    """Writes a video of diffusion_policy."""
    return lambda file, _: video(file, [np.zeros((height, width, 3), np.uint8)] * frames)


TEXT = "episode 1, camera 0\n" * 100
NO_CODE = "videos/1/0: 0.mp4 does not decode ("
INVALID = "videos/1/0: 0.mp4 does not decode (Invalid data found"
OTHER = "It does not fit the other episodes. "
OUT = "leads out of the data set, to"
cases(
    "diffusion_policy",
    "videos",
    recording,
    "videos/1/0.mp4",
    [
        ("truncated mp4", cut(600), NO_CODE, 2),
        ("empty mp4", written(b""), NO_CODE, 2),
        ("mp4 without its middle", without_middle, "videos/1/0", 2),
        ("mp4 shorter than its episode", filmed(12), "has 4 frames in 0.mp4; the episode has 8", 2),
        ("mp4 of one frame", filmed(1), "videos/1/0 has 1 frames in 0.mp4; the episode has 8.", 2),
        ("mp4 of another resolution", filmed(24, 32, 48), f"{OTHER}camera '0'", 2),
        ("mp4 of 6000 x 6000", filmed(1, 6000, 6000), "6000 x 6000 pixels; allowed: 33554432", 2),
        ("text named mp4", written(TEXT), INVALID, 2),
        ("image named mp4", written(b"\x89PNG\r\n\x1a\n" + bytes(2000)), INVALID, 2),
        ("playlist named mp4", playlist, INVALID, 2),
        ("folder named mp4", emptied, "videos/1/0: 0.mp4", 2),
        ("mp4 that is a link out", linked_to_secret, OUT, 2),
        ("mp4 that is a pipe", piped, "is neither a file nor a folder; it is not read.", 2),
        ("folder of an episode that is a link out", lambda f, d: linked(f.parent, d), OUT, 2),
        ("another camera", lambda f, _: f.rename(f.with_name("7.mp4")), f"{OTHER}There is no", 2),
        ("missing video", lambda file, _: file.unlink(), "There are no videos of it in", 2),
        ("folder that is a link out", lambda f, d: linked(f.parents[1], d), OUT, 0),
    ],
)


def encoded(frames: int, width: int = 24) -> Edit:
    """Writes a video of LeRobot."""
    return lambda file, _: encode(file, np.zeros((frames, 16, width, 3), np.uint8))


THIRD = partial(lerobot, images="libx264", version="v3.0")
FIRST = f"{CAMERA} at frame 0"
cases(
    "lerobot",
    "lerobot v3.0",
    THIRD,
    FILE,
    [
        ("truncated mp4", cut(600), f"{FIRST}: file-000.mp4 does not decode", 1),
        ("mp4 shorter than its episodes", encoded(7), f"{CAMERA} has 2 frames in file-000.mp4", 2),
        ("mp4 of another resolution", encoded(13, 32), f"{FIRST} is uint8 (16, 32, 3); allowed", 1),
        ("text named mp4", written(TEXT), f"{FIRST}: file-000.mp4 does not decode (Invalid", 1),
        ("mp4 that is a link out", linked_to_secret, OUT, 0),
    ],
)


def entry(key: str, value: object) -> Edit:
    """Gives the second entry in the list of episodes another value."""

    def edit(file: Path, _: Path) -> None:
        rows = pq.read_table(file).to_pylist()
        rows[1][key] = value
        pq.write_table(pa.Table.from_pylist(rows), file)

    return edit


BEGINS = f"{CAMERA} begins at"
NUMBER = "data/file_index"
cases(
    "lerobot",
    "lerobot v3.0",
    THIRD,
    "meta/episodes/chunk-000/file-000.parquet",
    [
        ("start beyond the video", entry(START, 1e9), f"{BEGINS} 1e+09 s of its video", 2),
        ("end before the start", entry(END, 0.0), "s of its video and ends at 0 s; allowed: a", 2),
        ("end that is not a number", entry(END, math.nan), "s of its video and ends at nan s", 2),
        ("end that is missing", entry(END, None), f"{END} is None; allowed: a number", 1),
        ("start that is not a number", entry(START, math.nan), f"{BEGINS} nan s of its", 2),
        ("start that is negative", entry(START, -1e300), f"{BEGINS} -1e+300 s of its video", 2),
        ("start that is infinite", entry(START, math.inf), f"{BEGINS} inf s of its video", 2),
        ("number of a file that is missing", entry(NUMBER, 7), "There is no file", 2),
        ("number of a file that is negative", entry(NUMBER, -1), "There is no file", 2),
        ("length of 2**62", entry("length", 2**62), "the list of episodes has 46116860184", 2),
        ("negative length", entry("length", -8), "The data has 8 frames of it, the list of", 2),
        ("start that is missing", entry(START, None), f"{START} is None; allowed: a number", 1),
        ("number of a file that is missing there", entry(NUMBER, None), "file_index is None", 1),
        ("length that is missing", entry("length", None), "length is None; allowed", 1),
        ("number that is missing", entry("episode_index", None), "episode_index is None", 1),
    ],
)


def of_a_billion(file: Path, _: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"fps": 1e9}))


RATE = (
    "rate of a billion",
    of_a_billion,
    "fps of meta/info.json is 1e+09, but the time stamps are 0.02 s apart",
    0,
)
cases("lerobot", "lerobot v3.0", THIRD, "meta/info.json", [RATE])
