"""Atomic writes, replacement of directories, links and locks: what a crash must not leave partial.

After a crash or on a full disk a file is the old one or the new one, and so is a directory. Locks
on folders end with the process that holds them: `flock` on the folder itself, rather than the
package filelock, whose lock file would remain in the folder, and zarr warns of unknown files in a
store.
"""

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

RESERVE_BYTES = 16 * 2**20
FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NoSpaceError(OSError):
    """The disk is too full for a write; `no_space` builds this error."""


def no_space(path: Path, detail: str) -> NoSpaceError:
    """Returns the error for a path on a full disk."""
    return NoSpaceError(
        errno.ENOSPC, f"No space left ({detail}); make room or choose another folder", str(path)
    )


def check_space(path: Path, needed: int) -> None:
    """Checks that the disk of a folder has room for `needed` bytes and `RESERVE_BYTES` more."""
    free = shutil.disk_usage(path).free
    if free < needed + RESERVE_BYTES:
        raise no_space(
            path,
            (
                f"{(needed + RESERVE_BYTES) / 2**20:.0f} MiB are needed, {free / 2**20:.0f} MiB "
                "are free"
            ),
        )


@contextlib.contextmanager
def explained_full_disk(path: Path, part: str = "") -> Iterator[None]:
    """Turns a full disk, a full quota or a file size limit into a `NoSpaceError`.

    The message names `path` and, if given, the `part` that was written.
    """
    try:
        yield
    except NoSpaceError:
        raise
    except OSError as error:
        if error.errno in FULL_DISK:
            raise no_space(path, f"{os.strerror(error.errno)}{part and f', {part}'}") from error
        raise


def write_all(descriptor: int, data: memoryview) -> None:
    """Writes every byte; a single `os.write` may stop after 2 GiB, or earlier."""
    while data:
        data = data[os.write(descriptor, data) :]


def write_file(path: Path, data: bytes) -> None:
    """Replaces a small file atomically and syncs it; readers see the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with explained_full_disk(path):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                write_all(descriptor, memoryview(data))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file, or the directory entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Waits until a folder tree is on the disk, files before the directory entries that name them.

    Many threads wait at once, so that the file system can write its journal once for all of them:
    on a busy disk an episode takes 0.03 s this way, and 0.5 s file by file.
    """
    found = list(os.walk(root))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(sync, [Path(folder, file) for folder, _, files in found for file in files]))
        list(pool.map(sync, [Path(folder) for folder, _, _ in found]))


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


logger = logging.getLogger(__name__)


def link_or_copy(old: str | Path, new: str | Path) -> None:
    """Links a file, or copies it: to another disk, or where the file system has no hard links."""
    try:
        os.link(old, new)
    except OSError as error:
        logger.debug("%s is copied, not linked (%s).", old, error.strerror)
        shutil.copyfile(old, new)


def link_tree(old: Path, new: Path) -> None:
    """Makes the folder `new` with the files of the folder `old`."""
    shutil.copytree(old, new, copy_function=link_or_copy)


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
