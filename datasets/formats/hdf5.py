"""Reading HDF5 with error messages for users."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.extra_series import extra_series
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Opens a file for reading; damage found within the block raises `ForeignDataError`."""
    h5py = optional_library("h5py")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ForeignDataError(
            f"{path.name} cannot be read as HDF5; it is truncated or another format ({error})."
        ) from error
    with file:
        try:
            yield file
        except (OSError, RuntimeError, KeyError) as error:  # h5py's errors for damaged structures.
            raise ForeignDataError(f"{path.name} is damaged: {error}.") from error


def dataset(group: Any, key: str) -> Any:
    """Returns a data set below a group."""
    found = group.get(key)
    if found is None or not hasattr(found, "shape"):
        raise ForeignDataError(str(unknown_name("data set", key, keys(group))))
    if not found.shape:
        raise ForeignDataError(f"{key} is empty or a single value; allowed: one row per step.")
    return found


def keys(group: Any) -> list[str]:
    """Returns the names of all data sets below a group."""
    found: list[str] = []
    group.visititems(lambda name, item: found.append(name) if hasattr(item, "shape") else None)
    return found


def others(
    group: Any, used: Collection[str], steps: int
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns the series below a group that are not `used`, see `extra_series`."""
    offered = {key: group[key] for key in keys(group) if key not in used}
    return extra_series(offered, lambda key: rows(offered[key], key), steps)


def texts(group: Any, key: str) -> list[str]:
    """Returns the texts of a data set of one or several, or of an attribute; empty without both."""
    found = group[key][()] if key in group else group.attrs.get(key)
    entries = [] if found is None else np.asarray(found, object).ravel().tolist()
    try:
        return [each.decode() if isinstance(each, bytes) else each for each in entries]
    except UnicodeDecodeError as error:
        raise ForeignDataError(f"{key} is not text: {error}.") from error


def members(group: Any, key: str) -> list[str]:
    """Returns the names in the group `key` below a group; empty if the group does not exist."""
    names = list(group.get(key, ()))
    for name in names:
        if not isinstance(name, str):
            raise ForeignDataError(f"{key} is damaged: it has the name {name!r}.")
    return names


def rows(data: Any, key: str, start: int = 0, stop: int | None = None) -> Array:
    """Reads rows of a data set."""
    try:
        found: Array = data[start:stop]
    except OSError as error:
        raise ForeignDataError(
            f"{key} cannot be read at frames {start} to {stop or len(data)}: {error}."
        ) from error
    return found


def each_row(path: Path, key: str) -> Iterator[tuple[int, Array]]:
    """Yields the rows of a data set with their numbers and reads them chunk by chunk."""
    with opened(path) as file:
        data = dataset(file, key)
        block = data.chunks[0] if data.chunks else 1
        for start in range(0, len(data), block):
            yield from enumerate(rows(data, key, start, start + block), start)
