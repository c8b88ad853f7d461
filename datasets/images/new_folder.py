"""Folders that appear when all of their files are there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stringline.datasets.files.atomic import (
    check_space,
    explained_full_disk,
    sync,
    sync_tree,
)
from stringline.datasets.files.lock import is_locked, lock_folder


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a folder that is renamed to `path` when the block ends without an error.

    If the block fails, the folder is removed; that of a process that died, by the next one.

    Raises:
        ValueError: `path` exists, or another process writes it.
        NoSpaceError: The disk is full.
    """
    folder = path.with_name(f".{path.name}.new")
    _check_new(path)
    if folder.exists() and is_locked(folder):
        raise ValueError(f"Another process writes {path}.")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    alive = lock_folder(folder)
    try:
        check_space(folder, 0)
        with explained_full_disk(path):
            yield folder
            sync_tree(folder)
        _check_new(path)
        folder.rename(path)
        sync(path.parent)
    finally:
        os.close(alive)
        shutil.rmtree(folder, ignore_errors=True)


def _check_new(path: Path) -> None:
    if path.exists():
        raise ValueError(f"{path} exists already; choose another path.")
