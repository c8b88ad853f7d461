"""Reading HDF5 without trust in the files, with error messages for users.

A file may refer to other files: by external links, by virtual data sets, and by raw data stored
elsewhere. None of these is followed. A soft link is followed within its file.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import (
    MOST_CHUNK_BYTES,
    MOST_METADATA_BYTES,
    MOST_RATIO,
    MOST_STEPS,
)
from stringline.datasets.formats.foreign import ForeignDataError, extra_series

# HDF5's own filters and LZF, each at most once; others are libraries that HDF5 would load.
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 32000: "lzf"}
_DEEPEST_LINK = 8


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


def item_at(group: Any, key: str, depth: int = 0) -> Any:
    """Returns the group or data set at a path below a group of the same file, or None."""
    h5py = optional_library("h5py")
    item = group.file if key.startswith("/") else group
    for name in filter(None, key.split("/")):
        link = item.get(name, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            return None
        if isinstance(link, h5py.SoftLink):
            if depth == _DEEPEST_LINK:
                raise ForeignDataError(f"{key} is a link to a link, {_DEEPEST_LINK} times.")
            item = item_at(item, link.path, depth + 1)
        elif isinstance(link, h5py.HardLink):
            item = item[name]
        else:
            target = f", to {link.filename}" if isinstance(link, h5py.ExternalLink) else ""
            raise ForeignDataError(f"{key} is a link to another file{target}; it is not read.")
    return item


def dataset(group: Any, key: str) -> Any:
    """Returns a data set below a group, checked before any of its values are read."""
    data = item_at(group, key)
    if not isinstance(data, optional_library("h5py").Dataset):
        raise ForeignDataError(str(unknown_name("data set", key, keys(group))))
    _check_storage(key, data)
    _check_size(key, data)
    if not data.shape:
        raise ForeignDataError(f"{key} is empty or a single value; allowed: one row per step.")
    return data


def _check_storage(key: str, data: Any) -> None:
    """Checks that the values are numbers or bytes in this file, behind known filters."""
    h5py = optional_library("h5py")
    stored = data.id.get_create_plist()
    if stored.get_external_count():
        raise ForeignDataError(f"{key} has its data in another file; it is not read.")
    if stored.get_layout() == h5py.h5d.VIRTUAL:
        raise ForeignDataError(f"{key} is a virtual data set, made of other ones; it is not read.")
    filters = [stored.get_filter(place)[0] for place in range(stored.get_nfilters())]
    for number in filters:
        if number not in _FILTERS or filters.count(number) > 1:
            raise ForeignDataError(
                f"{key} has filter {number}; allowed, each once: {', '.join(_FILTERS.values())}."
            )
    rows = h5py.check_vlen_dtype(data.dtype)
    texts = h5py.check_string_dtype(data.dtype) is not None
    if data.dtype.kind not in "biufS" and not texts and (rows is None or rows.kind not in "iu"):
        raise ForeignDataError(f"{key} has type {data.dtype}; allowed: numbers and bytes.")


def _check_size(key: str, data: Any) -> None:
    """Checks that the file can contain what the data set claims to have."""
    if data.shape is None:
        raise ForeignDataError(f"{key} is empty or a single value; allowed: one row per step.")
    size = prod(data.shape) * data.dtype.itemsize
    row = prod(data.shape[1:]) * data.dtype.itemsize
    chunk = prod(data.chunks or ()) * data.dtype.itemsize
    if data.shape and data.shape[0] > MOST_STEPS:
        raise ForeignDataError(f"{key} has {data.shape[0]} rows; allowed: {MOST_STEPS}.")
    if max(row, chunk) > MOST_CHUNK_BYTES:
        raise ForeignDataError(
            f"{key} has rows of {row} bytes in chunks of {chunk}; allowed: {MOST_CHUNK_BYTES}."
        )
    # Chunks that were never written take no space; small ones are left to the checks of values.
    if size > max(MOST_CHUNK_BYTES, MOST_RATIO * data.id.get_storage_size()):
        raise ForeignDataError(
            f"{key} claims {size} bytes, and the file has {data.id.get_storage_size()} for them. "
            "Was it written to the end?"
        )


def attribute(group: Any, name: str) -> Any:
    """Returns an attribute of a group, or None; it must be a number or a text."""
    if name not in group.attrs:
        return None
    described = group.attrs.get_id(name)
    if described.dtype.kind not in "biufSUO" or prod(described.shape or ()) > MOST_STEPS:
        raise ForeignDataError(f"The attribute {name} has type {described.dtype}.")
    return group.attrs[name]


def keys(group: Any) -> list[str]:
    """Returns the names of all data sets below a group."""
    names: list[str] = []
    group.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return names


def others(
    group: Any, used: Collection[str], steps: int
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns the series below a group that are not `used`, see `extra_series`."""
    offered = {key: item_at(group, key) for key in keys(group) if key not in used}
    return extra_series(offered, lambda key: rows(dataset(group, key), key), steps)


def texts(group: Any, key: str) -> list[str]:
    """Returns the texts of a data set of one or several, or of an attribute; empty without both."""
    item = item_at(group, key)
    if isinstance(item, optional_library("h5py").Dataset):
        _check_storage(key, item)
        _check_size(key, item)
        size = prod(item.shape) * item.dtype.itemsize
        if size > MOST_METADATA_BYTES:
            raise ForeignDataError(f"{key} has {size} bytes; allowed: {MOST_METADATA_BYTES}.")
        found = item[()]
    else:
        found = attribute(group, key)
    entries = [] if found is None else np.asarray(found, object).ravel().tolist()
    try:
        return [each.decode() if isinstance(each, bytes) else str(each) for each in entries]
    except UnicodeDecodeError as error:
        raise ForeignDataError(f"{key} is not text: {error}.") from error


def members(group: Any, key: str) -> list[str]:
    """Returns the names in the group `key` below a group; empty if the group does not exist."""
    item = item_at(group, key)
    # A data set would list its values.
    names = list(item) if isinstance(item, optional_library("h5py").Group) else []
    for name in names:
        if not isinstance(name, str):
            raise ForeignDataError(f"{key} is damaged: it has the name {name!r}.")
    return names


def rows(data: Any, key: str, start: int = 0, stop: int | None = None) -> Array:
    """Reads rows of a data set."""
    stop = len(data) if stop is None else min(stop, len(data))
    size = (stop - start) * prod(data.shape[1:]) * data.dtype.itemsize
    if size > MOST_CHUNK_BYTES:
        raise ForeignDataError(f"{key} has {size} bytes; allowed: {MOST_CHUNK_BYTES}.")
    try:
        values: Array = data[start:stop]
    except OSError as error:
        raise ForeignDataError(
            f"{key} cannot be read at frames {start} to {stop}: {error}."
        ) from error
    return values


def each_row(path: Path, key: str) -> Iterator[tuple[int, Array]]:
    """Yields the rows of a data set with their numbers and reads them chunk by chunk."""
    with opened(path) as file:
        data = dataset(file, key)
        row = max(1, prod(data.shape[1:]) * data.dtype.itemsize)
        block = min(data.chunks[0] if data.chunks else 1, MOST_CHUNK_BYTES // row)
        for start in range(0, len(data), block):
            yield from enumerate(rows(data, key, start, start + block), start)
