"""Pins: a process that reads a store keeps its episodes, whatever is edited meanwhile.

A reader has a locked folder in `<store>.pins`, beside the store. An edit adds the episodes that it
removes to the folders of all readers, as hard links, before it moves them to the trash. So the cost
of a pin does not depend on the size of the store, and emptying the trash costs no reader an
episode. The locks end with their processes; the next reader or edit removes the folders of those
that were killed. Where the folder cannot be made, a removed episode is read from the trash.
"""

import contextlib
import logging
import os
import shutil
import threading
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path

from stringline.datasets.files.hard_links import link_tree
from stringline.datasets.files.lock import is_locked, lock_folder

logger = logging.getLogger(__name__)


class StorePin:
    """A pin on a store; it ends when the object is deleted, at the latest with the process."""

    def __init__(self, store: Path) -> None:
        """Pins a store. Episodes that are listed from now on stay readable."""
        try:
            with _locked(_pins_of(store)) as pins:
                folder = pins / uuid.uuid4().hex
                folder.mkdir()
                descriptor = lock_folder(folder)
        except OSError as error:
            logger.info(
                "%s cannot be pinned (%s); episodes that an edit removes are read from the trash.",
                store,
                error,
            )
            return
        self._end = weakref.finalize(self, _release, folder, descriptor, os.getpid())


_shared: weakref.WeakValueDictionary[Path, StorePin] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def pin(store: Path) -> StorePin:
    """Returns the pin of this process on a store; all its readers share one."""
    store = store.resolve()
    with _sharing:
        if (found := _shared.get(store)) is None:
            found = _shared[store] = StorePin(store)
        return found


@contextlib.contextmanager
def pinned_copies(store: Path) -> Iterator[list[Path]]:
    """Yields the folders of all readers of a store; none is added or removed during the block."""
    with _locked(_pins_of(store)) as pins:
        yield list(pins.iterdir())


def add_copies(pins: list[Path], episode: Path) -> None:
    """Adds an episode of the store to the folders of its readers."""
    for folder in pins:
        unfinished = folder / f".{episode.name}"
        shutil.rmtree(unfinished, ignore_errors=True)  # Of a killed edit.
        if not (folder / episode.name).is_dir():
            link_tree(episode, unfinished)
            unfinished.rename(folder / episode.name)


def pinned_folders(episode: Path) -> Iterator[Path]:
    """Yields the copies of a removed episode, named by its path in the store, for readers."""
    with contextlib.suppress(FileNotFoundError):
        for pin_folder in _pins_of(episode.parent).iterdir():
            if (pin_folder / episode.name).is_dir():
                yield pin_folder / episode.name


def _pins_of(store: Path) -> Path:
    resolved = store.resolve()
    return resolved.with_name(f"{resolved.name}.pins")


@contextlib.contextmanager
def _locked(pins: Path) -> Iterator[Path]:
    """Locks `<store>.pins` for a block; there it exists and has the folders of live readers."""
    while True:
        pins.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # The last reader has just removed it.
            descriptor = lock_folder(pins, wait=True)
            if _is_at(descriptor, pins):
                break
            os.close(descriptor)
    try:
        for folder in pins.iterdir():
            if not _is_read(folder):
                shutil.rmtree(folder)
        yield pins
    finally:
        with contextlib.suppress(OSError):  # It has readers.
            pins.rmdir()
        os.close(descriptor)


def _is_at(descriptor: int, folder: Path) -> bool:
    """Returns whether an opened folder has this path still."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _is_read(folder: Path) -> bool:
    try:
        return is_locked(folder)
    except OSError:  # The file system has no locks, so that nothing tells whether it is read.
        return True


def _release(folder: Path, descriptor: int, owner: int) -> None:
    if os.getpid() != owner:  # A forked process shares the pin, which is not its own to end.
        return
    os.close(descriptor)
    with contextlib.suppress(OSError):
        # A garbage collection may come while this thread holds the lock; then the next one clears.
        if not is_locked(folder.parent):
            with _locked(folder.parent):
                pass
