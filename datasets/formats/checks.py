"""Checks of foreign data: values of arrays, paths and sizes of files, and errors of libraries.

A data set comes from elsewhere. Its files must lie inside of it and have a bounded size, its
arrays must have plausible values, and every error of a reader becomes a `ForeignDataError`,
whatever the libraries raise on damaged files. Messages name the key, the frame and the
dimension.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_METADATA_BYTES, MOST_NUMBERS
from stringline.datasets.formats.foreign import ForeignDataError

LARGEST_POSITION_M = 10.0
LARGEST_ANGLE = 2.05 * np.pi
SAME_TIME_S = 1e-4
"""Times that differ by less are equal: videos count in ticks of up to 0.1 ms."""


def numbered(key: str, width: int) -> list[str]:
    """Returns names for the numbers of a vector, whose name is `key`."""
    if width > MOST_NUMBERS:
        raise ForeignDataError(f"{key} has {width} numbers per step; allowed: {MOST_NUMBERS}.")
    return [f"{key}_{place}" for place in range(width)]


def numbers(key: str, array: Any, width: int | None = None, names: Sequence[str] = ()) -> Array:
    """Returns a series (T, D) of finite numbers as float64.

    Messages contain `key`, and the names of the D numbers, if given. `width` is D, if known.
    """
    found = np.asarray(array)
    if found.dtype.kind not in "fiu":
        raise ForeignDataError(f"{key} has type {found.dtype}; allowed: floats and integers.")
    if found.ndim != 2 or (width is not None and found.shape[1] != width):
        raise ForeignDataError(
            f"{key} has shape {found.shape}; allowed: (T, {'D' if width is None else width})."
        )
    check_values(key, ~np.isfinite(found), found, names, "every value must be finite")
    return np.asarray(found, np.float64)


def check_values(key: str, wrong: Array, values: Array, names: Sequence[str], allowed: str) -> None:
    """Raises `ForeignDataError` for the first of the values (T, D) that is `wrong` (T, D)."""
    if wrong.any():
        frame, column = (int(index) for index in np.argwhere(wrong)[0])
        which = f"{names[column]!r}" if column < len(names) else f"dimension {column}"
        raise ForeignDataError(
            f"{key} at frame {frame}, {which}, is {values[frame, column]:.6g}; {allowed}."
        )


def joined(series: Mapping[str, Array], *, flat: bool = False) -> tuple[list[str], Array]:
    """Returns the names of the numbers of several series by key, and the numbers (T, D).

    A series (T,) is one number with its name. Only with `flat` may series have further axes, whose
    numbers are in the order of memory.
    """
    names: list[str] = []
    parts: list[Array] = []
    for key, found in series.items():
        if not found.ndim:
            raise ForeignDataError(f"{key} is a single value; allowed: one row per step.")
        if found.ndim > 2 and not flat:
            raise ForeignDataError(f"{key} has shape {found.shape}; allowed: (T,) or (T, D).")
        rows = found.reshape(len(found), int(np.prod(found.shape[1:], dtype=np.int64)))
        rows = rows.astype(np.float64) if rows.dtype.kind == "b" else rows
        own = [key] if found.ndim == 1 else numbered(key, rows.shape[1])
        names += own
        parts.append(numbers(key, rows, len(own)))
    if not parts:
        return [], np.empty((0, 0))
    if len(parts) > 1:
        equal_lengths({key: len(part) for key, part in zip(series, parts, strict=True)})
    return names, np.concatenate(parts, axis=1)


STAMPS = ("timestamp", "timestamps", "time_stamp", "time", "times")
"""Last parts of the names of series with times."""
LARGEST_RATE_ERROR = 0.1
_UNITS_S = (1.0, 1e-3, 1e-6, 1e-9)


def check_rate(key: str, stamps: Array, control_hz: float) -> None:
    """Checks time stamps (T,) or (T, 1), in s, ms, us or ns, against the control rate.

    Other series that are named so, which do not increase at each step, are not checked, and float32
    that is coarser than a hundredth of a step neither.

    Raises:
        ValueError: The median interval is not that of the rate.
    """
    if stamps.size != len(stamps) or len(stamps) < 2 or stamps.dtype.kind not in "fiu":
        return
    signed = stamps.astype(np.int64) if stamps.dtype.kind == "u" else stamps
    intervals = np.diff(signed.reshape(-1)).astype(np.float64)
    coarse = stamps.dtype == np.float32 and np.spacing(np.abs(stamps).max()) > 1e-2 * np.median(
        intervals
    )
    if coarse or not (intervals > 0).all():
        return
    rates = [1.0 / (unit * float(np.median(intervals))) for unit in _UNITS_S]
    rate = min(rates, key=lambda each: abs(np.log(each / control_hz)))
    if abs(rate / control_hz - 1) > LARGEST_RATE_ERROR:
        raise ValueError(
            f"The time stamps {key} have {rate:.4g} steps per second, and format.control_hz is "
            f"{control_hz:g}; allowed: a difference of {100 * LARGEST_RATE_ERROR:.0f} %. Set "
            f"format.control_hz={rate:.3g}."
        )


def equal_lengths(lengths: Mapping[str, int]) -> int:
    """Returns the common number of frames of several series, which must be equal and not 0."""
    (first, steps), *others = lengths.items()
    for key, length in others:
        if length != steps:
            raise ForeignDataError(
                f"{key} has {length} frames, {first} has {steps}; they must be equal."
            )
    if not steps:
        raise ForeignDataError(f"{first} has no frames.")
    return steps


def increasing(key: str, time: Array) -> Array:
    """Checks that times (T,) are finite and increase, and returns them."""
    wrong = ~(np.diff(time) > 0)
    if wrong.any() or not np.isfinite(time).all():
        frame = int(np.argmax(wrong)) + 1 if wrong.any() else 0
        raise ForeignDataError(f"{key} does not increase at frame {frame}.")
    return time


MOST_OFF_RATE = 0.05


def check_times(time: Array, hz: float, stated: str) -> None:
    """Checks that steps at the times (T,) in s are `hz` per second; `stated` names that number.

    Jitter moves the median of the differences, lost steps their mean; another rate moves both.

    Raises:
        ForeignDataError: Both differ from 1 / `hz` by more than a share of `MOST_OFF_RATE`.
    """
    if len(time) < 2:
        return
    differences = np.diff(time)
    found = np.array([np.median(differences), differences.mean()])
    if (np.abs(found * hz - 1) > MOST_OFF_RATE).all():
        raise ForeignDataError(
            f"{stated} is {hz:g}, but the time stamps are {found[0]:.4g} s apart, which is "
            f"{1 / found[0]:.4g} Hz; allowed: a difference of {MOST_OFF_RATE:.0%}. Set the rate of "
            f"the time stamps, format.control_hz={1 / found[0]:.4g}."
        )


def positions(key: str, values: Array) -> Array:
    """Checks that positions (T, 3) are plausible in metres, and returns them."""
    allowed = f"allowed: metres, at most {LARGEST_POSITION_M:g}. Are these millimetres?"
    check_values(key, np.abs(values) > LARGEST_POSITION_M, values, "xyz", allowed)
    return values


def image(key: str, frame: int, array: Array, height: int, width: int) -> Array:
    """Checks that an array is an image (height, width, 3) uint8, and returns it."""
    if array.dtype != np.uint8 or array.shape != (height, width, 3):
        raise ForeignDataError(
            f"{key} at frame {frame} is {array.dtype} {array.shape}; allowed: uint8 "
            f"{(height, width, 3)}."
        )
    return array


def inside(root: Path, path: Path) -> Path:
    """Checks that a path, after its symbolic links, lies in the data set `root`, and returns it."""
    try:
        real = path.resolve()
        special = path.exists() and not (path.is_file() or path.is_dir())
    except (OSError, RuntimeError, ValueError) as error:  # A loop of links, a null character.
        raise ForeignDataError(f"{str(path)!r} cannot be resolved: {error}.") from error
    if not real.is_relative_to(_whole(root)):
        raise ForeignDataError(f"{path} leads out of the data set, to {real}; it is not read.")
    if special:  # Opening a pipe would wait for ever.
        raise ForeignDataError(f"{path} is neither a file nor a folder; it is not read.")
    return path


def _whole(root: Path) -> Path:
    """Returns the folder that contains a data set: the hub's cache has links from `snapshots`."""
    real = root.resolve()
    cache = real.parent.parent
    return cache if real.parent.name == "snapshots" and (cache / "blobs").is_dir() else real


def visible_files(folder: Path, *patterns: str) -> list[Path]:
    """Returns the paths below a folder that match a pattern, sorted, without hidden ones.

    macOS leaves a hidden file `._NAME` beside each file that it copies to another file system.
    """
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    return sorted(path for path in found if not is_hidden(path.relative_to(folder)))


def is_hidden(path: PurePath) -> bool:
    """Returns whether a relative path is that of a hidden file, or leads through such a folder."""
    return any(part.startswith(".") for part in path.parts)


def read_inside(root: Path, path: Path, most: int = MOST_METADATA_BYTES) -> bytes:
    """Reads a file of the data set `root` with at most `most` bytes.

    Raises:
        FileNotFoundError: It does not exist.
        ForeignDataError: It lies elsewhere, or is larger.
    """
    with inside(root, path).open("rb") as file:
        data = file.read(most + 1)
    check_size(path.name, len(data), most)
    return data


def check_size(name: str, size: int, most: int) -> None:
    """Checks a number of bytes; messages begin with `name`."""
    if size > most:
        raise ForeignDataError(f"{name} has {size} bytes or more; allowed: {most}.")


_LONGEST = 500  # Characters of a message, in one line.
_LONGEST_OF_OURS = 1200  # With the error of a library, which may repeat the data.
_log = logging.getLogger(__name__)


def in_brief(error: Exception) -> str:
    """Returns an error for a message; some repeat the data that they complain of."""
    return _cut(repr(error))


_OBJECT = re.compile(r"<([\w.]+) object at 0x[0-9a-fA-F]+>")


def _cut(text: str) -> str:
    """Returns a text in one line of limited length, without addresses of objects in memory."""
    line = " ".join(_OBJECT.sub(r"\1", text).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."


@contextmanager
def blamed_on_data() -> Iterator[None]:
    """Turns any error of a reader into a `ForeignDataError` in one line, with its cause.

    Damaged files make libraries raise errors of all types. Those of this package's checks keep
    their messages, except that long ones are cut; missing packages remain.

    Raises:
        ForeignDataError: The block failed.
    """
    try:
        yield
    except MemoryError as error:
        raise ForeignDataError(
            "It needs more memory than an import may use; allow more for a data set that you "
            "trust, memory_gib=NUMBER."
        ) from error
    except ImportError:
        raise
    except Exception as error:
        # Imported here, so that a reader by itself does not load Hydra.
        from stringline.datasets.command.user_errors import raised_here

        ours = isinstance(error, ValueError) and raised_here(error)
        readable = ours and len(str(error)) <= _LONGEST_OF_OURS
        readable = readable and "\n" not in str(error) and not _OBJECT.search(str(error))
        if isinstance(error, ForeignDataError) and readable:
            raise
        _log.debug("The trace of the error:", exc_info=True)
        if readable:
            raise ForeignDataError(str(error)) from error
        text = _cut(str(error)).rstrip(".")
        raise ForeignDataError(
            f"{text}." if ours else f"It cannot be read ({type(error).__name__}: {text})."
        ) from error
