"""Layout on disk: zarr 3 groups, each array one uncompressed chunk, with checksums of all bytes.

This module writes the metadata that zarr 3 would write, without the start-up time and threads of
zarr, and with control over every file that has to be synced. A zarr array cannot have children, but
the contract has both `time` and `time/<camera>`; so the key `time/overhead` is stored as the array
`time.overhead`, next to `time`. Small files are read without a file object, at half the time.

Checksums of arrays and of their rows are CRC-32 (zlib; near memory speed, no further package).
Version 1 of the format (until November 2026) had no checksums of metadata; its attributes are those
of version 2. Version 2 adds a checksum to the `zarr.json` of every group, which detects any changed
byte. It is an attribute, so that every zarr reads the file. It stands at a fixed position and
covers all bytes of the file, with eight zeros in its own place. The metadata of arrays follows from
the attributes of the group and needs no checksum.
"""

import errno
import json
import math
import mmap
import os
import zlib
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_METADATA_BYTES


def read_start(path: str, size: int) -> bytes:
    """Returns at most `size` bytes from the beginning of a file; a link raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def read_file(path: str, most: int) -> bytes:
    """Returns at most `most` bytes of a file (not a link), in one call if it is small."""
    data = read_start(path, _SMALL_FILE_BYTES)
    return data if len(data) < _SMALL_FILE_BYTES else read_start(path, most)


_SMALL_FILE_BYTES = 64 * 2**10


# The CRC-32 of each row lies beside an array of large rows, so that `verify` can name the frame.
# zarr ignores the file.
ROWS_FILE = "rows.crc32"
_LARGE_ROW = 256


def as_bytes(array: NDArray[Any]) -> memoryview:
    """Returns the memory of a contiguous array as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def crc32(array: NDArray[Any], start: int = 0) -> int:
    """Returns the CRC-32 of a contiguous array, continued from the checksum `start`."""
    return zlib.crc32(as_bytes(array), start)


def crc32_of_rows(array: NDArray[Any]) -> bytes:
    """Returns the CRC-32 of each row, low byte first; nothing for rows below 256 bytes."""
    if array.ndim < 2 or not len(array) or array[0].nbytes < _LARGE_ROW:
        return b""
    return np.array([crc32(row) for row in array], "<u4").tobytes()


DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)

SMALL_BYTES = 16 * 2**10

# A store that comes from elsewhere may claim anything; the products of these fit into 64 bits.
_MOST_AXES = 8
_MOST_SIZE = 2**48


class ArrayEntry(NamedTuple):
    """Shape, type (one of `DTYPES`, stored with the low byte first) and checksum of an array."""

    shape: tuple[int, ...]
    dtype: str
    crc32: int

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Builds an entry from the result of `_asdict`; raises KeyError or TypeError."""
        if plain["dtype"] not in DTYPES:
            raise TypeError(f"unknown type {plain['dtype']!r}")
        shape = tuple(plain["shape"])
        sizes = (*shape, plain["crc32"], math.prod(max(1, size) for size in shape))
        possible = all(type(size) is int and 0 <= size <= _MOST_SIZE for size in sizes)
        if len(shape) > _MOST_AXES or not possible:
            raise TypeError(f"impossible shape {plain['shape']} or checksum {plain['crc32']!r}")
        return cls(shape, plain["dtype"], plain["crc32"])

    @property
    def nbytes(self) -> int:
        """Size of the chunk file in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def array_name(key: str) -> str:
    """Returns the name of the zarr array of a contract key, which must be a valid file name."""
    name = key.replace("/", ".")
    if (
        not name
        or not name.isprintable()
        or name.startswith((".", "__"))
        or "\\" in name
        or "." in key
    ):
        raise ValueError(
            f"{key!r} cannot be an array key; allowed: words joined by '/', without '.' or a "
            "leading '__'."
        )
    return name


@cache
def chunk_parts(key: str, axes: int) -> tuple[str, ...]:
    """Returns the path of the chunk file of an array in its episode, after those of its folders.

    `axes` is the number of axes.
    """
    return tuple(accumulate([array_name(key), "c", *["0"] * axes], "{}/{}".format))


def chunk_name(key: str, axes: int) -> str:
    """Returns the path of the chunk file of an array in its episode, given the number of axes."""
    return chunk_parts(key, axes)[-1]


def chunk_file(episode: Path, key: str, axes: int) -> Path:
    """Returns the chunk file of an array with the given number of axes."""
    return episode / chunk_name(key, axes)


def group_metadata(attributes: dict[str, Any]) -> bytes:
    """Returns the `zarr.json` of a group."""
    return _json({"attributes": attributes, "zarr_format": 3, "node_type": "group"})


def array_metadata(
    entry: ArrayEntry, *, zstd_level: int | None = None, rows: int | None = None
) -> bytes:
    """Returns the `zarr.json` of an array.

    `zstd_level` None means uncompressed chunks. `rows` is the length of a chunk along the first
    axis; None means a single chunk.
    """
    size = np.dtype(entry.dtype).itemsize
    codec: dict[str, Any] = {"name": "bytes"} | (
        {"configuration": {"endian": "little"}} if size > 1 else {}
    )
    codecs = [codec]
    if zstd_level is not None:
        codecs.append({"name": "zstd", "configuration": {"level": zstd_level, "checksum": False}})
    chunk = [
        max(1, size)
        for size in (*((rows,) if rows and entry.shape else entry.shape[:1]), *entry.shape[1:])
    ]
    fill: object = False if entry.dtype == "bool" else 0.0 if entry.dtype.startswith("float") else 0
    return _json(
        {
            "shape": list(entry.shape),
            "data_type": entry.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": codecs,
            "attributes": {},
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }
    )


def _json(plain: dict[str, Any]) -> bytes:
    try:
        return json.dumps(plain, indent=2, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"Attributes must be plain JSON: {error}.") from error


def little_endian(array: Array) -> Array:
    """Returns the array contiguous and with the low byte first."""
    if array.dtype.name not in DTYPES:
        raise ValueError(
            f"Arrays of type {array.dtype} cannot be stored; allowed: {', '.join(DTYPES)}."
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def check_no_links(episode: Path, entries: Mapping[str, ArrayEntry]) -> None:
    """Checks that the chunk files of an episode are in it, not behind symbolic links.

    In a store that comes from elsewhere, a link may lead to any file.
    """
    for key, entry in entries.items():
        for part in chunk_parts(key, len(entry.shape)):
            if os.path.islink(f"{episode}/{part}"):
                raise ValueError(
                    f"Episode {episode.name}: {episode}/{part} is a symbolic link; episodes have "
                    "none."
                )


def map_array(episode: Path, key: str, entry: ArrayEntry, kind: str = "Episode") -> Array:
    """Returns a read-only array: its chunk file mapped into memory, or read if it is small.

    `kind` names the group in messages. The size of the file is checked. A map holds an open file,
    and maps of small arrays of many episodes would exhaust what a process may open; reading them is
    faster as well.
    """
    size = entry.nbytes
    dtype = _little_endian_type(entry.dtype)
    if not size:
        return np.empty(entry.shape, dtype)
    path = f"{episode}/{chunk_name(key, len(entry.shape))}"
    try:
        mapped = read_start(path, size + 1) if size <= SMALL_BYTES else _map(path)
    except (FileNotFoundError, ValueError):
        mapped = b""
    if not mapped:
        raise ValueError(f"{kind} {episode.name}: {key} is missing or empty ({path}).")
    if len(mapped) != size:
        rows = (*entry.shape, 1)[0]
        got = Path(path).stat().st_size
        complete = got * rows // size
        frame = f" from frame {complete} of {rows} on" if complete < rows else ""
        raise ValueError(
            f"{kind} {episode.name}: {key} has {got} bytes instead of {size}; it is damaged{frame}."
        )
    return np.frombuffer(mapped, dtype).reshape(entry.shape)


def _map(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@cache
def _little_endian_type(name: str) -> np.dtype[Any]:
    return np.dtype(name).newbyteorder("<")


FORMAT_VERSION = 2
ROOT_KEY = "stringline_store"
IMAGES_KEY = "stringline_images"
"""The attribute of a store of labelled images; see `stringline.datasets.images.image_store`."""
EPISODE_KEY = "stringline_episode"
CHECKSUM_KEY = "stringline_checksum"
_BEFORE = b'{\n  "attributes": {\n    "' + CHECKSUM_KEY.encode() + b'": "'
_ENDS = b"\n    }"
_EMPTY = "00000000"
_END = len(_BEFORE) + len(_EMPTY)


class DamagedError(ValueError):
    """The bytes of a store or an episode have changed since they were written."""


def checksummed_group(attributes: Mapping[str, Any]) -> bytes:
    """Returns the `zarr.json` of a group with these attributes and the checksum."""
    # The first key keeps its position when the attributes contain an old checksum.
    data = group_metadata({CHECKSUM_KEY: _EMPTY} | dict(attributes) | {CHECKSUM_KEY: _EMPTY})
    return b"".join((_BEFORE, _checksum(data), data[_END:]))


def checksum_matches(data: bytes) -> bool:
    """Returns whether a `zarr.json` contains its own checksum."""
    return data[: len(_BEFORE)] == _BEFORE and data[len(_BEFORE) : _END] == _checksum(data)


def check_version(where: str, version: object) -> None:
    """Checks a format version."""
    if type(version) is not int or version < 1:
        raise ValueError(f"{where} was not written by Stringline: it names no format version.")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{where} has format version {version}; this Stringline reads version "
            f"{FORMAT_VERSION}. Update Stringline."
        )
    if version < FORMAT_VERSION:
        raise ValueError(
            f"{where} has format version {version}, of an unreleased Stringline; this one reads "
            f"version {FORMAT_VERSION}. Record or import the data again."
        )


def read_metadata(group: Path) -> bytes:
    """Returns the `zarr.json` of a store or an episode.

    Raises:
        FileNotFoundError, NotADirectoryError: It does not exist.
        DamagedError: It is a symbolic link, or larger than `MOST_METADATA_BYTES`.
    """
    path = f"{group}/zarr.json"
    try:
        data = read_file(path, MOST_METADATA_BYTES + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedError(f"{path} is a symbolic link; stores have none.") from error
        raise
    if len(data) > MOST_METADATA_BYTES:
        raise DamagedError(f"{path} has more than the allowed {MOST_METADATA_BYTES} bytes.")
    return data


def cut_attribute(data: bytes, name: str) -> tuple[bytes, bytes]:
    """Cuts the mapping that is the value of an attribute out of a checksummed `zarr.json`.

    Returns the file with `null` in the place of the mapping, and the mapping, which is empty if
    there is none. To parse only what is needed takes a fraction of the time. The indentation tells
    where a mapping ends: its lines are deeper, and text in quotes has no line breaks.
    """
    before = b'\n    "%s": ' % name.encode()
    start = data.find(before) + len(before)
    end = data.find(_ENDS, start) + len(_ENDS)
    if start < len(before) or end < len(_ENDS) or not data.startswith(_BEFORE):
        return data, b""
    return b"".join((data[:start], b"null", data[end:])), data[start:end]


def read_group(data: bytes, where: str, key: str, parsed: bytes | None = None) -> dict[str, Any]:
    """Returns the attributes of a store or an episode from its `zarr.json`.

    `where` is its name in messages, `key` the attribute with the version, and `parsed` the file
    without the values that `cut_attribute` has cut out.

    Raises:
        DamagedError: The file has changed since it was written.
        ValueError: The version is another one, or missing.
    """
    try:
        attributes = json.loads((data if parsed is None else parsed).decode())["attributes"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedError(
            f"{where} is damaged: its zarr.json cannot be read ({error!r})."
        ) from error
    if not isinstance(attributes, dict):
        raise DamagedError(f"{where} is damaged: its zarr.json has no attributes.")
    check_version(where, attributes.get(key))
    if not checksum_matches(data):
        raise DamagedError(f"{where} is damaged: the checksum of its zarr.json does not match.")
    return attributes


def _checksum(data: bytes) -> bytes:
    start = zlib.crc32(_EMPTY.encode(), zlib.crc32(data[: len(_BEFORE)]))
    return b"%08x" % zlib.crc32(memoryview(data)[_END:], start)
