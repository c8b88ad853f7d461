"""Interfaces of readers and writers of foreign formats, and what an import leaves out.

A reader lists references to episodes; each reference reads an `ImportedEpisode`, whose further
numeric series become `series/<name>`. What has no place is reported by its name and the reason.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE, printable, unknown_name
from stringline.datasets.contract.contract import SERIES, Array, Contract, EpisodeArrays
from stringline.datasets.files.limits import MOST_NUMBERS, MOST_SERIES
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.store.zarr_layout import array_name

Frames = Callable[[], Iterator[Array]]
SkippedFields = Counter[tuple[str, str]]
"""Number of episodes that lack a part of their data, by its name and the reason."""


class ForeignDataError(ValueError):
    """A foreign episode that cannot be imported; the message names the key and the frame."""


@dataclass(frozen=True)
class ImportedEpisode:
    """A foreign episode in the terms of the contract; its images are read on demand.

    Attributes:
        arrays: All arrays except images, by key.
        images: For each `rgb/<camera>` and `depth/<camera>` a function that yields its frames, one
            per entry of `time/<camera>`.
        success: Whether the task was achieved, if known.
        extra: Further information as plain JSON.
        skipped_fields: What the data have beyond the episode: the reason why it is left out, by its
            name.
        camera_poses: Poses (4, 4) or (F, 4, 4) to the base frame by the name of a camera, of which
            the data have no intrinsics.
    """

    contract: Contract
    arrays: EpisodeArrays
    images: Mapping[str, Frames]
    instruction: str = ""
    success: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    skipped_fields: Mapping[str, str] = field(default_factory=dict)
    camera_poses: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Reference:
    """The place of a foreign episode in its data set; `read` reads it without its images."""

    file: str
    number: int
    read: Callable[[], ImportedEpisode]

    def __str__(self) -> str:
        """Returns the name of the episode in messages."""
        return f"episode {self.number} ({self.file})"


class Reader(Protocol):
    """A reader of a foreign format."""

    def episodes(self, path: Path) -> Iterator[Reference]:
        """Lists the episodes of a data set."""
        ...


class Writer(Protocol):
    """A writer of a foreign format."""

    def write(self, store: EpisodeStore, path: Path) -> SkippedFields:
        """Writes the episodes of a store to `path`, and returns what the format cannot hold.

        The result appears at once; a full disk leaves nothing there.
        """
        ...


def chosen_cameras(
    cameras: Mapping[str, str] | None, offered: Sequence[str], noun: str = "camera"
) -> Mapping[str, str]:
    """Returns the new name of each chosen camera by its name in the data.

    `cameras` is the option of a reader: None stands for all, {} for none.
    """
    for name in cameras or ():
        if name not in offered:
            raise ForeignDataError(str(unknown_name(noun, name, offered)))
    return {name: name for name in offered} if cameras is None else cameras


def keys_of(option: str, given: object, *, needed: bool = False) -> tuple[str, ...]:
    """Returns the names in an option that takes one name or a list; none for null.

    Raises:
        ValueError: The option is something else, or is `needed` and has no name.
    """
    found = (given,) if isinstance(given, str) else () if given is None else given
    if (
        not isinstance(found, Sequence)
        or not all(isinstance(name, str) for name in found)
        or (needed and not found)
    ):
        null = "" if needed else ", or null"
        raise ValueError(
            f"{option} is {given!r}; allowed: a name, a list such as [NAME, NAME]{null}."
        )
    return tuple(str(name) for name in found)


def named_rate(control_hz: float | None, data: str, advice: str = "") -> float:
    """Returns the control rate, which `data` does not contain.

    Raises:
        ValueError: It is missing or invalid.
    """
    if control_hz is None:
        raise ValueError(
            f"{data} does not contain the control rate; set it, format.control_hz=NUMBER{advice}."
        )
    POSITIVE.check(**{"format.control_hz": control_hz})
    return float(control_hz)


def last_number(name: str, default: int) -> int:
    """Returns the last number in a name."""
    found = re.findall(r"\d+", name)
    return int(found[-1]) if found else default


def table_of(skipped_fields: SkippedFields, episodes: int) -> str:
    """Returns a table of the parts of the data that were left out; empty without any."""
    if not skipped_fields:
        return ""
    width = max(len(printable(name)) for name, _ in skipped_fields)
    lines = [
        f"  {printable(name):<{width}}  {count} of {episodes} episodes: {printable(reason)}\n"
        for (name, reason), count in sorted(skipped_fields.items())
    ]
    return f"Left out of the data:\n{''.join(lines)}"


_NAMED = 3  # Episodes that a line about several names.


def refusals(refused: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each error of an import; episodes with the same error share one.

    Args:
        refused: Errors by the name of the episode. Those that differ in numbers and in the name of
            the file only are the same.
    """
    groups: dict[str, list[str]] = {}
    for name, reason in refused.items():
        groups.setdefault(error_kind(name, reason), []).append(name)
    lines = []
    for names in groups.values():
        shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        count = f"{len(names)} episodes, " if len(names) > 1 else ""
        first = "the first: " if len(names) > 1 else ""
        lines.append(f"Left out: {count}{shown}: {first}{refused[names[0]]}")
    return lines


def error_kind(name: str, reason: str) -> str:
    """Returns the error of an episode without its numbers and without the name of its file."""
    file = name.partition("(")[2].removesuffix(")")
    return re.sub(r"\d+(\.\d+)?", "#", reason.replace(file, "").replace(Path(file).name, ""))


def camera_times(contract: Contract, time: Array) -> dict[str, Array]:
    """Returns `frame/<camera>` and `time/<camera>` of cameras with one image per step (T,)."""
    found: dict[str, Array] = {}
    for camera in contract.cameras:
        found[f"frame/{camera.name}"] = np.arange(len(time), dtype=np.int32)
        found[f"time/{camera.name}"] = np.asarray(time, np.float64)
    return found


LEAST_SIDE = 16
UNUSED_IMAGES = "images that no camera uses"
NOT_CHOSEN = "no option chooses it"
CLOUDS = "point clouds; trainings make theirs of calibrated cameras with depth"
NO_NUMBERS = "no numbers"


class Described(NamedTuple):
    """Shape and type of a series that has not been read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def extra_series(
    offered: Mapping[str, Any], read: Callable[[str], Array], steps: int
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns further series of an episode as `series/<name>`, and why others are left out.

    Args:
        offered: By name, series with `shape` and `dtype`. A dot in a name becomes a slash.
        read: Returns a series by its name; called only for those that fit.
        steps: Steps of the episode.

    Raises:
        ForeignDataError: There are too many.
    """
    if len(offered) > MOST_SERIES:
        raise ForeignDataError(f"it has {len(offered)} series; allowed: up to {MOST_SERIES}.")
    arrays: dict[str, Array] = {}
    skipped_fields: dict[str, str] = {}
    for name, described in sorted(offered.items()):
        key = f"{SERIES}{name.replace('.', '/')}"
        reason = "another series has the same name" if key in arrays else _unfit(key, described)
        if not reason and described.shape[0] != steps:
            reason = "its length is not that of the action"
        if not reason:
            try:
                arrays[key] = _floats(read(name))
            except ForeignDataError as error:
                reason = str(error)
        if reason:
            skipped_fields[name] = reason
    return arrays, skipped_fields


def _unfit(key: str, described: Any) -> str:
    """Returns the reason why a series cannot be stored, or an empty text."""
    try:
        array_name(key)
    except ValueError:
        return "its name cannot be that of an array"
    shape = described.shape
    if described.dtype.kind not in "fiub":
        return NO_NUMBERS
    if not shape:
        return "not a series"
    if len(shape) > 2 and min(shape[1:3]) >= LEAST_SIDE:
        return UNUSED_IMAGES
    if is_cloud(key, shape):
        return CLOUDS
    return f"more than {MOST_NUMBERS} numbers per step" if prod(shape[1:]) > MOST_NUMBERS else ""


def is_cloud(name: str, shape: Sequence[int]) -> bool:
    """Returns whether a series (T, P, 3 or more) has point clouds, such as those of DP3."""
    named = re.search(r"point|cloud|pcd", name, re.IGNORECASE) is not None
    return named and len(shape) == 3 and shape[1] >= LEAST_SIDE and shape[2] >= 3


def _floats(values: Array) -> Array:
    """Returns numbers as float32, or float64 where float32 would round them."""
    if values.dtype.kind not in "fiub":
        raise ForeignDataError(NO_NUMBERS)
    small = values.dtype.itemsize <= (4 if values.dtype.kind == "f" else 2)
    found = values.astype(np.float32 if small else np.float64)
    if not np.isfinite(found).all():
        raise ForeignDataError("values that are not finite")
    return found
