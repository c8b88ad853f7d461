"""Layout of arrays on disk: zarr 3 groups, each array one uncompressed chunk.

This module writes the metadata that zarr 3 would write, without the start-up time and threads of
zarr, and with control over every file that has to be synced. A zarr array cannot have children, but
the contract has both `time` and `time/<camera>`; so the key `time/overhead` is stored as the array
`time.overhead`, next to `time`.
"""

import json
import math
import mmap
import os
from collections.abc import Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.small_files import read_start

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
