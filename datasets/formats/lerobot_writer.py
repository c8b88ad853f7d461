"""Writing LeRobotDataset v3.0: a parquet file and, per camera, a video for each episode."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.formats import exporting, lerobot_tables
from stringline.datasets.formats.image_codecs import png
from stringline.datasets.formats.libraries import optional_library
from stringline.datasets.formats.video import check_encoder, write_video
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore

Images = Literal["video", "image"]
CHUNK = 1000  # Files in a folder.
STATE = "observation.state"
ACTION = "action"
INDICES = ("frame_index", "episode_index", "index", "task_index")
MM_PER_M = 1000


class LeRobotWriter:
    """Writes LeRobotDataset v3.0 with joints and actions in the contract's units.

    Each episode has files of its own, which the format allows. Depth becomes single images of 16
    bits in mm. There is no place for cameras' geometry and poses of grippers; times become
    multiples of the step.
    """

    def __init__(
        self,
        *,
        images: Images = "video",
        codec: str = "libsvtav1",
        pixel_format: str = "yuv420p",
        encoder: Mapping[str, str] | None = None,
        cameras: Mapping[str, str] | None = None,
    ) -> None:
        """Sets how it is written.

        Args:
            images: `video`, small and with losses, or `image`, exact.
            codec: FFmpeg's name of the encoder.
            pixel_format: FFmpeg's name.
            encoder: Options of the encoder; LeRobot's own are `g` 2 and `crf` 30.
            cameras: Cameras to write, each with the name it gets; None writes all.

        Raises:
            ValueError: There is no such kind of images or encoder.
        """
        if images not in get_args(Images):
            raise unknown_name("kind of images", images, get_args(Images))
        check_encoder(codec)
        self._images = images
        self._codec = codec
        self._format = pixel_format
        self._encoder = dict(encoder or {"g": "2", "crf": "30"})
        self._cameras = cameras

    def write(self, store: EpisodeStore, path: Path) -> None:
        """Writes the data set into a new folder.

        Raises:
            ValueError: The episodes have different contracts, or there is something at `path`.
            NoSpaceError: The disk is full; nothing stays behind.
        """
        episodes = exporting.episodes_of(store)
        contract = episodes[0].attributes.contract
        cameras = {
            f"observation.images.{new}": contract.camera(name)
            for name, new in exporting.chosen_cameras(contract, self._cameras).items()
        }
        exporting.report_left_out(contract, {"depth"})
        tasks = list(dict.fromkeys(_task(episode) for episode in episodes))
        names = {camera.name: "" for camera in cameras.values()}
        with exporting.complete(
            path, exporting.size_of_images(episodes, names, depth=True)
        ) as root:
            entries: list[dict[str, Any]] = []
            for number, episode in exporting.with_progress(episodes):
                first = entries[-1]["dataset_to_index"] if entries else 0
                entries.append(self._write(root, (number, first, tasks), episode, cameras))
            _write_table(root / "meta/episodes/chunk-000/file-000.parquet", entries)
            _write_tasks(root / "meta/tasks.parquet", tasks)
            statistics = _statistics(episodes, cameras, tasks)
            _write_json(root / "meta/stats.json", statistics)
            features = {
                **_number_features(contract),
                **self._image_features(cameras, contract.control_hz),
            }
            totals = (len(episodes), entries[-1]["dataset_to_index"], len(tasks))
            _write_json(root / "meta/info.json", self._info(contract, features, totals))

    def _write(
        self,
        root: Path,
        place: tuple[int, int, list[str]],
        episode: StoredEpisode,
        cameras: Mapping[str, Camera],
    ) -> dict[str, Any]:
        """Writes the files of an episode and returns what the list of episodes says of it."""
        number, first, tasks = place
        chunk, file = divmod(number, CHUNK)
        name = f"chunk-{chunk:03d}/file-{file:03d}"
        hz = episode.attributes.contract.control_hz
        entry: dict[str, Any] = {
            "episode_index": number,
            "tasks": [_task(episode)],
            "length": episode.steps,
        }
        entry |= {"data/chunk_index": chunk, "data/file_index": file}
        entry |= {"dataset_from_index": first, "dataset_to_index": first + episode.steps}
        columns = _columns(episode, number, first, tasks.index(_task(episode)))
        for key, camera in cameras.items():
            if self._images == "image":
                columns[key] = _encoded(episode, "rgb", camera.name)
            else:
                path = root / f"videos/{key}/{name}.mp4"
                path.parent.mkdir(parents=True, exist_ok=True)
                frames = exporting.images_of(episode, "rgb", camera.name)
                write_video(
                    path,
                    frames,
                    fps=hz,
                    codec=self._codec,
                    pixel_format=self._format,
                    options=self._encoder,
                )
                where = {
                    "chunk_index": chunk,
                    "file_index": file,
                    "from_timestamp": 0.0,
                    "to_timestamp": episode.steps / hz,
                }
                entry |= {f"videos/{key}/{field}": value for field, value in where.items()}
            if camera.depth is not None:
                columns[f"{key}_depth"] = _encoded(episode, "depth", camera.name)
        _write_columns(root / f"data/{name}.parquet", columns)
        found = _statistics([episode], cameras, tasks, number, first)
        entry |= {
            f"stats/{key}/{field}": value
            for key, fields in found.items()
            for field, value in fields.items()
        }
        return entry | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}

    def _image_features(self, cameras: Mapping[str, Camera], fps: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, camera in cameras.items():
            size = {"names": ["height", "width", "channels"]}
            found[key] = {"dtype": self._images, "shape": [camera.height, camera.width, 3], **size}
            if self._images == "video":
                found[key]["info"] = {
                    "video.height": camera.height,
                    "video.width": camera.width,
                    "video.codec": self._codec,
                    "video.pix_fmt": self._format,
                    "video.is_depth_map": False,
                    "video.fps": fps,
                    "video.channels": 3,
                    "has_audio": False,
                }
            if camera.depth is not None:
                info = {"is_depth_map": True}
                found[f"{key}_depth"] = {
                    "dtype": "image",
                    "shape": [camera.height, camera.width, 1],
                    **size,
                    "info": info,
                }
        return found

    def _info(
        self, contract: Contract, features: Mapping[str, Any], totals: tuple[int, int, int]
    ) -> dict[str, Any]:
        hz = contract.control_hz
        return {
            "codebase_version": "v3.0",
            "robot_type": contract.embodiment,
            "total_episodes": totals[0],
            "total_frames": totals[1],
            "total_tasks": totals[2],
            "chunks_size": CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": int(hz) if hz == int(hz) else hz,
            "splits": {"train": f"0:{totals[0]}"},
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
            "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
            if self._images == "video"
            else None,
            "features": features,
        }


def _task(episode: StoredEpisode) -> str:
    return episode.attributes.instruction or episode.attributes.task


def _number_features(contract: Contract) -> dict[str, Any]:
    names = [dimension.name for dimension in contract.action]
    found: dict[str, Any] = {ACTION: {"dtype": "float32", "shape": [len(names)], "names": names}}
    if contract.joints:
        found[STATE] = {
            "dtype": "float32",
            "shape": [len(contract.joints)],
            "names": list(contract.joints),
        }
    found["timestamp"] = {"dtype": "float32", "shape": [1], "names": None}
    return found | {key: {"dtype": "int64", "shape": [1], "names": None} for key in INDICES}


def _numbers(episode: StoredEpisode, number: int, first: int, task: int) -> dict[str, Any]:
    """Returns the columns of an episode that are numbers, (T, D) or (T,)."""
    steps = np.arange(episode.steps)
    contract = episode.attributes.contract
    found = {ACTION: exporting.float_rows(episode.arrays["action"])}
    if contract.joints:
        found[STATE] = exporting.float_rows(episode.arrays["joints/position"])
    found["timestamp"] = np.asarray(steps / contract.control_hz, np.float32)
    constants = {
        "frame_index": steps,
        "episode_index": 0 * steps + number,
        "index": first + steps,
        "task_index": 0 * steps + task,
    }
    return found | constants


def _columns(episode: StoredEpisode, number: int, first: int, task: int) -> dict[str, Any]:
    arrow = optional_library("pyarrow")
    return {
        key: arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), values.shape[1])
        if values.ndim == 2 and values.shape[1] > 1
        else arrow.array(values.ravel())
        for key, values in _numbers(episode, number, first, task).items()
    }


def _encoded(episode: StoredEpisode, kind: str, camera: str) -> Any:
    """Returns a column of PNG images; depth in mm."""
    unit = episode.attributes.contract.camera(camera).depth_unit_m * MM_PER_M
    frames = exporting.images_of(episode, kind, camera)
    images = (
        frames if kind == "rgb" else (np.rint(frame * unit).astype(np.uint16) for frame in frames)
    )
    arrow = optional_library("pyarrow")
    kinds = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    return arrow.array([{"bytes": png(image), "path": None} for image in images], kinds)


def _statistics(
    episodes: list[StoredEpisode],
    cameras: Mapping[str, Camera],
    tasks: list[str],
    number: int = 0,
    first: int = 0,
) -> dict[str, Any]:
    """Returns the statistics of each feature over episodes that follow one another."""
    starts = first + np.cumsum([0, *(episode.steps for episode in episodes)])
    parts = [
        _numbers(e, number + i, int(starts[i]), tasks.index(_task(e)))
        for i, e in enumerate(episodes)
    ]
    found = {key: lerobot_tables.of_numbers([part[key] for part in parts]) for key in parts[0]}
    for key, camera in cameras.items():
        for kind, suffix, scale in _kinds(camera):
            images = [episode.arrays[f"{kind}/{camera.name}"] for episode in episodes]
            found[f"{key}{suffix}"] = lerobot_tables.of_images(images, scale)
    return found


def _kinds(camera: Camera) -> Iterator[tuple[str, str, float]]:
    yield "rgb", "", 1 / 255
    if camera.depth is not None:
        yield "depth", "_depth", camera.depth_unit_m * MM_PER_M


def _write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    optional_library("pyarrow.parquet").write_table(
        optional_library("pyarrow").table(dict(columns)), path
    )


def _write_table(path: Path, entries: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    optional_library("pyarrow.parquet").write_table(
        optional_library("pyarrow").Table.from_pylist(entries), path
    )


def _write_tasks(path: Path, tasks: list[str]) -> None:
    """Writes the tasks as pandas would write a table whose index they are."""
    arrow = optional_library("pyarrow")
    index = {
        "name": None,
        "field_name": "task",
        "pandas_type": "unicode",
        "numpy_type": "object",
        "metadata": None,
    }
    number = {
        "name": "task_index",
        "field_name": "task_index",
        "pandas_type": "int64",
        "numpy_type": "int64",
        "metadata": None,
    }
    columns = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [number, index],
        "pandas_version": "2.0.0",
    }
    table = arrow.table({"task_index": list(range(len(tasks))), "task": tasks})
    optional_library("pyarrow.parquet").write_table(
        table.replace_schema_metadata({"pandas": json.dumps(columns)}), path
    )


def _write_json(path: Path, plain: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(plain, indent=4), encoding="utf-8")
