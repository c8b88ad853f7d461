"""Data sets in the layout of LeRobot, written by pyarrow and PyAV for the tests of the reader."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.video import write_video

CAMERA = "observation.images.cam_high"
DEPTH = "observation.images.cam_high_depth"
FPS = 50
LENGTHS = (5, 8, 4)
DEPTH_CODING = {
    "video.depth_min": 0.01,
    "video.depth_max": 10.0,
    "video.shift": 3.5,
    "video.use_log": True,
}


def encode(path: Path, frames: NDArray[Any], codec: str = "libx264", fps: int = FPS) -> None:
    """Writes frames (T, H, W, 3) uint8, or (T, H, W) uint16 codes of depth, without loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if frames.ndim == 4:
        options = {
            "g": "2",
            "crf": "5",
            "preset": "8" if codec == "libsvtav1" else "fast",
            "svtav1-params": "rc=0",
        }
        write_video(path, frames, fps=fps, codec=codec, pixel_format="yuv420p", options=options)
        return
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx265", rate=FPS, options={"x265-params": "lossless=1:log-level=none"}
        )
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "gray12le"
        for codes in frames:
            container.mux(stream.encode(depth_frame(codes)))
        container.mux(stream.encode())


def depth_frame(codes: NDArray[np.uint16]) -> av.VideoFrame:
    frame = av.VideoFrame(codes.shape[1], codes.shape[0], "gray12le")
    np.frombuffer(memoryview(frame.planes[0]), np.uint16).reshape(len(codes), -1)[
        :, : codes.shape[1]
    ] = codes
    return frame


def depth_codes(metres: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Codes depth as LeRobot 0.6 does: 4095 steps in the logarithm of depth plus a shift."""
    share = (np.log(metres + 3.5) - np.log(0.01 + 3.5)) / (np.log(10 + 3.5) - np.log(0.01 + 3.5))
    return np.rint(share * 4095).clip(0, 4095).astype(np.uint16)


def depth_metres(steps: int) -> NDArray[np.float64]:
    return 0.4 + 0.01 * np.arange(steps)[:, None, None] + np.linspace(0, 3, 16 * 24).reshape(16, 24)


def png(array: NDArray[Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def rows(samples: Any, episode: int, steps: int, first: int, images: bool) -> dict[str, Any]:
    """Returns the columns of an episode."""
    vector = pa.list_(pa.float32(), 14)
    columns = {
        "observation.state": pa.array(list(samples.joints(steps, episode)), vector),
        "action": pa.array(list(samples.joints(steps, episode + 100)), vector),
        "timestamp": pa.array(np.arange(steps, dtype=np.float32) / FPS),
        "frame_index": pa.array(np.arange(steps)),
        "episode_index": pa.array(np.full(steps, episode)),
        "index": pa.array(np.arange(first, first + steps)),
        "task_index": pa.array(np.zeros(steps, np.int64)),
    }
    if images:
        columns[CAMERA] = pa.array([png(samples.image(frame, episode)) for frame in range(steps)])
        columns[DEPTH] = pa.array(
            [png(np.rint(1000 * m).astype(np.uint16)) for m in depth_metres(steps)]
        )
    return columns


def recorded(samples: Any, root: Path, version: str, images: str = "libx264") -> Path:
    """Writes three episodes with one camera; `images` is a codec, `image` or `depth`."""
    (root / "meta").mkdir(parents=True)
    kind = "image" if images == "image" else "video"
    features: dict[str, Any] = {
        "observation.state": {
            "dtype": "float32",
            "shape": [14],
            "names": [joint.name for joint in ALOHA.joints],
        },
        "action": {
            "dtype": "float32",
            "shape": [14],
            "names": {"motors": [joint.name for joint in ALOHA.joints]},
        },
        CAMERA: {"dtype": kind, "shape": [3, 16, 24], "names": ["channels", "height", "width"]},
        **{
            key: {"dtype": "int64", "shape": [1], "names": None}
            for key in ("frame_index", "episode_index", "index", "task_index")
        },
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    if images in ("depth", "image"):
        info = (
            {"is_depth_map": True, **DEPTH_CODING} if images == "depth" else {"is_depth_map": True}
        )
        features[DEPTH] = {
            "dtype": kind,
            "shape": [16, 24, 1],
            "names": ["height", "width", "channels"],
            "info": info,
        }
    firsts = np.cumsum([0, *LENGTHS])
    tables = [
        pa.table(rows(samples, e, steps, int(firsts[e]), images == "image"))
        for e, steps in enumerate(LENGTHS)
    ]
    frames = [
        np.stack([samples.image(frame, e) for frame in range(steps)])
        for e, steps in enumerate(LENGTHS)
    ]
    depths = [depth_codes(depth_metres(steps)) for steps in LENGTHS] if images == "depth" else []
    codec = "libx264" if images == "depth" else images
    info = {"codebase_version": version, "fps": FPS, "features": features, "chunks_size": 1000}
    if version == "v3.0":
        info["data_path"] = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
        info["video_path"] = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
        parquet(
            root / "data/chunk-000/file-000.parquet", pa.concat_tables(tables[:2]), row_group_size=4
        )
        parquet(root / "data/chunk-000/file-001.parquet", tables[2])
        for key, parts in ((CAMERA, frames), (DEPTH, depths)):
            if kind == "video" and parts:
                encode(
                    root / f"videos/{key}/chunk-000/file-000.mp4", np.concatenate(parts[:2]), codec
                )
                encode(root / f"videos/{key}/chunk-000/file-001.mp4", parts[2], codec)
        parquet(
            root / "meta/episodes/chunk-000/file-000.parquet",
            index(firsts, [CAMERA, DEPTH] if depths else [CAMERA]),
        )
    else:
        info["data_path"] = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
        info["video_path"] = (
            "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
        )
        for e, table in enumerate(tables):
            parquet(root / f"data/chunk-000/episode_{e:06d}.parquet", table)
            if kind == "video":
                encode(root / f"videos/chunk-000/{CAMERA}/episode_{e:06d}.mp4", frames[e], codec)
        lines = [
            json.dumps({"episode_index": e, "tasks": ["stack"], "length": n})
            for e, n in enumerate(LENGTHS)
        ]
        (root / "meta/episodes.jsonl").write_text("\n".join(lines) + "\n")
    (root / "meta/info.json").write_text(json.dumps(info))
    return root


def described(root: Path, **changes: Any) -> dict[str, Any]:
    """Changes the description of a data set, and of its features by name; returns the new one."""
    path = root / "meta/info.json"
    info: dict[str, Any] = json.loads(path.read_text())
    features = changes.pop("features", {})
    info |= changes
    for key, feature in features.items():
        info["features"][key] = info["features"].get(key, {}) | feature
    path.write_text(json.dumps(info))
    return info


def with_columns(root: Path, change: Callable[[pa.Table], dict[str, Any]]) -> None:
    """Sets columns of each file of data to what a function of its table returns."""
    for path in sorted(root.glob("data/*/*.parquet")):
        table = pq.read_table(path)
        for key, column in change(table).items():
            if key in table.column_names:
                table = table.drop_columns([key])
            table = table.append_column(key, column)
        parquet(path, table)


def parquet(path: Path, table: pa.Table, **options: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def index(firsts: NDArray[np.int64], videos: list[str]) -> pa.Table:
    entries = []
    for e, steps in enumerate(LENGTHS):
        file, start = (0, firsts[e] / FPS) if e < 2 else (1, 0.0)
        entry = {
            "episode_index": e,
            "tasks": ["stack"],
            "length": steps,
            "data/chunk_index": 0,
            "data/file_index": file,
        }
        for key in videos:
            entry |= {
                f"videos/{key}/chunk_index": 0,
                f"videos/{key}/file_index": file,
                f"videos/{key}/from_timestamp": start,
                f"videos/{key}/to_timestamp": start + steps / FPS,
            }
        entries.append(entry)
    return pa.Table.from_pylist(entries)
