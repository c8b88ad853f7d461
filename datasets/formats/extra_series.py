"""Further numeric series of foreign episodes, and the names of what an import leaves out."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from stringline.datasets.contract.contract import SERIES, Array
from stringline.datasets.files.limits import MOST_NUMBERS, MOST_SERIES
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.store.zarr_layout import array_name

LEAST_SIDE = 16
IMAGES = "images that no camera uses"
NOT_CHOSEN = "no option chooses it"


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
    left_out: dict[str, str] = {}
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
            left_out[name] = reason
    return arrays, left_out


def _unfit(key: str, described: Any) -> str:
    """Returns the reason why a series cannot be stored, or an empty text."""
    try:
        array_name(key)
    except ValueError:
        return "its name cannot be that of an array"
    shape = described.shape
    if described.dtype.kind not in "fiub":
        return "no numbers"
    if not shape:
        return "not a series"
    if len(shape) > 2 and min(shape[1:3]) >= LEAST_SIDE:
        return IMAGES
    return f"more than {MOST_NUMBERS} numbers per step" if prod(shape[1:]) > MOST_NUMBERS else ""


def _floats(values: Array) -> Array:
    """Returns numbers as float32, or float64 where float32 would round them."""
    small = values.dtype.itemsize <= (4 if values.dtype.kind == "f" else 2)
    found = values.astype(np.float32 if small else np.float64)
    if not np.isfinite(found).all():
        raise ForeignDataError("values that are not finite")
    return found
