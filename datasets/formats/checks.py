"""Checks of foreign arrays, whose messages name the key, the frame and the dimension."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.foreign import ForeignDataError

LARGEST_POSITION_M = 10.0
LARGEST_ANGLE = 2.05 * np.pi


def numbers(key: str, array: Any, width: int | None = None, names: Sequence[str] = ()) -> Array:
    """Returns a series (T, D) as float64.

    Args:
        key: How messages name it.
        array: What the source has.
        width: D, where it is known.
        names: What the D numbers are called.

    Raises:
        ForeignDataError: The shape or type is another, or a value is not finite.
    """
    found = np.asarray(array)
    if found.dtype.kind not in "fiu":
        raise ForeignDataError(f"{key} has type {found.dtype}; allowed: floats and integers.")
    if found.ndim != 2 or (width is not None and found.shape[1] != width):
        raise ForeignDataError(
            f"{key} has shape {found.shape}; allowed: (T, {'D' if width is None else width})."
        )
    refuse(key, ~np.isfinite(found), found, names, "every value must be finite")
    return np.asarray(found, np.float64)


def refuse(key: str, wrong: Array, values: Array, names: Sequence[str], allowed: str) -> None:
    """Refuses values (T, D) of a series where `wrong` (T, D) says so.

    Raises:
        ForeignDataError: One is wrong; the message names the first.
    """
    if wrong.any():
        frame, column = (int(index) for index in np.argwhere(wrong)[0])
        which = f"{names[column]!r}" if column < len(names) else f"dimension {column}"
        raise ForeignDataError(
            f"{key} at frame {frame}, {which}, is {values[frame, column]:.6g}; {allowed}."
        )


def equal_lengths(lengths: Mapping[str, int]) -> int:
    """Returns the number of frames that all series have.

    Raises:
        ForeignDataError: They differ, or there are none.
    """
    (first, steps), *others = lengths.items()
    for key, length in others:
        if length != steps:
            raise ForeignDataError(
                f"{key} has {length} frames, {first} has {steps}; they must be equal."
            )
    if not steps:
        raise ForeignDataError(f"{first} has no frames.")
    return steps


def growing(key: str, time: Array) -> Array:
    """Returns times (T,), which must be finite and grow.

    Raises:
        ForeignDataError: They do not; the message names the frame.
    """
    wrong = ~(np.diff(time) > 0)
    if wrong.any() or not np.isfinite(time).all():
        frame = int(np.argmax(wrong)) + 1 if wrong.any() else 0
        raise ForeignDataError(f"{key} does not grow at frame {frame}.")
    return time


def positions(key: str, values: Array) -> Array:
    """Returns positions (T, 3), which must be in metres.

    Raises:
        ForeignDataError: They are too large for metres.
    """
    allowed = f"positions are in metres, at most {LARGEST_POSITION_M:g}; millimetres?"
    refuse(key, np.abs(values) > LARGEST_POSITION_M, values, "xyz", allowed)
    return values


def image(key: str, frame: int, array: Array, height: int, width: int) -> Array:
    """Returns an image (height, width, 3) uint8.

    Raises:
        ForeignDataError: It is none.
    """
    if array.dtype != np.uint8 or array.shape != (height, width, 3):
        raise ForeignDataError(
            f"{key} at frame {frame} is {array.dtype} {array.shape}; allowed: uint8 "
            f"{(height, width, 3)}."
        )
    return array
