"""Folders that are replaced as a whole: whenever their writer is killed, the old one is there or the new one."""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# AT_FDCWD and RENAME_EXCHANGE of Linux (renameat2(2)).
_HERE = -100
_EXCHANGE = 2


@contextmanager
def replaced_directory(directory: Path) -> Iterator[Path]:
    """Gives a fresh directory to write to, synced and moved into place when the block ends without an error.

    The two change places in one step. Where the system or the file system cannot do that, as NFS,
    it takes two; between them there is only the old one, under another name, and `standing` finds
    it.
    """
    fresh = _beside(directory, "new")
    old = _beside(directory, "old")
    if old.exists() and not directory.exists():  # A crash came between the two steps.
        old.rename(directory)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        for file in fresh.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        shutil.rmtree(old, ignore_errors=True)
        if not directory.exists():
            fresh.rename(directory)
        elif not exchange(fresh, directory):
            directory.rename(old)
            fresh.rename(directory)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def standing(directory: Path) -> Path:
    """Returns where a replaced directory stands: its own place, or that of the old one if only this is left after a crash."""
    if directory.exists():
        return directory
    old = _beside(directory, "old")
    return old if old.is_dir() else directory


def exchange(one: Path, other: Path) -> bool:
    """Lets two folders change places in a single step; False if they did not, as where the system or the file system cannot."""
    rename = getattr(
        ctypes.CDLL(None), "renameat2", None
    )  # Of the C library; glibc has it since 2.28.
    if rename is None:
        return False
    rename.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _beside(directory: Path, ending: str) -> Path:
    return directory.with_name(f".{directory.name}.{ending}")
