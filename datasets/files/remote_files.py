"""Files at addresses of fsspec, such as s3://, hf:// and https://."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
from fsspec.callbacks import TqdmCallback
from fsspec.core import url_to_fs

from stringline.datasets.files.atomic import NoSpaceError, check_space, explained_full_disk

_EXTRAS = {"http": "remote", "https": "remote", "s3": "remote", "s3a": "remote", "hf": "hub"}
_HTTP = ("http", "https")
_TIMEOUT_S = 60.0
_NOT_FOUND = 404


class TooLargeError(OSError):
    """A file has more bytes than allowed."""


def file_system(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Returns the file system of an address, and the path in it.

    Raises:
        ValueError: The protocol is unknown, or its package is not installed.
    """
    protocol = url.partition("://")[0]
    try:
        files, path = url_to_fs(url, **(_http_options() if protocol in _HTTP else {}))
    except (ImportError, ValueError) as error:
        extra = _EXTRAS.get(protocol)
        remedy = f' Run: pip install "stringline[{extra}]"' if extra else ""
        raise ValueError(f"{url} cannot be reached: {error}.{remedy}") from error
    return files, path


def _http_options() -> dict[str, Any]:
    """Returns options for web servers: timeouts per read, and the proxy of the environment.

    Without them, aiohttp stops every download after five minutes.
    """
    aiohttp = importlib.import_module("aiohttp")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT_S, sock_read=_TIMEOUT_S)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}}


@contextlib.contextmanager
def explained(url: str) -> Iterator[None]:
    """Adds the address to errors, which the libraries omit."""
    try:
        yield
    except (NoSpaceError, TooLargeError):
        raise
    except Exception as error:  # Each protocol has its own errors; few of them are OSErrors.
        raise OSError(f"{url}: {type(error).__name__}: {error}") from error


def download(url: str, target: Path, most: int) -> None:
    """Copies a file with at most `most` bytes from an address, with a progress bar.

    Raises:
        ValueError: There is no such file.
        TooLargeError: The file has more bytes.
        OSError: The file cannot be read, or the disk is full.
    """
    files, path = file_system(url)
    progress = _LimitedProgress(url, most)
    with explained(url):
        size = _size(files, path)
    if size is None:
        raise ValueError(f"There is no file {url}.")
    progress.check(size)  # Some file systems do not report their progress.
    check_space(target.parent, size)
    with explained(url), explained_full_disk(target):
        files.get_file(path, str(target), callback=progress)
    progress.check(target.stat().st_size)


def _size(files: fsspec.AbstractFileSystem, path: str) -> int | None:
    """Returns the size of a file: 0 if the server does not state it, None if there is no file."""
    files.invalidate_cache()
    try:
        return int(files.info(path).get("size") or 0)
    except FileNotFoundError as error:
        # fsspec reports every failure of a web server as a missing file, with the cause.
        cause = error.__cause__
        if cause is None or getattr(cause, "status", None) == _NOT_FOUND:
            return None
        raise cause from None


class _LimitedProgress(TqdmCallback):  # type: ignore[misc]
    """Shows the progress of a download, and stops it at a number of bytes."""

    def __init__(self, url: str, most: int) -> None:
        name = url.rpartition("/")[2]
        bar = {"desc": name, "unit": "B", "unit_scale": True, "leave": False, "disable": None}
        super().__init__(tqdm_kwargs=bar)
        self._url = url
        self._most = most

    def check(self, size: int) -> None:
        """Raises a TooLargeError for a size above the limit."""
        if size > self._most:
            raise TooLargeError(f"{self._url} has more than the allowed {self._most} bytes.")

    def set_size(self, size: int | None) -> None:
        """Takes the size that the server announces."""
        self.check(size or 0)
        super().set_size(size)

    def relative_update(self, inc: int = 1) -> None:
        """Counts bytes."""
        self.check(self.value + inc)
        super().relative_update(inc)
