"""Sees to it that processes that write into one folder see the same folder, on whatever machines they are."""

import platform
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stringline.datasets.disk import write_file

PATIENCE_S = 10.0  # A network file system may show a new file a little later.
_PREFIX = ".shared-"
_FORGOTTEN_S = 86400.0  # Processes that are killed leave their mark behind.


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
                    f"The machine {platform.node()!r} does not see the folder {self.path} of the machine that started this. "
                    "Choose a folder on a file system that all machines share, under the same path."
                )
            time.sleep(0.2)


@contextmanager
def shared(path: Path, patience_s: float = PATIENCE_S) -> Iterator[SharedFolder]:
    """Marks a folder for the time of a `with` block."""
    for mark in path.glob(f"{_PREFIX}*"):
        if time.time() - mark.stat().st_mtime > _FORGOTTEN_S:
            mark.unlink(missing_ok=True)
    folder = SharedFolder(path, f"{_PREFIX}{uuid.uuid4().hex}", patience_s)
    write_file(path / folder.mark, b"")
    try:
        yield folder
    finally:
        (path / folder.mark).unlink(missing_ok=True)
