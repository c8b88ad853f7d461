"""An episode as one compressed file: a zip with a zarr 3 group, which zarr's `ZipStore` reads.

Arrays are divided along time into chunks of some MB and compressed by zstd, which finds the
repetitions in images of a static scene: on simulated RGB-D it was ahead of Blosc with either
shuffle, and of differences between frames. The bytes depend on the episode only.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numcodecs.zstd import Zstd

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.checksums import crc32
from stringline.datasets.files.limits import MOST_CHUNK_BYTES, MOST_METADATA_BYTES
from stringline.datasets.files.zip_members import read_member
from stringline.datasets.files.zstd_header import zstd_size
from stringline.datasets.store.episode import (
    EpisodeAttributes,
    StoredEpisode,
    entries_of,
    episode_metadata,
)
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.group_metadata import EPISODE_KEY, read_group
from stringline.datasets.store.zarr_layout import ArrayEntry, array_metadata, array_name

LEVEL = 9
CHUNK_BYTES = 32 * 2**20
_OVERHEAD_BYTES = 2**16  # Of zstd on random bytes.


def pack(episode: StoredEpisode, file: IO[bytes]) -> None:
    """Writes an episode as a zip of a zarr 3 group."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        packed.writestr(_member("zarr.json"), episode_metadata(episode.attributes, episode.entries))
        for key, entry in episode.entries.items():
            array = episode.arrays[key]
            if crc32(array) != entry.crc32:
                raise ValueError(
                    f"Episode {episode.name}: {key} is damaged (checksum); it is not archived."
                )
            rows = _rows_per_chunk(entry)
            packed.writestr(
                _member(f"{array_name(key)}/zarr.json"),
                array_metadata(entry, zstd_level=LEVEL, rows=rows),
            )
            for number, chunk in enumerate(_chunks(array, rows)):
                packed.writestr(_member(_chunk_name(key, entry, number)), Zstd(LEVEL).encode(chunk))


def packed_attributes(
    packed: zipfile.ZipFile, name: str
) -> tuple[EpisodeAttributes, dict[str, ArrayEntry]]:
    """Returns the attributes of an archived episode and its arrays' entries."""
    plain, _ = read_group(
        _read(packed, "zarr.json", name, MOST_METADATA_BYTES),
        f"The archived episode {name}",
        EPISODE_KEY,
    )
    return EpisodeAttributes.from_dict(plain), entries_of(plain, name)


def unpack(
    packed: zipfile.ZipFile, name: str, entries: Mapping[str, ArrayEntry], writer: EpisodeWriter
) -> None:
    """Writes the arrays of an archived episode, one chunk of each in memory at a time."""
    for key, entry in entries.items():
        checksum = 0
        for part in _parts(packed, name, key, entry):
            checksum = crc32(part, checksum)
            if entry.shape and entry.nbytes:
                writer.extend(key, part)
            else:
                writer.put(key, part)
        if checksum != entry.crc32:
            raise ValueError(f"The archived episode {name}: {key} is damaged (checksum).")


def _parts(packed: zipfile.ZipFile, name: str, key: str, entry: ArrayEntry) -> Iterator[Array]:
    """Yields the chunks of an array without the rows that pad the last one."""
    dtype = np.dtype(entry.dtype).newbyteorder("<")
    if not entry.nbytes:
        yield np.empty(entry.shape, dtype)
        return
    rows = _rows_per_chunk(entry)
    shape = (rows, *entry.shape[1:]) if entry.shape else ()
    size = math.prod(shape) * dtype.itemsize
    if size > max(CHUNK_BYTES, MOST_CHUNK_BYTES):
        raise ValueError(
            f"The archived episode {name}: a row of {key} has {size} bytes; allowed: "
            f"{MOST_CHUNK_BYTES}."
        )
    for number in range(_count(entry, rows)):
        data = _read(packed, _chunk_name(key, entry, number), name, 2 * size + _OVERHEAD_BYTES)
        chunk = np.empty(shape, dtype)
        try:
            if zstd_size(data) != size:
                raise ValueError(f"a chunk has {zstd_size(data)} bytes instead of {size}")
            Zstd().decode(data, out=chunk.reshape(-1).view(np.uint8))
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"The archived episode {name}: {key} is damaged ({error}).") from error
        yield chunk[: entry.shape[0] - number * rows] if entry.shape else chunk


def packed_size(episode: StoredEpisode) -> int:
    """Returns the compressed size of an episode in bytes."""
    file = io.BytesIO()
    pack(episode, file)
    return file.tell()


def open_packed(path: Path) -> zipfile.ZipFile:
    """Opens a packed episode."""
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"The archived episode {path.name} is damaged or truncated ({error})."
        ) from error


def _read(packed: zipfile.ZipFile, member: str, name: str, most: int) -> bytes:
    try:
        return read_member(packed, member, most)
    except (KeyError, ValueError, zipfile.BadZipFile, EOFError, RuntimeError, zlib.error) as error:
        raise ValueError(
            f"The archived episode {name}: {member} is missing or damaged ({error})."
        ) from error


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name)  # Without a time stamp (1980).


def _rows_per_chunk(entry: ArrayEntry) -> int:
    if not entry.shape:
        return 1
    row = max(1, entry.nbytes // max(1, entry.shape[0]))
    return max(1, min(entry.shape[0], CHUNK_BYTES // row))


def _count(entry: ArrayEntry, rows: int) -> int:
    return 0 if not entry.nbytes else -(-entry.shape[0] // rows) if entry.shape else 1


def _chunk_name(key: str, entry: ArrayEntry, number: int) -> str:
    places = [str(number), *["0"] * (len(entry.shape) - 1)] if entry.shape else []
    return "/".join((array_name(key), "c", *places))


def _chunks(array: Array, rows: int) -> Iterator[Array]:
    """Yields the chunks of an array; the last one is padded with zeros, as in zarr."""
    if not array.size:
        return
    if not array.ndim:
        yield array.copy()
        return
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        missing = rows - len(part)
        yield (
            np.concatenate([part, np.zeros((missing, *array.shape[1:]), array.dtype)])
            if missing
            else np.array(part)
        )
