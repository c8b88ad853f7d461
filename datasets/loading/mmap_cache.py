"""Rows of memory-mapped arrays, or of files where there are too many to keep them all mapped."""

import mmap
import os
import resource
import sys
import threading
import weakref
from collections.abc import Sequence

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.checksums import as_bytes
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.zarr_layout import chunk_name

FILES_FOR_OTHERS = 256


class MappedRows:
    """The rows of an array, read in random order: of a mapped file, only the pages of a row.

    By default the kernel reads ahead around each page that is not in memory, up to megabytes on
    some machines. With a store larger than the memory, each image would be read many times over.
    """

    def __init__(self, array: Array) -> None:
        """Takes an array of `StoredEpisode.arrays`; the advice holds for all uses of its map."""
        self._array = array
        self._file = _mapped_file(array)
        if self._file is not None:
            self._file.madvise(mmap.MADV_RANDOM)

    def copy(self, row: int, target: Array) -> None:
        """Copies a row into an array of its shape and type."""
        view = self._array[row]
        if self._file is not None:
            start = row * view.nbytes
            page = start - start % mmap.PAGESIZE
            # Without this, each page of the row would be read by itself.
            self._file.madvise(mmap.MADV_WILLNEED, page, start + view.nbytes - page)
        target[...] = view


def _mapped_file(array: Array) -> mmap.mmap | None:
    """Returns the map that an array is a view of, if it has one that accepts advice."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else None
    return owner if hasattr(mmap, "MADV_RANDOM") and isinstance(owner, mmap.mmap) else None


class MmapCache:
    """Maps the first arrays that are read, up to a capacity, and keeps them; it is thread-safe.

    Every map holds one open file. If the soft limit of the process on open files is below the
    capacity, the limit is raised as far as possible, and all caches of the process share what it
    allows. Rows of all other arrays are read from their files, which are closed at once: in the
    random order of a training, to map an array for one row takes twice the time.
    """

    def __init__(self, episodes: Sequence[StoredEpisode], capacity: int = 4096) -> None:
        """Creates an empty cache of at most `capacity` maps; `copy_row` indexes the episodes."""
        self._episodes = episodes
        self._folders = [os.fspath(episode.path) for episode in episodes]
        self._allowed = max(1, _allowed_files(capacity))
        self.capacity = max(1, min(capacity, self._allowed))
        self._maps: dict[tuple[int, str], MappedRows] = {}
        self._full = False
        with _keeping:
            _caches.add(self)

    def __len__(self) -> int:
        return len(self._maps)

    def copy_row(self, episode: int, key: str, row: int, target: Array) -> None:
        """Copies a row of an array of an episode, of the type of `target`, into that."""
        if (mapped := self._maps.get((episode, key))) is None:
            if self._full and self._read_row(episode, key, row, target):
                return
            mapped = MappedRows(self._episodes[episode].arrays[key])
            self._keep((episode, key), mapped)
        mapped.copy(row, target)

    def _keep(self, place: tuple[int, str], mapped: MappedRows) -> None:
        with _keeping:
            kept = sum(map(len, _caches))
            self._full = len(self._maps) >= self.capacity or kept >= self._allowed
            if not self._full:
                self._maps[place] = mapped

    def _read_row(self, episode: int, key: str, row: int, target: Array) -> bool:
        """Reads a row from its file, if the file is in its place and has the row."""
        if sys.byteorder != "little":  # The files are.
            return False
        path = f"{self._folders[episode]}/{chunk_name(key, target.ndim + 1)}"
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:  # An edit has removed the episode, or it is damaged.
            return False
        try:
            return os.preadv(descriptor, [as_bytes(target)], row * target.nbytes) == target.nbytes
        finally:
            os.close(descriptor)


_caches: weakref.WeakSet[MmapCache] = weakref.WeakSet()
_keeping = threading.Lock()


def _allowed_files(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted + FILES_FOR_OTHERS:
        soft = (
            wanted + FILES_FOR_OTHERS if hard == unlimited else min(hard, wanted + FILES_FOR_OTHERS)
        )
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == unlimited else soft - FILES_FOR_OTHERS
