"""Folders that a failure does not leave behind empty."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def made_folder(path: Path) -> Iterator[None]:
    """Makes a folder, with its parents, for a block.

    If the block fails, those of the folders that were made here and are empty are removed.
    """
    made = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in made:
            with suppress(OSError):  # It is not empty.
                each.rmdir()
        raise
