"""Archives: compressed copies of a store on a disk or in object storage, and their expansion.

An archive is a folder of files `<episode>.zarr.zip`, one per episode (`packing.py`). Each file
appears when it is complete: on a disk by renaming, in object storage by the upload. So both
directions can be interrupted and repeated.
"""

import logging
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem

from stringline.datasets.editing.packing import (
    open_packed,
    pack,
    packed_attributes,
    packed_size,
    unpack,
)
from stringline.datasets.files.atomic import check_space, explained_full_disk, sync
from stringline.datasets.files.lock import exclusive
from stringline.datasets.files.remote_files import explained, file_system
from stringline.datasets.store.episode_pool import for_each_episode
from stringline.datasets.store.episode_writer import EpisodeWriter
from stringline.datasets.store.store import EpisodeStore

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
