"""Locks on folders, which end with the process that holds them.

`flock` on the folder itself, rather than the package filelock: its lock file would remain in the
folder, and zarr warns of unknown files in a store.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)


def lock_folder(path: Path, *, wait: bool = False) -> int:
    """Opens and locks a folder; closing the returned descriptor releases the lock.

    If another process holds the lock, it waits if `wait` is true, and otherwise returns without
    the lock.
    """
    descriptor = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):  # Some network file systems have no locks.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if wait:
                logger.info("Waiting for another process that works on %s.", path)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_locked(path: Path) -> bool:
    """Returns whether a process holds the lock of a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Holds the lock of a folder during a block, and waits for it before.

    Yields its descriptor. A process that inherits it holds the lock as well.
    """
    descriptor = lock_folder(path, wait=True)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
