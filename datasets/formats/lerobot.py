"""Reader of LeRobotDataset v2.0, v2.1 and v3.0: parquet files, with videos or single images.

The instruction of an episode is the task of most of its frames, and a series keeps those of all; a
split of validation episodes holds them out.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.contract.instructions import INSTRUCTIONS, PER_STEP
from stringline.datasets.files.limits import MOST_LINES_BYTES, MOST_SERIES
from stringline.datasets.formats import parquet
from stringline.datasets.formats.checks import (
    image,
    in_brief,
    increasing,
    inside,
    numbers,
    read_inside,
)
from stringline.datasets.formats.droid import lerobot_poses
from stringline.datasets.formats.foreign import (
    UNUSED_IMAGES,
    Described,
    ForeignDataError,
    Frames,
    ImportedEpisode,
    Reference,
    camera_times,
    extra_series,
)
from stringline.datasets.formats.image_codecs import (
    DepthOptions,
    counts,
    decoded,
    depth_counts,
    metres_of_codes,
)
from stringline.datasets.formats.lerobot_tables import (
    FeatureCamera,
    ImageFeature,
    Location,
    cameras_of,
    locations,
    names_of,
    read_info,
)
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays
from stringline.datasets.formats.video import frames_at
from stringline.datasets.loading.sampler import SPLIT, TRAINING, VALIDATION

TASK_INDEX = "task_index"


class Instructions(NamedTuple):
    """The instruction of an episode, and what keeps further ones.

    Attributes:
        text: The instruction of most steps.
        arrays: `PER_STEP` if the instruction changes.
        extra: The instructions by their place, if they change.
        skipped_fields: What the episode does not keep.
    """

    text: str
    arrays: Mapping[str, Array]
    extra: Mapping[str, Any]
    skipped_fields: Mapping[str, str]


def instructions_of(root: Path, tasks: Sequence[str], numbers: Array | None) -> Instructions:
    """Returns the instructions of an episode with the given tasks.

    `numbers` (T,) are the tasks of the steps by their places in the table of tasks, if recorded.
    """
    if len(tasks) < 2:
        return Instructions("".join(tasks), {}, {}, {})
    if numbers is None:
        lost = {"tasks": "tasks after the first one; the frames do not name theirs"}
        return Instructions(tasks[0], {}, {}, lost)
    found, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    known = _task_table(root)
    try:
        texts = [known[int(number)] for number in found]
    except KeyError as error:
        raise ForeignDataError(f"There is no task {error} in the table of tasks.") from error
    text = texts[int(np.argmax(counts))]
    if len(texts) == 1:
        return Instructions(text, {}, {}, {})
    kept = {PER_STEP: np.asarray(places, np.float32).reshape(-1)}
    why = {"changes of the task": f"training uses the longest one; {PER_STEP} keeps all"}
    return Instructions(text, kept, {INSTRUCTIONS: texts}, why)


def _task_table(root: Path) -> dict[int, str]:
    lines = root / "meta" / "tasks.jsonl"
    try:
        if lines.is_file():
            text = read_inside(root, lines, MOST_LINES_BYTES)
            entries = [json.loads(line) for line in text.splitlines() if line.strip()]
            return {int(entry[TASK_INDEX]): str(entry["task"]) for entry in entries}
        path = inside(root, root / "meta" / "tasks.parquet")
        # pandas writes the tasks as an index, which may have no name.
        column = next(name for name in parquet.columns(path) if name != TASK_INDEX)
        plain = parquet.table(path, [TASK_INDEX, column]).to_pydict()
        return dict(zip(plain[TASK_INDEX], map(str, plain[column]), strict=True))
    except ForeignDataError:
        raise
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise ForeignDataError(
            f"The table of tasks in {root / 'meta'} is damaged: {in_brief(error)}."
        ) from error


def split_of(info: Mapping[str, Any], number: int) -> dict[str, str]:
    """Returns the attribute `extra` that says whether an episode is for training or validation."""
    splits = info.get("splits")
    for name, interval in splits.items() if isinstance(splits, Mapping) else ():
        start, _, stop = str(interval).partition(":")
        if start.isdecimal() and stop.isdecimal() and int(start) <= number < int(stop):
            return {SPLIT: TRAINING if name == "train" else VALIDATION}
    return {}


REWARD = "next.reward"
SUCCESS = "next.success"
BOOKKEEPING = (
    "timestamp",
    "frame_index",
    "episode_index",
    "index",
    "task_index",
    "next.done",
    REWARD,
    SUCCESS,
)
COLOURS_AND_ALPHA = 4


class LeRobotReader:
    """Reads LeRobotDatasets."""

    def __init__(
        self,
        layout: VectorLayout,
        *,
        state: str | None = "observation.state",
        action: str = "action",
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
        depth_source: str = "measured",
    ) -> None:
        """Sets the interpretation of the features.

        Args:
            layout: Meaning of the numbers of state and action.
            state: The feature with joint positions, or None.
            action: The feature with absolute joint targets.
            cameras: Name of the camera by feature; None takes all features with their own names.
            depth: Feature of the depth by feature of the colours; None pairs `<name>_depth` with
                `<name>`, {} leaves depth out.
            depth_unit_m: Metres per number of depth in single images; None reads it from the
                feature. Videos of depth always contain it.
            depth_source: Source of the depth: `measured`, `simulated` or `estimated`.
        """
        self._layout = layout
        self._state = state
        self._action = action
        self._cameras = cameras
        self._depth = DepthOptions(depth, depth_unit_m, depth_source)
        self._table: tuple[Path, Any] | None = None

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists a data set."""
        info = read_info(path)
        features = info["features"]
        if len(features) > MOST_SERIES:
            raise ForeignDataError(
                f"info.json has {len(features)} features; allowed: up to {MOST_SERIES}."
            )
        cameras = cameras_of(features, self._cameras, self._depth)
        number = 0
        try:
            for location in locations(path, info):
                file = location.data.relative_to(path).as_posix()
                read = partial(self._read, path, info, cameras, location)
                yield Reference(file, location.number, read)
                number = location.number + 1
        except ForeignDataError as error:  # The entries before the damage are valid.
            yield Reference("meta", number, partial(_fail, str(error)))

    def _read(
        self, root: Path, info: Mapping[str, Any], cameras: list[FeatureCamera], location: Location
    ) -> ImportedEpisode:
        features = info["features"]
        names = [names_of(features, key) if key else [] for key in (self._state, self._action)]
        meaning = self._layout.meaning(*names)
        named = (self._state, self._action, "timestamp", REWARD, SUCCESS)
        wanted = [key for key in named if key and key in features]
        others = self._others(features, cameras)
        start, part = self._rows(location, wanted, [TASK_INDEX, *others])
        columns = {key: parquet.numbers(key, part[key]) for key in wanted}
        time = increasing("timestamp", np.asarray(columns["timestamp"], np.float64).reshape(-1))
        contract = meaning.contract([entry.camera for entry in cameras], float(info["fps"]))
        state = (
            None
            if self._state is None
            else numbers(self._state, columns[self._state], len(names[0]), names[0])
        )
        action = numbers(self._action, columns[self._action], len(names[1]), names[1])
        arrays = {
            "time": time,
            **joint_arrays(meaning, (self._state or "", state), (self._action, action)),
        }
        arrays |= camera_times(contract, time)
        if REWARD in columns:
            arrays["reward"] = np.asarray(columns[REWARD], np.float32).reshape(-1)
        instructions = _instructions(root, location, part)
        further, skipped_fields = _further(part, others)
        poses, invalid_poses = _poses(part, others, cameras)
        return ImportedEpisode(
            contract,
            {**arrays, **instructions.arrays, **further},
            self._camera_frames(cameras, location, start, time, float(info["fps"])),
            instruction=instructions.text,
            success=bool(columns[SUCCESS].any()) if SUCCESS in columns else None,
            extra={**instructions.extra, **split_of(info, location.number)},
            camera_poses=poses,
            skipped_fields={
                **skipped_fields,
                **invalid_poses,
                **instructions.skipped_fields,
                **_alpha(features, cameras),
            },
        )

    def _others(
        self, features: Mapping[str, Any], cameras: list[FeatureCamera]
    ) -> dict[str, Mapping[str, Any]]:
        """Returns the features that are neither state, action, images nor numbers of frames."""
        used = {
            feature.key for entry in cameras for feature in (entry.colour, entry.depth) if feature
        }
        left = sorted({*features} - used - {*BOOKKEEPING, self._state, self._action})
        return {key: features[key] for key in left}

    def _rows(
        self, location: Location, required: list[str], optional: list[str]
    ) -> tuple[int, Any]:
        """Returns the first row of an episode in its file, and a table of its rows."""
        # Successive episodes are in the same file.
        if self._table is None or self._table[0] != location.data:
            offered = set(parquet.columns(location.data))
            columns = ["episode_index", *required, *(key for key in optional if key in offered)]
            self._table = (location.data, parquet.table(location.data, columns))
        table = self._table[1]
        mine = np.flatnonzero(
            parquet.numbers("episode_index", table["episode_index"]) == location.number
        )
        if len(mine) != location.length or (len(mine) and mine[-1] - mine[0] + 1 != len(mine)):
            raise ForeignDataError(
                f"The data has {len(mine)} frames of it, the list of episodes has "
                f"{location.length}."
            )
        if not len(mine):
            raise ForeignDataError("It has no frames.")
        return int(mine[0]), table.slice(int(mine[0]), len(mine))

    def _camera_frames(
        self, cameras: list[FeatureCamera], location: Location, start: int, time: Array, fps: float
    ) -> dict[str, Frames]:
        found: dict[str, Frames] = {}
        for key, (_, begin) in location.videos.items():
            if not 0 <= begin < math.inf:
                raise ForeignDataError(
                    f"{key} begins at {begin:g} s of its video; allowed: 0 and above."
                )
        for entry in cameras:
            for kind, feature in (("rgb", entry.colour), ("depth", entry.depth)):
                if feature is not None:
                    read = (
                        partial(self._video, fps=fps, time=time)
                        if feature.video
                        else partial(self._images, start=start)
                    )
                    found[f"{kind}/{entry.camera.name}"] = partial(read, feature, location)
        return found

    @staticmethod
    def _video(
        feature: ImageFeature, location: Location, *, time: Array, fps: float
    ) -> Iterator[Array]:
        path, start = location.videos[feature.key]
        frames = frames_at(path, feature.key, start + time, fps=fps, single_plane=feature.depth)
        for frame, found in enumerate(frames):
            yield _shaped(
                feature, frame, metres_of_codes(found, feature.info) if feature.depth else found
            )

    @staticmethod
    def _images(feature: ImageFeature, location: Location, *, start: int) -> Iterator[Array]:
        rows = parquet.rows(location.data, feature.key, start, start + location.length)
        for frame, row in enumerate(rows):
            yield _shaped(
                feature, frame, decoded(feature.key, frame, _encoded(feature.key, frame, row))
            )


def _instructions(root: Path, location: Location, part: Any) -> Instructions:
    known = TASK_INDEX in part.column_names
    numbered = parquet.numbers(TASK_INDEX, part[TASK_INDEX]) if known else None
    return instructions_of(root, location.tasks, numbered)


def _further(
    part: Any, features: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns further features of an episode as series, and why others are left out."""
    skipped_fields = {}
    offered = {}
    for key, feature in features.items():
        if feature["dtype"] in ("image", "video"):
            skipped_fields[key] = UNUSED_IMAGES
        elif key not in part.column_names:
            skipped_fields[key] = "no column of the data"
        elif len(feature["shape"]) > 1:
            skipped_fields[key] = "several axes per step"
        else:
            numeric = feature["dtype"] != "string"
            kind = np.dtype(feature["dtype"] if numeric else object)
            offered[key] = Described((len(part), *feature["shape"]), kind)
    found, without_numbers = extra_series(
        offered, lambda key: parquet.numbers(key, part[key]), len(part)
    )
    return found, skipped_fields | without_numbers


def _poses(
    part: Any, features: Mapping[str, Mapping[str, Any]], cameras: list[FeatureCamera]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns the poses of cameras by name, and why others are left out."""
    return lerobot_poses(
        {key: feature for key, feature in features.items() if key in part.column_names},
        {entry.colour.key: entry.camera.name for entry in cameras},
        lambda key: parquet.numbers(key, part[key]),
    )


def _alpha(features: Mapping[str, Any], cameras: list[FeatureCamera]) -> dict[str, str]:
    keys = [entry.colour.key for entry in cameras]
    return {
        f"alpha of {key}": "transparency"
        for key in keys
        if COLOURS_AND_ALPHA in (features[key]["shape"][0], features[key]["shape"][-1])
    }


def _fail(message: str) -> ImportedEpisode:
    raise ForeignDataError(message)


def _shaped(feature: ImageFeature, frame: int, found: Array) -> Array:
    if feature.unit_m is not None:
        size = feature.height, feature.width
        return depth_counts((feature.key, frame), found, size, feature.unit_m)
    return (counts if feature.depth else image)(
        feature.key, frame, found, feature.height, feature.width
    )


def _encoded(key: str, frame: int, row: Any) -> bytes:
    if not row or not row.get("bytes"):
        raise ForeignDataError(f"{key} at frame {frame} is empty.")
    return bytes(row["bytes"])
