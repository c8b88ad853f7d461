"""The SHA-256 of a checkpoint."""

import functools
import hashlib
from pathlib import Path

from stringline.encoders.training.checkpoint import DESCRIPTION, WEIGHTS

FILES = (DESCRIPTION, WEIGHTS)
_BLOCK = 2**20


def sha256_of(folder: Path) -> str:
    """Returns the SHA-256 of the files of a checkpoint in this order, 64 hexadecimal digits."""
    paths = [folder.absolute() / name for name in FILES]
    stats = [path.stat() for path in paths]
    versions = tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
    return _sha256(tuple(paths), versions)


@functools.cache
def _sha256(paths: tuple[Path, ...], _: tuple[tuple[int, ...], ...]) -> str:
    """Returns the SHA-256 of files; changed files have other times, sizes or inodes."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()
