"""Hostile videos: of diffusion_policy's raw recordings, and of LeRobotDatasets v3.0."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.datasets.formats.hostile_corpus import case, secret_of
from tests.datasets.formats.lerobot_recordings import CAMERA, encode
from tests.datasets.formats.small_sets import image, lerobot, recording, video

RECORDING = "diffusion_policy"
LEROBOT = "lerobot"
CLIP = "videos/1/0.mp4"
FILE = f"videos/{CAMERA}/chunk-000/file-000.mp4"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
Edit = Callable[[Path, Path], object]


def second(name: str, says: str, others: int = 2) -> Callable[[Edit], Edit]:
    """Adds a recording in which the decorated function edits the video of the second episode."""

    def add(edit: Edit) -> Edit:
        def build(folder: Path) -> Path:
            root = recording(folder)
            edit(root / CLIP, folder)
            return root

        case(f"videos, {name}", RECORDING, says, others)(build)
        return edit

    return add


@second("truncated mp4", "videos/1/0: 0.mp4 does not decode (")
def _(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes()[:600])


@second("empty mp4", "videos/1/0: 0.mp4 does not decode (")
def _(file: Path, _: Path) -> None:
    file.write_bytes(b"")


@second("mp4 without its middle", "videos/1/0")
def _(file: Path, _: Path) -> None:
    data = bytearray(file.read_bytes())
    start = data.index(b"mdat") + 4
    stop = data.index(b"moov")
    middle = (start + stop) // 2
    data[middle : stop - 8] = bytes(stop - 8 - middle)
    file.write_bytes(data)


@second("mp4 shorter than its episode", "videos/1/0 has 4 frames in 0.mp4; the episode has 8.")
def _(file: Path, _: Path) -> None:
    video(file, [image(frame) for frame in range(12)])


@second("mp4 of one frame", "videos/1/0 has 1 frames in 0.mp4; the episode has 8.")
def _(file: Path, _: Path) -> None:
    video(file, [image(0)])


@second("mp4 of another resolution", "It does not fit the other episodes. camera '0'")
def _(file: Path, _: Path) -> None:
    video(file, [np.zeros((32, 48, 3), np.uint8)] * 24)


@second("mp4 of 6000 x 6000", "has 6000 x 6000 pixels; allowed: 33554432")
def _(file: Path, _: Path) -> None:
    video(file, [np.zeros((6000, 6000, 3), np.uint8)])


@second("text named mp4", "videos/1/0: 0.mp4 does not decode (Invalid data found")
def _(file: Path, _: Path) -> None:
    file.write_text("episode 1, camera 0\n" * 100)


@second("image named mp4", "videos/1/0: 0.mp4 does not decode (Invalid data found")
def _(file: Path, _: Path) -> None:
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2000))


@second("playlist named mp4", "videos/1/0: 0.mp4 does not decode (Invalid data found")
def _(file: Path, folder: Path) -> None:
    outside = folder.parent / f"{folder.name}.mp4"
    file.rename(outside)
    file.write_text(f"ffconcat version 1.0\nfile {outside}\n")


@second("folder named mp4", "videos/1/0: 0.mp4")
def _(file: Path, _: Path) -> None:
    file.unlink()
    file.mkdir()


@second("mp4 that is a link out", "leads out of the data set, to")
def _(file: Path, folder: Path) -> None:
    file.unlink()
    file.symlink_to(secret_of(folder))


@second("mp4 that is a pipe", "is neither a file nor a folder; it is not read.")
def _(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@second("folder of an episode that is a link out", "leads out of the data set, to")
def _(file: Path, folder: Path) -> None:
    outside = folder.parent / f"{folder.name}-videos"
    file.parent.rename(outside)
    file.parent.symlink_to(outside)


@second("another camera", "It does not fit the other episodes. There is no camera")
def _(file: Path, _: Path) -> None:
    file.rename(file.with_name("7.mp4"))


@second("missing video", "There are no videos of it in")
def _(file: Path, _: Path) -> None:
    file.unlink()


@case("videos, folder that is a link out", RECORDING, "leads out of the data set, to")
def _(folder: Path) -> Path:
    root = recording(folder)
    outside = folder.parent / f"{folder.name}-videos"
    shutil.move(root / "videos", outside)
    (root / "videos").symlink_to(outside)
    return root


def third(name: str, says: str, others: int = 1) -> Callable[[Edit], Edit]:
    """Adds a LeRobotDataset v3.0 whose first video, of two episodes, is edited."""

    def add(edit: Edit) -> Edit:
        def build(folder: Path) -> Path:
            root = lerobot(folder, "libx264", "v3.0")
            edit(root / FILE, folder)
            return root

        case(f"lerobot v3.0, {name}", LEROBOT, says, others)(build)
        return edit

    return add


@third("truncated mp4", f"{CAMERA} at frame 0: file-000.mp4 does not decode")
def _(file: Path, _: Path) -> None:
    file.write_bytes(file.read_bytes()[:600])


@third("mp4 shorter than its episodes", f"{CAMERA} has 2 frames in file-000.mp4; the epi", 2)
def _(file: Path, _: Path) -> None:
    encode(file, np.stack([image(frame) for frame in range(7)]))


@third("mp4 of another resolution", f"{CAMERA} at frame 0 is uint8 (16, 32, 3); allowed: uint8")
def _(file: Path, _: Path) -> None:
    encode(file, np.zeros((13, 16, 32, 3), np.uint8))


@third("text named mp4", f"{CAMERA} at frame 0: file-000.mp4 does not decode (Invalid data")
def _(file: Path, _: Path) -> None:
    file.write_text("a text\n" * 100)


@third("mp4 that is a link out", "leads out of the data set, to", 0)
def _(file: Path, folder: Path) -> None:
    file.unlink()
    file.symlink_to(secret_of(folder))


def entries(name: str, key: str, value: object, says: str, others: int) -> None:
    """Adds a set in whose list of episodes the second entry has another value."""

    def build(folder: Path) -> Path:
        root = lerobot(folder, "libx264", "v3.0")
        rows = pq.read_table(root / EPISODES).to_pylist()
        rows[1][key] = value
        pq.write_table(pa.Table.from_pylist(rows), root / EPISODES)
        return root

    case(f"lerobot v3.0, {name}", LEROBOT, says, others)(build)


START = f"videos/{CAMERA}/from_timestamp"
entries(
    "start beyond the video",
    START,
    1e9,
    f"{CAMERA} has 0 frames in file-000.mp4; the episode has 8.",
    2,
)
entries("start that is not a number", START, float("nan"), f"{CAMERA} begins at nan s of its", 2)
entries("start that is negative", START, -1e300, f"{CAMERA} begins at -1e+300 s of its video", 2)
entries(
    "start that is infinite",
    START,
    float("inf"),
    f"{CAMERA} begins at inf s of its video; allowed",
    2,
)
entries("number of a file that is missing", "data/file_index", 7, "There is no file", 2)
entries("number of a file that is negative", "data/file_index", -1, "There is no file", 2)
entries("length of 2**62", "length", 2**62, "the list of episodes has 46116860184", 2)
entries("negative length", "length", -8, "The data has 8 frames of it, the list of", 2)


entries("start that is missing", START, None, f"{START} is None; allowed: a number", 1)
entries("number of a file that is missing there", "data/file_index", None, "file_index is None", 1)
entries("length that is missing", "length", None, "length is None; allowed: a whole number", 1)
entries("number that is missing", "episode_index", None, "episode_index is None; allowed", 1)


@case("lerobot v3.0, rate of a billion", LEROBOT, "control_hz is 1000000000.0")
def _(folder: Path) -> Path:
    root = lerobot(folder, "libx264", "v3.0")
    file = root / "meta/info.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"fps": 1e9}))
    return root
