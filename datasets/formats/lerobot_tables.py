"""The description of a LeRobotDataset, `meta/info.json`, and its tables of episodes and features.

`info.json` contains templates of paths, which are expanded without trust in them. The
statistics of an export are computed here as well.
"""

import json
import math
import re
import reprlib
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, unknown_name
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.files.limits import MOST_LINES_BYTES, MOST_METADATA_BYTES
from stringline.datasets.formats import parquet
from stringline.datasets.formats.checks import (
    SAME_TIME_S,
    check_size,
    in_brief,
    inside,
    numbered,
    read_inside,
    visible_files,
)
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import DepthOptions, check_pixels
from stringline.datasets.loading.statistics import KeyStatistics, statistics_of

SUPPORTED = "v2.0, v2.1 and v3.0"
# As in {episode_index:06d}: widths of at most two digits.
_SPECIFICATION = re.compile(r"(0?[1-9]?[0-9]d?)?")


def read_info(root: Path) -> dict[str, Any]:
    """Reads `meta/info.json`."""
    try:
        info: dict[str, Any] = json.loads(read_inside(root, root / "meta" / "info.json"))
        version = str(info["codebase_version"])
        _ = (info["features"], info["fps"], info["data_path"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"{root} is not a LeRobotDataset: it has no meta/info.json.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{root}/meta/info.json is damaged: {in_brief(error)}.") from error
    if not version.startswith(("v2.", "v3.")):
        raise ValueError(f"{root} is a LeRobotDataset {version}; allowed: {SUPPORTED}.")
    for problem in _problems(info):
        raise ValueError(f"{root}/meta/info.json is damaged: {problem}.")
    return info


def _problems(info: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is wrong with the types of the fields that the reader uses."""
    if info["fps"] not in POSITIVE:
        yield f"fps must be {POSITIVE} (got {info['fps']!r})"
    if info.get("chunks_size", 1) not in COUNT:
        yield f"chunks_size must be {COUNT} (got {info['chunks_size']!r})"
    features = info["features"]
    if not isinstance(features, dict):
        yield f"features is a {type(features).__name__}; allowed: a description by name"
        return
    for key, feature in features.items():
        if not isinstance(feature, dict) or not isinstance(feature.get("dtype"), str):
            yield f"the feature {key!r} has no dtype"
        elif not isinstance(feature.get("shape"), list) or any(
            length not in COUNT for length in feature["shape"]
        ):
            yield f"the feature {key!r} has shape {feature.get('shape')!r}; allowed: {COUNT}"


def path_of(root: Path, info: Mapping[str, Any], name: str, **place: int | str) -> Path:
    """Returns the path by a template of `info.json`, such as `data/chunk-{chunk_index:03d}`.

    Only the given fields are allowed, with widths of at most two digits: `str.format` would read
    attributes, and pad a number to gigabytes. The path must stay in the data set.
    """
    template = info.get(name)
    try:
        parts = list(string.Formatter().parse(template)) if isinstance(template, str) else None
        if parts is None or any(
            field is not None
            and (field not in place or conversion or not _SPECIFICATION.fullmatch(width or ""))
            for _, field, width, conversion in parts
        ):
            raise ValueError("allowed are names and widths, as in {episode_index:06d}")
        assert isinstance(template, str)
        path = root / template.format(**place)
    except (ValueError, TypeError) as error:
        raise ForeignDataError(
            f"{name} of meta/info.json is {reprlib.repr(template)}: {error}. Its fields are "
            f"{', '.join(place)}."
        ) from error
    return inside(root, path)


DEPTH_UNITS: Mapping[str, float] = {"m": 1.0, "mm": 0.001}  # `depth_unit` of LeRobot 0.6.


class Clip(NamedTuple):
    """The part of a video file that belongs to an episode, from `start` to `end` in s."""

    path: Path
    start: float = 0.0
    end: float = math.inf

    def check(self, key: str, time: Array) -> None:
        """Checks that the steps of an episode at the times (T,) in s lie in it.

        Raises:
            ForeignDataError: The interval is empty, or a step lies outside; it would show another
                episode.
        """
        if not 0 <= self.start < self.end:
            raise ForeignDataError(
                f"{key} begins at {self.start:g} s of its video and ends at {self.end:g} s; "
                "allowed: a begin of at least 0, and an end behind it."
            )
        outside = (time < -SAME_TIME_S) | (self.start + time > self.end - SAME_TIME_S)
        if outside.any():
            frame = int(np.argmax(outside))
            raise ForeignDataError(
                f"timestamp at frame {frame} is {time[frame]:.6g} s, outside of the episode in "
                f"{key}, which is the part from {self.start:g} to {self.end:g} s of "
                f"{self.path.name}. Time stamps of each episode must begin at 0."
            )


@dataclass(frozen=True)
class Location:
    """The location of an episode, with the number `episode_index`, and its instructions `tasks`.

    Attributes:
        length: Number of rows.
        data: Parquet file.
        videos: The part of a video by video feature.
    """

    number: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, Clip]


def locations(root: Path, info: Mapping[str, Any]) -> Iterator[Location]:
    """Yields all episodes in order; raises `ForeignDataError` for a damaged list of episodes."""
    videos = [key for key, feature in info["features"].items() if feature["dtype"] == "video"]
    return (_v3 if str(info["codebase_version"]).startswith("v3") else _v2)(root, info, videos)


def _v2(root: Path, info: Mapping[str, Any], videos: list[str]) -> Iterator[Location]:
    for line, text in enumerate(_lines(root, root / "meta" / "episodes.jsonl"), 1):
        try:
            entry = json.loads(text)
            number = int(entry["episode_index"])
            length = int(entry["length"])
            tasks = tuple(map(str, entry.get("tasks", ())))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ForeignDataError(
                f"meta/episodes.jsonl is damaged in line {line}: {in_brief(error)}."
            ) from error
        place = {
            "episode_index": number,
            "episode_chunk": number // int(info.get("chunks_size", 1000)),
        }
        files = {
            key: Clip(path_of(root, info, "video_path", video_key=key, **place)) for key in videos
        }
        yield Location(number, length, tasks, path_of(root, info, "data_path", **place), files)


def _lines(root: Path, path: Path) -> list[bytes]:
    try:
        lines = read_inside(root, path, MOST_LINES_BYTES).splitlines()
    except FileNotFoundError as error:
        raise ForeignDataError(f"There is no {path.name} in {path.parent}.") from error
    for number, line in enumerate(lines, 1):
        check_size(f"{path.name}, line {number},", len(line), MOST_METADATA_BYTES)
    return [line for line in lines if line.strip()]


def _v3(root: Path, info: Mapping[str, Any], videos: list[str]) -> Iterator[Location]:
    files = visible_files(root / "meta" / "episodes", "*/*.parquet")
    if not files:
        raise ForeignDataError(f"There is no list of episodes in {root / 'meta' / 'episodes'}.")
    columns = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    columns += [
        f"videos/{key}/{field}"
        for key in videos
        for field in ("chunk_index", "file_index", "from_timestamp")
    ]
    ends = [f"videos/{key}/to_timestamp" for key in videos]
    for file in files:
        offered = parquet.columns(inside(root, file))
        known = [*columns, *(column for column in ends if column in offered)]
        for row in parquet.dictionaries(file, known):
            _check_entry(file.relative_to(root), row)
            place = {
                "chunk_index": row["data/chunk_index"],
                "file_index": row["data/file_index"],
            }
            yield Location(
                row["episode_index"],
                row["length"],
                tuple(row["tasks"] or ()),
                path_of(root, info, "data_path", **place),
                {key: _video(root, info, key, row) for key in videos},
            )


def _check_entry(file: Path, row: Mapping[str, Any]) -> None:
    """Checks the types in an entry of the list of episodes: it is not empty in any column."""
    for key, value in row.items():
        times = key.endswith("_timestamp")
        if key != "tasks" and not isinstance(value, int | float if times else int):
            kind = "a number" if times else "a whole number"
            raise ForeignDataError(
                f"{file} is damaged: {key} is {reprlib.repr(value)}; allowed: {kind}."
            )


def _video(root: Path, info: Mapping[str, Any], key: str, row: Mapping[str, Any]) -> Clip:
    chunk, file, start = (
        row[f"videos/{key}/{field}"] for field in ("chunk_index", "file_index", "from_timestamp")
    )
    place = {"video_key": key, "chunk_index": chunk, "file_index": file}
    # Without the column, the episode lasts as long as its frames.
    end = row.get(f"videos/{key}/to_timestamp", start + row["length"] / info["fps"])
    return Clip(path_of(root, info, "video_path", **place), float(start), float(end))


Features = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ImageFeature:
    """A feature with images.

    Attributes:
        video: Whether the images are frames of a video, or single images in the parquet file.
        depth: Whether the images are depth.
        info: Description of the video in `info.json`.
        unit_m: Metres per number of depth, for videos after decoding; None stands for LeRobot's
            rule before it wrote the unit: floats are metres, integers millimetres.
    """

    key: str
    video: bool
    height: int
    width: int
    depth: bool
    info: Mapping[str, Any]
    unit_m: float | None = None

    def with_unit(self, options: DepthOptions) -> Self:
        """Returns the feature with the unit of its depth, from the options or its description.

        The decoded numbers of videos are metres if the camera's were in the unit that LeRobot took
        them for: millimetres, or that of the description.

        Raises:
            ValueError: The unit is unknown, or in neither of them.
        """
        stated = self.info.get("depth_unit")
        if stated is not None and str(stated) not in DEPTH_UNITS:
            raise unknown_name(f"unit of {self.key}", str(stated), DEPTH_UNITS)
        by_type = stated is None and self.info.get("is_depth_map")
        if options.unit_m is None and (self.video or by_type):
            return self
        taken = DEPTH_UNITS["mm" if stated is None else str(stated)]
        if self.video:
            return replace(self, unit_m=options.unit_of(self.key, taken) / taken)
        return replace(self, unit_m=options.unit_of(self.key, None if stated is None else taken))

    @property
    def short(self) -> str:
        """The name without the common prefix."""
        return self.key.removeprefix("observation.images.").removeprefix("observation.")


@dataclass(frozen=True)
class FeatureCamera:
    """A camera of the contract and its features."""

    camera: Camera
    colour: ImageFeature
    depth: ImageFeature | None


def image_features(features: Features) -> Iterator[ImageFeature]:
    """Yields the features with images."""
    for key, feature in features.items():
        if feature["dtype"] not in ("video", "image"):
            continue
        shape = list(feature["shape"])
        names = feature.get("names") or ()
        if len(shape) != 3:
            raise ValueError(
                f"The feature {key!r} has images of shape {shape}; allowed: (H, W, C)."
            )
        first = names[0] in ("channel", "channels") if names else shape[0] in (1, 3)
        height, width, channels = (*shape[1:], shape[0]) if first else shape
        check_pixels(f"The feature {key!r}", width, height)
        info = feature.get("info") or feature.get("video_info") or {}
        is_depth = (
            bool(info.get("is_depth_map", info.get("video.is_depth_map", False))) or channels == 1
        )
        yield ImageFeature(key, feature["dtype"] == "video", height, width, is_depth, info)


def cameras_of(
    features: Features,
    chosen: Mapping[str, str] | None,
    options: DepthOptions,
) -> list[FeatureCamera]:
    """Returns the cameras of a data set.

    `chosen` is `cameras` of `LeRobotReader`; names of features may omit `observation.images.`.
    """
    depth = options.series
    images = list(image_features(features))
    by_name = {name: feature for feature in images for name in (feature.key, feature.short)}
    for name in (*(chosen or ()), *(depth or ()), *(depth or {}).values()):
        if name not in by_name:
            raise unknown_name("feature with images", name, [feature.key for feature in images])
    colours = {feature.short: feature.short for feature in images if not feature.depth}
    wanted = colours if chosen is None else chosen
    named = {by_name[name].key: behind for name, behind in (depth or {}).items()}
    found = []
    for name, new in wanted.items():
        colour = by_name[name]
        paired = named.get(colour.key, f"{colour.short}_depth")
        behind = None if depth == {} else by_name.get(paired)
        if behind is not None and (behind.height, behind.width) != (colour.height, colour.width):
            raise ValueError(f"The sizes of {behind.key} and {colour.key} differ.")
        source = options.checked_source if behind else None
        camera = Camera(new, colour.height, colour.width, source, has_geometry=False)
        found.append(FeatureCamera(camera, colour, behind and behind.with_unit(options)))
    used = {entry.depth.key for entry in found if entry.depth}
    lost = [feature.key for feature in images if feature.depth and feature.key not in used]
    if chosen is None and lost and depth != {}:
        raise ValueError(
            f"The depth feature {lost[0]!r} belongs to no camera; set "
            f"format.depth={{COLOUR: {lost[0]}}}."
        )
    return found


def names_of(features: Features, *keys: str) -> list[str]:
    """Returns the names of the numbers of one or several vectors.

    A name that several vectors have, or several groups of one, gets the name of the vector or group
    and a slash in front. Numbers without names are `<key>_<index>`.

    Raises:
        ForeignDataError: A feature does not exist.
    """
    return _unambiguous([(key, _own_names(features, key)) for key in keys])


def width_of(features: Features, key: str) -> int:
    """Returns the number of numbers of a vector per step; LeRobot stores a single one as such."""
    if key not in features:
        raise ForeignDataError(str(unknown_name("feature", key, features)))
    return math.prod(features[key]["shape"])


def _own_names(features: Features, key: str) -> list[str]:
    width = width_of(features, key)
    names = _listed(features[key].get("names"))
    # Other lists name the axes.
    return names if len(names) == width else numbered(key, width)


def _listed(names: Any) -> list[str]:
    """Returns the names of a description: a list, {NAME: PLACE} or {GROUP: names, ...}."""
    if isinstance(names, Mapping):
        places = list(names.values())
        if all(type(place) is int for place in places):
            right = sorted(places) == list(range(len(places)))
            return sorted(names, key=names.__getitem__) if right else []
        return _unambiguous([(str(group), _listed(inner)) for group, inner in names.items()])
    return [str(name) for name in names] if isinstance(names, list) else []


def _unambiguous(groups: Sequence[tuple[str, list[str]]]) -> list[str]:
    plain = [name for _, names in groups for name in names]
    if len({*plain}) == len(plain):
        return plain
    return [f"{group}/{name}" for group, names in groups for name in names]


LARGEST_SAMPLE = 100  # Images per episode in the statistics.
LONGEST_SIDE = 64  # Rows and columns per image in the statistics.
QUANTILE_NAMES = ("q01", "q10", "q50", "q90", "q99")


def of_numbers(parts: list[Array]) -> dict[str, Any]:
    """Returns the statistics of series (T, D) or (T,) over all parts as lists of D numbers."""
    found = statistics_of(lambda: (part.reshape(len(part), -1) for part in parts))
    return _plain(found, found.count, lambda values: values.tolist())


def of_images(parts: list[Array], scale: float) -> dict[str, Any]:
    """Returns the statistics of images (T, H, W) or (T, H, W, C) over a sample of their pixels.

    `scale` multiplies the values; it is 1/255 for colours, as in LeRobot. Each statistic is a list
    of C lists of one list of one number, LeRobot's shape; the count is that of the sampled images.
    """
    channels = parts[0].shape[3] if parts[0].ndim == 4 else 1
    found = statistics_of(partial(_pixels, parts, channels, scale))
    looked = sum(len(part[:: _every(len(part), LARGEST_SAMPLE)]) for part in parts)
    return _plain(found, looked, lambda values: values.reshape(-1, 1, 1).tolist())


def _pixels(parts: list[Array], channels: int, scale: float) -> Iterator[Array]:
    for part in parts:
        rows, columns = (_every(length, LONGEST_SIDE) for length in part.shape[1:3])
        for image in part[:: _every(len(part), LARGEST_SAMPLE)]:
            yield image[::rows, ::columns].reshape(-1, channels) * scale


def _every(length: int, most: int) -> int:
    return -(-length // most)


def _plain(found: KeyStatistics, count: int, shaped: Any) -> dict[str, Any]:
    values = {name: getattr(found, name) for name in ("min", "max", "mean", "std")}
    values |= zip(QUANTILE_NAMES, found.quantiles, strict=True)
    return {**{name: shaped(np.asarray(value)) for name, value in values.items()}, "count": [count]}
