"""Archives: compressed copies of a store on a disk or in object storage, and their expansion.

An archive is a folder of files `<episode>.zarr.zip`, one per episode. Each file appears when it is
complete: on a disk by renaming, in object storage by the upload. So both directions can be
interrupted and repeated.

A file is a zip with a zarr 3 group, which zarr's `ZipStore` reads. Arrays are divided along time
into chunks of some MB and compressed by zstd, which finds the repetitions in images of a static
scene: on simulated RGB-D it was ahead of Blosc with either shuffle, and of differences between
frames. The bytes depend on the episode only.
"""

import io
import logging
import math
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem
from numcodecs.zstd import Zstd
from omegaconf import DictConfig

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.atomic import check_space, exclusive, explained_full_disk, sync
from stringline.datasets.files.limits import (
    MOST_CHUNK_BYTES,
    MOST_METADATA_BYTES,
    read_member,
    zstd_size,
)
from stringline.datasets.files.remote_files import explained, file_system
from stringline.datasets.store.episode import (
    EpisodeAttributes,
    StoredEpisode,
    entries_of,
    episode_metadata,
)
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore, for_each_episode, format_size, store_size
from stringline.datasets.store.zarr_layout import (
    EPISODE_KEY,
    ArrayEntry,
    array_metadata,
    array_name,
    crc32,
    read_group,
)

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
    plain = read_group(
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


logger = logging.getLogger(__name__)

SUFFIX = ".zarr.zip"
_FETCHED = ".fetch-"
_PACKED = ".archive-"


@dataclass(frozen=True)
class Remote:
    """A folder in a file system of fsspec; `url` is the address as the user wrote it, or a path."""

    url: str
    files: fsspec.AbstractFileSystem = field(repr=False)
    path: str

    @classmethod
    def at(cls, url: str) -> "Remote":
        """Resolves an address."""
        return cls(url, *file_system(url))

    @property
    def local(self) -> Path | None:
        """The folder if it is on a local disk."""
        return Path(self.path) if isinstance(self.files, LocalFileSystem) else None

    def sizes(self) -> dict[str, int]:
        """Returns the size of each archived episode in bytes by name, sorted."""
        with explained(self.url):
            self.files.invalidate_cache()
            try:
                found = self.files.ls(self.path, detail=True)
            except FileNotFoundError:
                return {}
        names = {
            PurePosixPath(entry["name"]).name: int(entry["size"] or 0)
            for entry in found
            if entry["type"] == "file"
        }
        return {
            name.removesuffix(SUFFIX): names[name]
            for name in sorted(names)
            if name.endswith(SUFFIX) and name[0] != "."
        }

    def put(self, file: Path, name: str) -> None:
        """Uploads a file."""
        with explained(self.url):
            self.files.put_file(str(file), f"{self.path}/{name}{SUFFIX}")

    def get(self, name: str, file: Path) -> None:
        """Downloads a file."""
        with explained(self.url), explained_full_disk(file):
            self.files.get_file(f"{self.path}/{name}{SUFFIX}", str(file))


def estimated_size(store: EpisodeStore) -> int:
    """Estimates the size of the archive of a store in bytes from its first and middle episode."""
    episodes = store.episodes()
    sample = [episodes[index] for index in sorted({0, len(episodes) // 2})] if episodes else []
    share = sum(packed_size(episode) for episode in sample) / max(
        1, sum(episode.nbytes for episode in sample)
    )
    return round(share * sum(episode.nbytes for episode in episodes))


def archive(store: EpisodeStore, url: str, *, workers: int = 2) -> list[str]:
    """Copies the missing episodes of a store to an archive and returns their names.

    `url` is a folder or an address for fsspec; the folder is created if necessary.
    """
    remote = Remote.at(url)
    if remote.local is None:
        return _archive_missing(store, remote, workers)
    remote.local.mkdir(parents=True, exist_ok=True)
    with exclusive(remote.local):
        for left in remote.local.glob(f"{_PACKED}*"):  # Of a command that was killed.
            shutil.rmtree(left)
        return _archive_missing(store, remote, workers)


def _archive_missing(store: EpisodeStore, remote: Remote, workers: int) -> list[str]:
    present = remote.sizes()
    missing = [name for name in store.names() if name not in present]

    def copy(name: str) -> None:
        # On a local disk the file is renamed to its place, otherwise it is uploaded.
        with (
            tempfile.TemporaryDirectory(prefix=_PACKED, dir=remote.local) as folder,
            explained_full_disk(Path(folder)),
        ):
            file = Path(folder) / f"{name}{SUFFIX}"
            with file.open("wb") as opened:
                pack(store.episode(name), opened)
            if remote.local is None:
                remote.put(file, name)
                return
            sync(file)
            os.replace(file, remote.local / file.name)
            sync(remote.local)

    for_each_episode(copy, missing, workers, "archive")
    return missing


def expand(url: str, path: Path, *, workers: int = 2) -> EpisodeStore:
    """Creates the store `path` from the archive at `url`, or adds the missing episodes to it."""
    remote = Remote.at(url)
    if not (present := remote.sizes()):
        raise ValueError(f"There is no archive at {url}: no file there ends in {SUFFIX}.")
    store = EpisodeStore.create(path)
    with exclusive(store.path):
        store.remove_leftovers()
        for left in store.path.glob(f"{_FETCHED}*"):
            shutil.rmtree(left)
        there = set(store.names())
        missing = [name for name in present if name not in there]
        check_space(store.path, sum(present[name] for name in missing))
        for_each_episode(
            lambda name: _expand_one(remote, name, store.path), missing, workers, "expand"
        )
    return store


def _expand_one(remote: Remote, name: str, root: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=_FETCHED, dir=root) as folder:
        file = Path(folder) / "episode.zip"
        if remote.local is None:
            remote.get(name, file)
        else:
            file = remote.local / f"{name}{SUFFIX}"
        with open_packed(file) as packed:
            attributes, entries = packed_attributes(packed, name)
            size = sum(entry.nbytes for entry in entries.values())
            with EpisodeWriter(root, name, attributes, expected_bytes=size) as writer:
                unpack(packed, name, entries, writer)
                writer.commit()


def archive_store(config: DictConfig) -> None:
    """Creates or completes an archive of a store."""
    store = EpisodeStore.open(config.store)
    whole = store_size(store)
    sys.stdout.write(
        f"{store.path}: {len(store)} episodes, {format_size(whole)}; compressed about "
        f"{format_size(estimated_size(store))}.\n"
    )
    added = archive(store, str(config.output), workers=config.workers or os.cpu_count() or 1)
    sizes = Remote.at(str(config.output)).sizes()
    total = sum(sizes[name] for name in store.names())
    share = f", {total / whole:.0%} of the store" if whole else ""
    sys.stdout.write(
        f"{config.output}: {len(added)} episodes added; the archive of the store has "
        f"{format_size(total)}{share}.\n"
    )


def expand_archive(config: DictConfig) -> None:
    """Creates or completes a store from an archive."""
    sizes = Remote.at(str(config.archive)).sizes()
    sys.stdout.write(
        f"{config.archive}: {len(sizes)} episodes, {format_size(sum(sizes.values()))}.\n"
    )
    store = expand(
        str(config.archive), Path(config.output), workers=config.workers or os.cpu_count() or 1
    )
    sys.stdout.write(f"{store.path}: {len(store)} episodes, {format_size(store_size(store))}.\n")
