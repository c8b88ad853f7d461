"""Atomic replacement of directories: after a crash the old or the new one is complete."""

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
    """Yields a new directory that replaces another one when the block ends without an error.

    Both are exchanged in one step. File systems without an atomic exchange, such as NFS, need two
    steps; between these only the old directory exists, under another name, and `standing` finds it.
    """
    fresh = _beside(directory, "new")
    old = _beside(directory, "old")
    if old.exists() and not directory.exists():  # A crash came between the two steps.
        old.rename(directory)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        # The umask's permissions: safetensors creates files that only their owner can read.
        mode = fresh.stat().st_mode & 0o666
        for file in (path for path in fresh.rglob("*") if path.is_file()):
            file.chmod(mode)
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
    """Returns the path of a replaced directory, or of the old one if a crash left only this."""
    if directory.exists():
        return directory
    old = _beside(directory, "old")
    return old if old.is_dir() else directory


def exchange(one: Path, other: Path) -> bool:
    """Exchanges two folders atomically; returns False where the (file) system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)  # In glibc since 2.28.
    if rename is None:
        return False
    rename.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return bool(rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0)


def _beside(directory: Path, ending: str) -> Path:
    return directory.with_name(f".{directory.name}.{ending}")
