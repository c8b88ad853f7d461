"""Sees to it that processes that write into one folder see the same folder, on whatever machines they are."""

import fcntl
import platform
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 10.0  # A network file system may show a new file a little later.
_PREFIX = ".shared-"


@dataclass(frozen=True)
class SharedFolder:
    """A folder with a mark in it.

    Attributes:
        path: The folder, absolute.
        mark: Name of a file in it that is in no other folder.
        patience_s: For how long to look for it.
    """

    path: Path
    mark: str
    patience_s: float = PATIENCE_S

    def require(self) -> None:
        """Looks for the mark.

        Raises:
            ValueError: It is not there.
        """
        end = time.monotonic() + self.patience_s
        while not (self.path / self.mark).exists():
            if time.monotonic() > end:
                raise ValueError(
                    f"The machine {platform.node()!r} does not see the folder {self.path} of the "
                    f"machine that started this. "
                    "Choose a folder on a file system that all machines share, under the same path."
                )
            time.sleep(0.2)


@contextmanager
def shared(path: Path, patience_s: float = PATIENCE_S) -> Iterator[SharedFolder]:
    """Marks a folder for the time of a `with` block."""
    _remove_forgotten(path)
    mark = path / f"{_PREFIX}{uuid.uuid4().hex}"
    with mark.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield SharedFolder(path, mark.name, patience_s)
        finally:
            mark.unlink(missing_ok=True)


def _remove_forgotten(path: Path) -> None:
    """Removes the marks of processes that were killed: nobody holds their lock."""
    for mark in path.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError, BlockingIOError), mark.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            mark.unlink()
