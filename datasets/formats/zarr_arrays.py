"""Arrays of zarr format 2 in a folder or a zip file, read without trust in the files.

Everything that decides what is decoded is checked here: names of members, sizes, types and
codecs. zarr itself would look up codecs and filters by the names in the files and run them.

A chunk comes from elsewhere, and so does the description of its codec. Only codecs by the names
in `ALLOWED` run, never filters, and none makes more bytes than the array's metadata promise:
numcodecs would unpickle objects, and allocate whatever the header of a chunk claims.
"""

import bz2
import json
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import WHOLE, unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import (
    MOST_CHUNK_BYTES,
    MOST_DICTIONARY_BYTES,
    MOST_METADATA_BYTES,
    MOST_STEPS,
    read_member,
    zstd_size,
)
from stringline.datasets.formats.checks import inside, read_inside
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import decoded_picture

Decoder = Callable[[bytes, Array], None]


def decoder_of(codec: Any) -> Decoder:
    """Returns the function that decodes a chunk into an array, by the entry `compressor`.

    Raises:
        ForeignDataError: The codec is not one of the allowed ones.
    """
    if codec is None:
        return _plain
    name = codec.get("id") if isinstance(codec, Mapping) else codec
    if not isinstance(name, str) or name not in ALLOWED:
        raise ForeignDataError(str(unknown_name("codec", str(name), ALLOWED)))
    if name in ("imagecodecs_jpeg2k", "imagecodecs_jpegxl"):
        optional_library("imagecodecs")
    return ALLOWED[name]


def _plain(data: bytes, into: Array) -> None:
    _check_length(len(data), into)
    into.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)


def _check_length(length: int, into: Array) -> None:
    if length != into.nbytes:
        raise ForeignDataError(f"a chunk has {length} bytes; allowed: {into.nbytes}")


def _blosc(data: bytes, into: Array) -> None:
    # The header has the decoded size at byte 4 and its own at byte 12; the decoder trusts both.
    _check_length(int.from_bytes(data[4:8], "little"), into)
    if int.from_bytes(data[12:16], "little") != len(data):
        raise ForeignDataError("the length in the header of a chunk is not that of the chunk")
    _numcodecs("Blosc", data, into)


def _lz4(data: bytes, into: Array) -> None:
    _check_length(int.from_bytes(data[:4], "little"), into)
    _numcodecs("LZ4", data, into)


def _zstd(data: bytes, into: Array) -> None:
    _check_length(zstd_size(data), into)
    _numcodecs("Zstd", data, into)


def _numcodecs(name: str, data: bytes, into: Array) -> None:
    codec = getattr(optional_library("numcodecs"), name)()
    codec.decode(data, out=into.reshape(-1).view(np.uint8))


def _zlib(data: bytes, into: Array, *, window: int) -> None:
    _stream(zlib.decompressobj(window).decompress(data, into.nbytes + 1), into)


def _bz2(data: bytes, into: Array) -> None:
    _stream(bz2.BZ2Decompressor().decompress(data, into.nbytes + 1), into)


def _lzma(data: bytes, into: Array) -> None:
    # Of xz and LZMA alone, whatever the metadata say: raw streams name filters of their own.
    stream = lzma.LZMADecompressor(memlimit=2 * MOST_DICTIONARY_BYTES)
    _stream(stream.decompress(data, into.nbytes + 1), into)


def _stream(decoded: bytes, into: Array) -> None:
    if len(decoded) > into.nbytes:
        raise ForeignDataError(f"a chunk decodes to more than the allowed {into.nbytes} bytes")
    _plain(decoded, into)


def _image(data: bytes, into: Array, *, name: str) -> None:
    # With `out` the decoder refuses images of another size before it decodes them.
    found = getattr(optional_library("imagecodecs"), f"{name}_decode")(data, out=into)
    if not np.may_share_memory(found, into):
        raise ForeignDataError("an image does not have the shape of its chunk")


def _picture(data: bytes, into: Array, *, kind: str) -> None:
    found = decoded_picture(data, kind, tuple(length for length in into.shape if length != 1))
    if not np.can_cast(found.dtype, into.dtype, "equiv"):
        raise ForeignDataError(f"an image is {found.dtype}; allowed: {into.dtype}")
    into[...] = found.reshape(into.shape)


ALLOWED: Mapping[str, Decoder] = {
    "blosc": _blosc,
    "bz2": _bz2,
    "gzip": lambda data, into: _zlib(data, into, window=31),
    "imagecodecs_jpeg": lambda data, into: _picture(data, into, kind="JPEG"),
    "imagecodecs_jpeg2k": lambda data, into: _image(data, into, name="jpeg2k"),
    "imagecodecs_jpegxl": lambda data, into: _image(data, into, name="jpegxl"),
    "imagecodecs_png": lambda data, into: _picture(data, into, kind="PNG"),
    "imagecodecs_webp": lambda data, into: _picture(data, into, kind="WEBP"),
    "lz4": _lz4,
    "lzma": _lzma,
    "zlib": lambda data, into: _zlib(data, into, window=15),
    "zstd": _zstd,
}
"""The decoder by the name of a codec: those of zarr 2, and of images."""


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
