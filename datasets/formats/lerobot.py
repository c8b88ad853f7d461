"""Reader of LeRobotDataset v2.0, v2.1 and v3.0: parquet files, with videos or single images.

The instruction of an episode is the task of most of its frames, and a series keeps those of all; a
split of validation episodes holds them out.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.contract.contract import INSTRUCTIONS, PER_STEP, Array
from stringline.datasets.files.limits import MOST_LINES_BYTES, MOST_SERIES
from stringline.datasets.formats import parquet
from stringline.datasets.formats.checks import (
    check_times,
    image,
    in_brief,
    increasing,
    inside,
    numbers,
    read_inside,
)
from stringline.datasets.formats.droid import lerobot_poses
from stringline.datasets.formats.foreign import (
    NO_NUMBERS,
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
    width_of,
)
from stringline.datasets.formats.vector_layout import VectorLayout, joint_arrays
from stringline.datasets.formats.video import frames_at
from stringline.datasets.loading.sampler import SPLIT, TRAINING, VALIDATION
from stringline.datasets.store.episode import INTERVENTIONS

TASK_INDEX = "task_index"
# pandas writes the tasks as an index, which may have no name.
_TASK_COLUMNS = ("task", "__index_level_0__")


class Instructions(NamedTuple):
    """The instruction of an episode, and what keeps further ones.

    Attributes:
        text: The instruction of most steps.
        arrays: `PER_STEP` if the instruction changes.
        extra: The instructions by their place, if they change.
        skipped_fields: What the episode does not keep, or lacks.
    """

    text: str
    arrays: Mapping[str, Array]
    extra: Mapping[str, Any]
    skipped_fields: Mapping[str, str]


def instructions_of(
    known: Mapping[int, str] | None, listed: Sequence[str], numbers: Array | None
) -> Instructions:
    """Returns the instructions of an episode: those of its frames, as lerobot reads them.

    Args:
        known: The table of tasks, if there is one.
        listed: The tasks of the episode in the list of episodes, which count only if the frames
            or the table of tasks name none.
        numbers: (T,) places of the tasks of the frames in the table of tasks, if recorded.

    Raises:
        ForeignDataError: The table of tasks lacks a task, or is missing.
    """
    if known is None or numbers is None:
        return _listed(listed, numbers)
    found, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    try:
        texts = [known[int(number)] for number in found]
    except KeyError as error:
        raise ForeignDataError(f"There is no task {error} in the table of tasks.") from error
    text = texts[int(np.argmax(counts))]
    skipped_fields = {} if text else {"instruction": "its task is an empty text"}
    if listed and {*listed} != {*texts}:
        skipped_fields["tasks of the list of episodes"] = (
            f"they contradict {TASK_INDEX}, which counts, as in lerobot"
        )
    if len(texts) == 1:
        return Instructions(text, {}, {}, skipped_fields)
    kept = {PER_STEP: np.asarray(places, np.float32).reshape(-1)}
    why = {"changes of the task": f"training uses the longest one; {PER_STEP} keeps all"}
    return Instructions(text, kept, {INSTRUCTIONS: texts}, {**skipped_fields, **why})


def _listed(listed: Sequence[str], numbers: Array | None) -> Instructions:
    """Returns the instruction of the list of episodes."""
    if numbers is not None and max(len(listed), len(np.unique(numbers))) > 1:
        raise ForeignDataError(
            f"Its frames have a {TASK_INDEX}, and there is no table of tasks, meta/tasks.jsonl or "
            f"meta/tasks.parquet; the list of episodes has: {', '.join(listed) or 'none'}."
        )
    text = listed[0] if listed else ""
    lost = {} if text else {"instruction": "neither its frames nor the list of episodes name it"}
    if len(listed) > 1:
        lost["tasks"] = "tasks after the first one; the frames do not name theirs"
    return Instructions(text, {}, {}, lost)


def task_table(root: Path) -> dict[int, str] | None:
    """Returns the tasks of a data set by their index; None without a table.

    Raises:
        ForeignDataError: The table is damaged.
    """
    lines = root / "meta" / "tasks.jsonl"
    path = root / "meta" / "tasks.parquet"
    try:
        if lines.is_file():
            text = read_inside(root, lines, MOST_LINES_BYTES)
            entries = [json.loads(line) for line in text.splitlines() if line.strip()]
            return {int(entry[TASK_INDEX]): str(entry["task"]) for entry in entries}
        if not inside(root, path).is_file():
            return None
        offered = [name for name in parquet.columns(path) if name != TASK_INDEX]
        column = next((name for name in _TASK_COLUMNS if name in offered), offered[0])
        plain = parquet.table(path, [TASK_INDEX, column]).to_pydict()
        return dict(zip(plain[TASK_INDEX], map(str, plain[column]), strict=True))
    except ForeignDataError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
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
INTERVENTION = "intervention"
BOOKKEEPING = (
    "timestamp",
    "frame_index",
    "episode_index",
    "index",
    TASK_INDEX,
    "next.done",
    REWARD,
    SUCCESS,
    INTERVENTION,
)
COLOURS_AND_ALPHA = 4


class LeRobotReader:
    """Reads LeRobotDatasets."""

    def __init__(
        self,
        layout: VectorLayout,
        *,
        control_hz: float | None = None,
        state: str | Sequence[str] | None = "observation.state",
        action: str | Sequence[str] = "action",
        cameras: Mapping[str, str] | None = None,
        depth: Mapping[str, str] | None = None,
        depth_unit_m: float | None = None,
        depth_source: str = "measured",
    ) -> None:
        """Sets the interpretation of the features.

        Args:
            layout: Meaning of the numbers of state and action.
            control_hz: Steps per second, which the time stamps must have; None: `fps` of the data
                set.
            state: The feature with joint positions, [FEATURE, ...] one behind the other, or None.
            action: The feature with absolute joint targets, or [FEATURE, ...].
            cameras: {top: overhead, ...} selects and renames these features; None: all; {}: none.
            depth: {top: top_range, ...} pairs features of colours and depth; None: top with
                top_depth; {}: no depth.
            depth_unit_m: Metres per number of depth that LeRobot got, such as 0.0001 for 0.1 mm;
                None: as the data set states, and for integers of videos millimetres, as in LeRobot.
            depth_source: Origin of the depth: measured, simulated or estimated.

        Raises:
            ValueError: An option is invalid.
        """
        if not action:
            raise ValueError(
                f"format.action is {action!r}; allowed: a feature, or [FEATURE, ...], one behind "
                "the other."
            )
        if control_hz is not None:
            POSITIVE.check(**{"format.control_hz": control_hz})
        self._layout = layout
        self._hz = control_hz
        self._state = (state,) if isinstance(state, str) else tuple(state or ())
        self._action = (action,) if isinstance(action, str) else tuple(action)
        self._cameras = cameras
        self._depth = DepthOptions(depth, depth_unit_m, depth_source)
        self._table: tuple[Path, Any] | None = None
        self._tasks: tuple[Path, Mapping[int, str] | None] | None = None

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
        state_names, action_names = (names_of(features, *k) for k in (self._state, self._action))
        meaning = self._layout.meaning(state_names, action_names)
        named = (*self._state, *self._action, "timestamp", REWARD, SUCCESS, INTERVENTION)
        wanted = [key for key in dict.fromkeys(named) if key in features]
        others = self._others(features, cameras)
        series = [key for key, feature in others.items() if _type_of_numbers(feature)]
        start, part = self._rows(location, wanted, [TASK_INDEX, *series])
        columns = {key: parquet.numbers(key, part[key]) for key in wanted}
        time = increasing("timestamp", np.asarray(columns["timestamp"], np.float64).reshape(-1))
        hz = self._rate(time, float(info["fps"]))
        contract = meaning.contract([entry.camera for entry in cameras], hz)
        state = _vector(features, self._state, columns) if self._state else None
        arrays = {
            "time": time,
            **joint_arrays(
                meaning,
                (" + ".join(self._state), state),
                (" + ".join(self._action), _vector(features, self._action, columns)),
            ),
        }
        arrays |= camera_times(contract, time)
        if REWARD in columns:
            arrays["reward"] = np.asarray(columns[REWARD], np.float32).reshape(-1)
        instructions = self._instructions(root, location, part)
        further, skipped_fields = _further(part, others)
        poses, invalid_poses = _poses(part, others, cameras)
        return ImportedEpisode(
            contract,
            {**arrays, **instructions.arrays, **further},
            self._camera_frames(cameras, location, start, time, hz),
            instruction=instructions.text,
            success=bool(columns[SUCCESS].any()) if SUCCESS in columns else None,
            extra={
                **instructions.extra,
                **split_of(info, location.number),
                **_interventions(columns),
            },
            camera_poses=poses,
            skipped_fields={
                **skipped_fields,
                **invalid_poses,
                **instructions.skipped_fields,
                **_alpha(features, cameras),
            },
        )

    def _rate(self, time: Array, fps: float) -> float:
        """Returns the steps per second, which the times (T,) of the steps have, too."""
        if self._hz is None:
            check_times(time, fps, "fps of meta/info.json")
            return fps
        check_times(time, self._hz, "format.control_hz")
        return self._hz

    def _instructions(self, root: Path, location: Location, part: Any) -> Instructions:
        if TASK_INDEX not in part.column_names:
            return instructions_of(None, location.tasks, None)
        if self._tasks is None or self._tasks[0] != root:
            self._tasks = (root, task_table(root))
        numbered = parquet.numbers(TASK_INDEX, part[TASK_INDEX])
        return instructions_of(self._tasks[1], location.tasks, numbered)

    def _others(
        self, features: Mapping[str, Any], cameras: list[FeatureCamera]
    ) -> dict[str, Mapping[str, Any]]:
        """Returns the features that are neither state, action, images nor numbers of frames."""
        used = {
            feature.key for entry in cameras for feature in (entry.colour, entry.depth) if feature
        }
        left = sorted({*features} - used - {*BOOKKEEPING, *self._state, *self._action})
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
        self, cameras: list[FeatureCamera], location: Location, start: int, time: Array, hz: float
    ) -> dict[str, Frames]:
        found: dict[str, Frames] = {}
        for entry in cameras:
            for kind, feature in (("rgb", entry.colour), ("depth", entry.depth)):
                if feature is not None:
                    if feature.video:
                        location.videos[feature.key].check(feature.key, time)
                    read = (
                        partial(self._video, hz=hz, time=time)
                        if feature.video
                        else partial(self._images, start=start)
                    )
                    found[f"{kind}/{entry.camera.name}"] = partial(read, feature, location)
        return found

    @staticmethod
    def _video(
        feature: ImageFeature, location: Location, *, time: Array, hz: float
    ) -> Iterator[Array]:
        clip = location.videos[feature.key]
        frames = frames_at(
            clip.path,
            feature.key,
            clip.start + time,
            fps=hz,
            interval=(clip.start, clip.end),
            single_plane=feature.depth,
        )
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


def _vector(
    features: Mapping[str, Any], keys: Sequence[str], columns: Mapping[str, Array]
) -> Array:
    """Returns the numbers (T, D) of features one behind the other."""
    parts = []
    for key in keys:
        found = columns[key].reshape(len(columns[key]), -1)
        found = found.astype(np.float64) if found.dtype.kind == "b" else found
        parts.append(numbers(key, found, width_of(features, key), names_of(features, key)))
    return np.concatenate(parts, axis=1)


_NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")


def _type_of_numbers(feature: Mapping[str, Any]) -> np.dtype[Any] | None:
    """Returns the type of a feature with numbers; LeRobot has others, such as `language`."""
    name = feature["dtype"]
    return np.dtype(name) if _NUMBERS.fullmatch(name) else None


def _interventions(columns: Mapping[str, Array]) -> dict[str, Any]:
    """Returns the parts in which a person leads in place of a policy, if they are recorded."""
    if INTERVENTION not in columns:
        return {}
    led = np.asarray(columns[INTERVENTION]).reshape(-1).astype(np.int8)
    edges = np.flatnonzero(np.diff(led, prepend=0, append=0))
    return {INTERVENTIONS: edges.reshape(-1, 2).tolist()}


def _further(
    part: Any, features: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns further features of an episode as series, and why others are left out."""
    skipped_fields = {}
    offered = {}
    for key, feature in features.items():
        kind = _type_of_numbers(feature)
        if feature["dtype"] in ("image", "video"):
            skipped_fields[key] = UNUSED_IMAGES
        elif kind is None:
            skipped_fields[key] = NO_NUMBERS
        elif key not in part.column_names:
            skipped_fields[key] = "no column of the data"
        elif len(feature["shape"]) > 1:
            skipped_fields[key] = "several axes per step"
        else:
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
