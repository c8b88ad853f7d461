"""Checkpoints at addresses: verified by their SHA-256, and kept in the cache folder of the user.

Only the two files of a checkpoint are read: YAML and safetensors. The SHA-256 of a checkpoint is
that of both files in this order: `cat checkpoint.yaml weights.safetensors | sha256sum`.
"""

import logging
import os
from pathlib import Path

from stringline.datasets.files.lock import exclusive
from stringline.datasets.files.remote_files import download
from stringline.datasets.files.replaced_directory import replaced_directory, standing
from stringline.encoders.training.checkpoint_digest import FILES, sha256_of

logger = logging.getLogger(__name__)

LARGEST_BYTES = 16 * 2**30
"""Largest size of a checkpoint whose size no index states."""
_OTHER_FILES = (".safetensors", ".yaml", ".pt", ".pth", ".ckpt", ".pkl", ".bin", ".zip", ".gz")


def cache_folder() -> Path:
    """Returns the folder of fetched checkpoints, `$XDG_CACHE_HOME/stringline/checkpoints`."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "stringline" / "checkpoints"


def fetch(url: str, sha256: str, size_bytes: int | None = None) -> Path:
    """Returns the folder of a checkpoint at an address, which is fetched unless the cache has it.

    Args:
        url: Address of a folder, in a protocol of fsspec.
        sha256: SHA-256 of the checkpoint, see `checkpoint_digest.sha256_of`.
        size_bytes: Size of both files, if known; otherwise `LARGEST_BYTES` is the limit.

    Raises:
        ValueError: The address has no such files, or they have another SHA-256.
        OSError: They cannot be read, or have more bytes than allowed.
    """
    _check_folder(url)
    folder = cache_folder() / sha256
    if _has(folder, sha256):
        return standing(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent):
        if _has(folder, sha256):  # Another process has fetched it in the meantime.
            return standing(folder)
        if folder.exists():
            logger.warning("%s is damaged; it is fetched again.", folder)
        with replaced_directory(folder) as fresh:
            _fetch_files(url.rstrip("/"), fresh, size_bytes or LARGEST_BYTES)
            check_sha256(fresh, sha256, url)
    logger.info("%s is in %s.", url, folder)
    return folder


def check_sha256(folder: Path, sha256: str, where: str) -> None:
    """Raises a ValueError if a checkpoint has another SHA-256; `where` is for the message."""
    if (found := sha256_of(folder)) != sha256:
        raise ValueError(
            f"{where} has the SHA-256 {found}, but {sha256} was expected: the files are damaged, "
            "incomplete or another checkpoint. They are not used."
        )


def _has(folder: Path, sha256: str) -> bool:
    """Returns whether a folder of the cache has an undamaged checkpoint."""
    there = standing(folder)
    return all((there / name).is_file() for name in FILES) and sha256_of(there) == sha256


def _check_folder(url: str) -> None:
    if url.endswith(_OTHER_FILES):
        raise ValueError(
            f"{url} is the address of a file; allowed: the address of a folder with "
            f"{' and '.join(FILES)}. Other files, such as pickled ones, are never read."
        )


def _fetch_files(url: str, folder: Path, most: int) -> None:
    """Downloads both files, which have at most `most` bytes together."""
    left = most
    for name in FILES:
        download(f"{url}/{name}", folder / name, left)
        left -= (folder / name).stat().st_size
