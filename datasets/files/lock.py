"""One editor at a time: a lock on a store's folder, which dies with the process that holds it."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Waits until no other process edits or fills the store; recording goes on meanwhile, its episodes have new names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Some network file systems have no locks.
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.info("Another process works on %s; waiting for it.", path)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
