"""An episode as one compressed file: a zip with a zarr 3 group, which zarr's `ZipStore` reads.

Arrays are divided along time into chunks of some MB and compressed by zstd, which finds the
repetitions in images of a static scene: on simulated RGB-D it was ahead of Blosc with either
shuffle, and of differences between frames. The bytes depend on the episode only.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numcodecs.zstd import Zstd

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.checksums import crc32
from stringline.datasets.store.episode import (
    EpisodeAttributes,
    StoredEpisode,
    entries_of,
    episode_metadata,
)
from stringline.datasets.store.group_metadata import EPISODE_KEY, read_group
from stringline.datasets.store.zarr_layout import ArrayEntry, array_metadata, array_name

LEVEL = 9
CHUNK_BYTES = 32 * 2**20


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
        _read(packed, "zarr.json", name), f"The archived episode {name}", EPISODE_KEY
    )
    return EpisodeAttributes.from_dict(plain), entries_of(plain, name)


def unpack(
    packed: zipfile.ZipFile, name: str, entries: Mapping[str, ArrayEntry]
) -> Iterator[tuple[str, Array]]:
    """Yields the arrays of an archived episode by key."""
    for key, entry in entries.items():
        array = np.empty(entry.shape, np.dtype(entry.dtype).newbyteorder("<"))
        rows = _rows_per_chunk(entry)
        for number in range(_count(entry, rows)):
            data = _read(packed, _chunk_name(key, entry, number), name)
            try:
                chunk = np.frombuffer(Zstd().decode(data), array.dtype).reshape(
                    (rows, *entry.shape[1:]) if entry.shape else ()
                )
            except (RuntimeError, ValueError) as error:
                raise ValueError(
                    f"The archived episode {name}: {key} is damaged ({error})."
                ) from error
            if entry.shape:
                part = array[number * rows : (number + 1) * rows]
                part[...] = chunk[: len(part)]
            else:
                array[...] = chunk
        if crc32(array) != entry.crc32:
            raise ValueError(f"The archived episode {name}: {key} is damaged (checksum).")
        yield key, array


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


def _read(packed: zipfile.ZipFile, member: str, name: str) -> bytes:
    try:
        return packed.read(member)
    except (KeyError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
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
