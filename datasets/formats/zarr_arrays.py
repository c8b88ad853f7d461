"""Arrays of zarr format 2 in a folder or a zip file, read without trust in the files.

Everything that decides what is decoded is checked here: names of members, sizes, types and codecs.
zarr itself would look up codecs and filters by the names in the files and run them.
"""

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import WHOLE, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import (
    MOST_CHUNK_BYTES,
    MOST_METADATA_BYTES,
    MOST_STEPS,
)
from stringline.datasets.files.zip_members import read_member
from stringline.datasets.formats.chunk_codecs import Decoder, decoder_of
from stringline.datasets.formats.confinement import inside, read_inside
from stringline.datasets.formats.foreign import ForeignDataError

DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248])")
AXES = range(1, 7)
_LARGEST_LENGTH = 2**48
# A codec may enlarge random bytes a little.
_OVERHEAD_BYTES = 2**16


class NotNumbersError(ForeignDataError):
    """An array of objects, strings or records."""


class ZarrFiles:
    """The members of a zarr 2 group: files of a folder, or of a zip file."""

    def __init__(self, path: Path) -> None:
        """Opens a folder or a zip file; raises BadZipFile."""
        self.path = path
        self._zip = zipfile.ZipFile(path) if path.is_file() else None

    def read(self, name: str, most: int) -> bytes | None:
        """Returns a member with at most `most` bytes, or None if it does not exist."""
        try:
            if self._zip is None:
                return read_inside(self.path, self.path / name, most)
            return read_member(self._zip, name, most)
        except (FileNotFoundError, NotADirectoryError, KeyError):
            return None

    def exists(self, name: str) -> bool:
        """Returns whether there is a member."""
        if self._zip is None:
            return os.path.exists(f"{self.path}/{name}")
        return name in self._zip.NameToInfo

    def groups(self, group: str) -> list[str]:
        """Returns the names of the arrays in a group."""
        if self._zip is None:
            files = inside(self.path, self.path / group).glob("*/.zarray")
            return sorted(file.parent.name for file in files)
        found = re.compile(rf"{re.escape(group)}/([^/]+)/\.zarray")
        return sorted(match[1] for name in self._zip.namelist() if (match := found.fullmatch(name)))

    def json(self, name: str) -> Mapping[str, Any] | None:
        """Returns a member with a JSON object, or None if it does not exist."""
        data = self.read(name, MOST_METADATA_BYTES)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ForeignDataError(f"{name} is not JSON: {error}.") from error
        if not isinstance(found, dict):
            raise ForeignDataError(f"{name} is not a JSON object.")
        return found


@dataclass(frozen=True)
class ZarrArray:
    """An array in chunks; `name` is its group in `files`.

    Attributes:
        shape: (N, ...), of numbers of the type `dtype`.
        chunks: Shape of a chunk.
        fill_value: (), the values of a chunk that is not stored; None if there are none such.
    """

    files: ZarrFiles
    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    decode: Decoder
    order: str
    separator: str
    fill_value: Array | None
    attributes: Mapping[str, Any]

    @property
    def chunk_bytes(self) -> int:
        """Decoded size of a chunk."""
        return prod(self.chunks) * self.dtype.itemsize

    def member(self, place: Sequence[int]) -> str:
        """Returns the name of a chunk."""
        return f"{self.name}/{self.separator.join(map(str, place))}"

    def places(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        """Yields the places of the chunks that contain the rows from `start` to `stop`."""
        along = [range(start // self.chunks[0], -(-stop // self.chunks[0]))]
        for length, chunk in zip(self.shape[1:], self.chunks[1:], strict=True):
            along.append(range(-(-length // chunk)))
        return _product(along)

    def rows(self, start: int, stop: int) -> Array:
        """Returns the rows from `start` to `stop` in the byte order of this machine."""
        stop = min(stop, self.shape[0])
        size = (stop - start) * prod(self.shape[1:]) * self.dtype.itemsize
        if stop - start > MOST_STEPS or size > MOST_CHUNK_BYTES:
            raise ForeignDataError(
                f"{self.name}: {stop - start} rows have {size} bytes; allowed: {MOST_STEPS} rows, "
                f"{MOST_CHUNK_BYTES} bytes."
            )
        found = np.empty((stop - start, *self.shape[1:]), self.dtype.newbyteorder("="))
        for place in self.places(start, stop):
            lows = [index * chunk for index, chunk in zip(place, self.chunks, strict=True)]
            chunk = self._chunk(place)
            first = max(start, lows[0])
            last = min(stop, lows[0] + self.chunks[0])
            rest = [
                slice(low, min(low + step, length))
                for low, step, length in zip(lows[1:], self.chunks[1:], self.shape[1:], strict=True)
            ]
            part = (
                slice(first - lows[0], last - lows[0]),
                *(slice(s.stop - s.start) for s in rest),
            )
            found[(slice(first - start, last - start), *rest)] = chunk[part]
        return found

    def _chunk(self, place: Sequence[int]) -> Array:
        member = self.member(place)
        size = self.chunk_bytes
        data = self.files.read(member, size + size // 8 + _OVERHEAD_BYTES)
        if data is None and self.fill_value is not None:
            return np.broadcast_to(self.fill_value, self.chunks)
        if data is None:
            raise ForeignDataError(f"{member} is missing.")
        stored = self.chunks if self.order == "C" else self.chunks[::-1]
        chunk = np.empty(stored, self.dtype)
        self.decode(data, chunk)
        return chunk if self.order == "C" else chunk.T


def open_array(files: ZarrFiles, name: str) -> ZarrArray:
    """Opens an array by its metadata.

    Raises:
        KeyError: It does not exist.
        NotNumbersError: It has another type than numbers.
        ForeignDataError: Its codec is not an allowed one, or its chunks are too large.
    """
    plain = files.json(f"{name}/.zarray")
    if plain is None:
        raise KeyError(f"{name}/.zarray")
    if plain.get("zarr_format") != 2:
        raise ForeignDataError(f"its zarr_format is {plain.get('zarr_format')!r}; allowed: 2")
    dtype = plain.get("dtype")
    if not isinstance(dtype, str) or not DTYPE.fullmatch(dtype):
        raise NotNumbersError(
            f"its type is {_brief(dtype)}; allowed: booleans, integers and floats"
        )
    if plain.get("filters"):
        raise ForeignDataError(f"it has filters, {_brief(plain['filters'])}; allowed: none")
    shape, chunks = (_lengths(plain, key) for key in ("shape", "chunks"))
    if len(shape) != len(chunks) or 0 in chunks:
        raise ForeignDataError(f"its chunks are {list(chunks)}, its shape is {list(shape)}")
    size = prod(chunks) * np.dtype(dtype).itemsize
    if size > MOST_CHUNK_BYTES:
        raise ForeignDataError(f"a chunk has {size} bytes; allowed: {MOST_CHUNK_BYTES}")
    order = plain.get("order", "C")
    separator = plain.get("dimension_separator", ".")
    for key, got, allowed in (
        ("order", order, "CF"),
        ("dimension_separator", separator, "./"),
    ):
        if got not in tuple(allowed):
            raise ForeignDataError(str(unknown_name(key, str(got), allowed)))
    decode = decoder_of(plain.get("compressor"))
    fill = _fill_value(plain.get("fill_value"), np.dtype(dtype))
    attributes = files.json(f"{name}/.zattrs") or {}
    return ZarrArray(
        files, name, shape, chunks, np.dtype(dtype), decode, order, separator, fill, attributes
    )


def _fill_value(plain: Any, dtype: np.dtype[Any]) -> Array | None:
    if plain is None:
        return None
    try:
        if isinstance(plain, str) and plain in ("NaN", "Infinity", "-Infinity"):
            return np.asarray(float(plain), dtype)
        if isinstance(plain, bool | int | float):
            return np.asarray(plain, dtype)
    except (ValueError, OverflowError):
        pass
    raise ForeignDataError(f"its fill_value is {_brief(plain)}; allowed: a number of type {dtype}")


def _product(along: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """Does what itertools.product does, which would first list the ranges, however long."""
    if not along:
        yield ()
        return
    for first in along[0]:
        for rest in _product(along[1:]):
            yield first, *rest


def _lengths(plain: Mapping[str, Any], key: str) -> tuple[int, ...]:
    found = plain.get(key)
    if (
        not isinstance(found, list)
        or len(found) not in AXES
        or any(length not in WHOLE or length > _LARGEST_LENGTH for length in found)
    ):
        raise ForeignDataError(
            f"its {key} is {_brief(found)}; allowed: {AXES.start} to {AXES.stop - 1} whole numbers"
        )
    return tuple(found)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
