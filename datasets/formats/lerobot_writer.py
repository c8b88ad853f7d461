"""Writer of LeRobotDataset v3.0: for each episode a parquet file and one video per camera.

`NumericFeatures` describes the numeric features of an export and returns their columns.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import (
    INSTRUCTIONS,
    PER_STEP,
    SERIES,
    Array,
    Camera,
    Contract,
)
from stringline.datasets.formats import exporting, lerobot_tables
from stringline.datasets.formats.foreign import SkippedFields
from stringline.datasets.formats.image_codecs import png
from stringline.datasets.formats.video import check_encoder, write_video
from stringline.datasets.store.episode import INTERVENTIONS, StoredEpisode
from stringline.datasets.store.store import EpisodeStore

STATE = "observation.state"
ACTION = "action"
REWARD = "next.reward"
SUCCESS = "next.success"
DONE = "next.done"
INTERVENTION = (
    "intervention"  # Whether a person leads in place of a policy, as lerobot-rollout writes.
)
INDICES = ("frame_index", "episode_index", "index", "task_index")
RESERVED = (STATE, ACTION, REWARD, SUCCESS, DONE, INTERVENTION, "timestamp", *INDICES)
SAID = (PER_STEP, f"attribute {INSTRUCTIONS}")
Table = dict[str, Array]


@dataclass(frozen=True)
class NumericFeatures:
    """The numeric features that all episodes of an export have.

    Attributes:
        tasks: All instructions.
        reward: Whether all episodes have rewards.
        success: Whether the success of all episodes is known.
        interventions: Whether it is known for all episodes where a person or an expert leads.
        series: Key and type of the arrays (T,) and (T, D) of further features by their names.
    """

    contract: Contract
    tasks: Sequence[str]
    reward: bool
    success: bool
    interventions: bool
    series: Mapping[str, str]

    @classmethod
    def of(cls, episodes: Sequence[StoredEpisode]) -> Self:
        """Returns the features of episodes with one contract."""
        named = {key.removeprefix(SERIES).replace("/", "."): key for key in _series(episodes)}
        return cls(
            episodes[0].attributes.contract,
            list(dict.fromkeys(text for each in episodes for text in tasks_of(each))),
            "reward" in exporting.common_keys(episodes),
            all(each.attributes.success is not None for each in episodes),
            all(each.attributes.interventions is not None for each in episodes),
            {name: key for name, key in named.items() if name not in RESERVED},
        )

    @property
    def held(self) -> set[str]:
        """The keys and attributes of episodes that the features contain."""
        optional = {
            "reward": self.reward,
            "success": self.success,
            f"attribute {INTERVENTIONS}": self.interventions,
        }
        keys = {"action", "joints/position", "instruction", *SAID, *self.series.values()}
        return keys | {name for name, there in optional.items() if there}

    def described(self, example: StoredEpisode) -> dict[str, Any]:
        """Returns the features of `info.json`."""
        names = {ACTION: [dimension.name for dimension in self.contract.action]}
        if self.contract.joints:
            names[STATE] = list(self.contract.joints)
        return {
            key: {
                "dtype": column.dtype.name,
                "shape": list(column.shape[1:]) or [1],
                "names": names.get(key),
            }
            for key, column in self.values(example, 0, 0).items()
        }

    def values(self, episode: StoredEpisode, number: int, first: int) -> Table:
        """Returns the numbers of an episode by feature, (T, D) or (T,).

        `number` is the place of the episode, and `first` that of its first frame in the data set.
        """
        arrays = episode.arrays
        steps = np.arange(episode.steps)
        found: Table = {ACTION: np.ascontiguousarray(arrays["action"], np.float32)}
        if self.contract.joints:
            found[STATE] = np.ascontiguousarray(arrays["joints/position"], np.float32)
        found["timestamp"] = np.asarray(steps / self.contract.control_hz, np.float32)
        found |= {
            "frame_index": steps,
            "episode_index": 0 * steps + number,
            "index": first + steps,
            "task_index": self._task_numbers(episode),
        }
        if self.reward:
            found[REWARD] = np.asarray(arrays["reward"], np.float32)
        if self.success:
            found[SUCCESS] = (steps == steps[-1]) & bool(episode.attributes.success)
        if self.reward or self.success:
            found[DONE] = steps == steps[-1]
        if self.interventions:
            parts = episode.attributes.interventions or []
            led = [(steps >= first) & (steps < last) for first, last in parts]
            found[INTERVENTION] = np.any([np.zeros(len(steps), bool), *led], axis=0)
        return found | {name: np.asarray(arrays[key]) for name, key in self.series.items()}

    def _task_numbers(self, episode: StoredEpisode) -> Array:
        numbers = np.array([self.tasks.index(text) for text in tasks_of(episode)], np.int64)
        if len(numbers) == 1:
            return np.full(episode.steps, numbers[0])
        return numbers[np.asarray(episode.arrays[PER_STEP], np.int64)]

    def columns(self, episode: StoredEpisode, number: int, first: int) -> dict[str, Any]:
        """Returns the columns of the parquet file of an episode, see `values`."""
        arrow = optional_library("pyarrow")
        return {
            key: arrow.FixedSizeListArray.from_arrays(arrow.array(values.ravel()), values.shape[1])
            if values.ndim == 2 and values.shape[1] > 1
            else arrow.array(values.ravel())
            for key, values in self.values(episode, number, first).items()
        }


def tasks_of(episode: StoredEpisode) -> list[str]:
    """Returns the instructions of an episode: one, or those that `PER_STEP` counts."""
    attributes = episode.attributes
    several = attributes.extra.get(INSTRUCTIONS)
    if several and PER_STEP in episode.entries:
        return [str(text) for text in several]
    return [attributes.instruction or attributes.task]


def _series(episodes: Sequence[StoredEpisode]) -> list[str]:
    entries = episodes[0].entries
    return [
        key
        for key in exporting.common_keys(episodes)
        if key.startswith(SERIES) and key != PER_STEP and len(entries[key].shape) <= 2
    ]


Images = Literal["video", "image"]
CHUNK = 1000  # Files in a folder.
MM_PER_M = 1000


class LeRobotWriter:
    """Writes LeRobotDataset v3.0 with joints and actions in the units of the contract.

    Each episode has its own files, which the format allows. Depth becomes single images of 16 bits
    in mm. The geometry of cameras and the poses of grippers are omitted; times become multiples of
    the step.
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
        """Sets the options of the export.

        Args:
            images: video (small, lossy), or image: lossless, about ten times the size.
            codec: Video encoder: libsvtav1 (AV1), libx264 or libx265.
            pixel_format: FFmpeg's name of the pixel format.
            encoder: Options of the encoder; LeRobot's defaults are `g` 2 and `crf` 30.
            cameras: {overhead: top, ...} selects and renames these cameras; if None, all.
        """
        if images not in get_args(Images):
            raise unknown_name("kind of images", images, get_args(Images))
        check_encoder(codec)
        self._images = images
        self._codec = codec
        self._format = pixel_format
        self._encoder = dict(encoder or {"g": "2", "crf": "30"})
        self._cameras = cameras

    def write(self, store: EpisodeStore, path: Path) -> SkippedFields:
        """Writes the data set into a new folder and returns what the format cannot store."""
        episodes = exporting.episodes_of(store)
        contract = episodes[0].attributes.contract
        cameras = {
            f"observation.images.{new}": contract.camera(name)
            for name, new in exporting.chosen_cameras(contract, self._cameras).items()
        }
        numbers = NumericFeatures.of(episodes)
        names = {camera.name: "" for camera in cameras.values()}
        size = exporting.size_of_images(episodes, names, depth=True)
        with exporting.complete(path, size) as root:
            entries: list[dict[str, Any]] = []
            for number, episode in exporting.with_progress(episodes):
                first = entries[-1]["dataset_to_index"] if entries else 0
                entries.append(self._write(root, (number, first, numbers), episode, cameras))
            table = optional_library("pyarrow").Table.from_pylist(entries)
            _write_table(root / "meta/episodes/chunk-000/file-000.parquet", table)
            _write_table(root / "meta/tasks.parquet", _task_table(numbers.tasks))
            _write_json(root / "meta/stats.json", _statistics(episodes, cameras, numbers))
            features = numbers.described(episodes[0])
            features |= self._image_features(cameras, contract.control_hz)
            totals = (len(episodes), entries[-1]["dataset_to_index"], len(numbers.tasks))
            _write_json(root / "meta/info.json", self._info(contract, features, totals))
        return exporting.skipped_fields(episodes, {"rgb", "depth", *numbers.held}, names)

    def _write(
        self,
        root: Path,
        place: tuple[int, int, NumericFeatures],
        episode: StoredEpisode,
        cameras: Mapping[str, Camera],
    ) -> dict[str, Any]:
        """Writes the files of an episode and returns its entry in the list of episodes."""
        number, first, numbers = place
        chunk, file = divmod(number, CHUNK)
        name = f"chunk-{chunk:03d}/file-{file:03d}"
        entry: dict[str, Any] = {"episode_index": number, "tasks": tasks_of(episode)}
        entry |= {"length": episode.steps}
        entry |= {"data/chunk_index": chunk, "data/file_index": file}
        entry |= {"dataset_from_index": first, "dataset_to_index": first + episode.steps}
        columns = numbers.columns(episode, number, first)
        for key, camera in cameras.items():
            if self._images == "image":
                columns[key] = _encoded(episode, "rgb", camera.name)
            else:
                duration_s = self._write_video(root / f"videos/{key}/{name}.mp4", episode, camera)
                entry |= {f"videos/{key}/chunk_index": chunk, f"videos/{key}/file_index": file}
                entry |= {f"videos/{key}/from_timestamp": 0.0}
                entry |= {f"videos/{key}/to_timestamp": duration_s}
            if camera.depth is not None:
                columns[f"{key}_depth"] = _encoded(episode, "depth", camera.name)
        _write_table(root / f"data/{name}.parquet", optional_library("pyarrow").table(columns))
        for key, fields in _statistics([episode], cameras, numbers, number, first).items():
            entry |= {f"stats/{key}/{field}": value for field, value in fields.items()}
        return entry | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}

    def _write_video(self, path: Path, episode: StoredEpisode, camera: Camera) -> float:
        """Writes the images of a camera and returns the duration of the video in s."""
        path.parent.mkdir(parents=True, exist_ok=True)
        hz = episode.attributes.contract.control_hz
        frames = exporting.images_of(episode, "rgb", camera.name)
        write_video(
            path,
            frames,
            fps=hz,
            codec=self._codec,
            pixel_format=self._format,
            options=self._encoder,
        )
        return episode.steps / hz

    def _image_features(self, cameras: Mapping[str, Camera], fps: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        names = {"names": ["height", "width", "channels"]}
        for key, camera in cameras.items():
            size = [camera.height, camera.width]
            found[key] = {"dtype": self._images, "shape": [*size, 3], **names}
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
                depth = {"dtype": "image", "shape": [*size, 1], **names}
                found[f"{key}_depth"] = depth | {"info": {"is_depth_map": True, "depth_unit": "mm"}}
        return found

    def _info(
        self, contract: Contract, features: Mapping[str, Any], totals: tuple[int, int, int]
    ) -> dict[str, Any]:
        hz = contract.control_hz
        file = "chunk-{chunk_index:03d}/file-{file_index:03d}"
        video = f"videos/{{video_key}}/{file}.mp4"
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
            "data_path": f"data/{file}.parquet",
            "video_path": video if self._images == "video" else None,
            "features": features,
        }


def _encoded(episode: StoredEpisode, kind: str, camera: str) -> Any:
    """Returns a column of PNG images; depth in mm."""
    unit = episode.attributes.contract.camera(camera).depth_unit_m * MM_PER_M
    images = exporting.images_of(episode, kind, camera)
    if kind == "depth":
        images = (np.rint(frame * unit).astype(np.uint16) for frame in images)
    arrow = optional_library("pyarrow")
    kinds = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    return arrow.array([{"bytes": png(image), "path": None} for image in images], kinds)


def _statistics(
    episodes: list[StoredEpisode],
    cameras: Mapping[str, Camera],
    numbers: NumericFeatures,
    number: int = 0,
    first: int = 0,
) -> dict[str, Any]:
    """Returns the statistics of each feature over consecutive episodes."""
    starts = first + np.cumsum([0, *(episode.steps for episode in episodes)])
    parts = [numbers.values(e, number + i, int(starts[i])) for i, e in enumerate(episodes)]
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


def _task_table(tasks: Sequence[str]) -> Any:
    """Returns the table that pandas writes for an index of tasks."""
    arrow = optional_library("pyarrow")
    number: dict[str, Any] = {"name": "task_index", "field_name": "task_index"}
    number |= {"pandas_type": "int64", "numpy_type": "int64", "metadata": None}
    index: dict[str, Any] = {"name": None, "field_name": "task"}
    index |= {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    schema: dict[str, Any] = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [number, index],
    }
    schema |= {"pandas_version": "2.0.0"}
    table = arrow.table({"task_index": list(range(len(tasks))), "task": list(tasks)})
    return table.replace_schema_metadata({"pandas": json.dumps(schema)})


def _write_table(path: Path, table: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    optional_library("pyarrow.parquet").write_table(table, path)


def _write_json(path: Path, plain: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(plain, indent=4), encoding="utf-8")
