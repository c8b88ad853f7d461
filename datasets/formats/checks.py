"""Checks of foreign arrays; their messages name the key, the frame and the dimension."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_NUMBERS
from stringline.datasets.formats.foreign import ForeignDataError

LARGEST_POSITION_M = 10.0
LARGEST_ANGLE = 2.05 * np.pi


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
