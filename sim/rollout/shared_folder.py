"""Checks that the processes of several machines see the same folder."""

import fcntl
import platform
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 10.0  # A network file system may show a new file with some delay.
_PREFIX = ".shared-"


@dataclass(frozen=True)
class SharedFolder:
    """A folder, by its absolute path, that contains a marker file with a unique name."""

    path: Path
    marker: str
    patience_s: float

    def check(self) -> None:
        """Raises a ValueError if this machine does not see the marker within `patience_s`."""
        end = time.monotonic() + self.patience_s
        while not (self.path / self.marker).exists():
            if time.monotonic() > end:
                raise ValueError(
                    f"The machine {platform.node()!r} does not see the folder {self.path} of the "
                    f"starting machine. Choose a folder that all machines share under the same "
                    f"path."
                )
            time.sleep(0.2)


@contextmanager
def shared(
    path: Path, patience_s: float = PATIENCE_S, *, alone: bool = False
) -> Iterator[SharedFolder]:
    """Puts a marker file into a folder for the time of a `with` block.

    Args:
        path: The folder.
        patience_s: Time in which other machines must see the marker, seconds.
        alone: Whether markers of other processes are refused.

    Raises:
        ValueError: There is one, and `alone` is true.
    """
    _remove_abandoned(path)
    marker = path / f"{_PREFIX}{uuid.uuid4().hex}"
    with marker.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            # Not before: of two processes that begin at once, at least one must see the other.
            if alone and len(list(path.glob(f"{_PREFIX}*"))) > 1:
                raise ValueError(
                    f"Another process writes to {path}. Wait until it ends, or choose another "
                    "folder."
                )
            yield SharedFolder(path, marker.name, patience_s)
        finally:
            marker.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Removes the markers of killed processes, which no process has locked."""
    for marker in path.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError, BlockingIOError), marker.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            marker.unlink()
