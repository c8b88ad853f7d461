"""Checkpoints by name, address or folder; the index lists those with a name.

Checkpoints at addresses are verified by their SHA-256 and kept in the cache folder of the user.
Only the two files of a checkpoint are read: YAML and safetensors. The SHA-256 of a checkpoint is
that of both files in this order: `cat checkpoint.yaml weights.safetensors | sha256sum`.
"""

import difflib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.files.atomic import exclusive, replaced_directory, standing
from stringline.datasets.files.remote_files import download, file_system
from stringline.datasets.files.yaml_file import read_yaml
from stringline.encoders.training.checkpoint import FILES, sha256_of

INDEX = "index.yaml"
PACKAGE = "package"
_DIGEST = "@sha256:"


@dataclass(frozen=True, kw_only=True)
class RegisteredCheckpoint:
    """An entry of the index.

    Attributes:
        name: Its name, as in `checkpoint=NAME`.
        robot: The embodiment.
        tasks: The tasks of its training data.
        training: The command that trained it.
        evaluation: The command that measured the success rate.
        successes: Successful episodes of this evaluation.
        episodes: All episodes of this evaluation.
        interval_percent: The 95 % Wilson interval of the success rate.
        video: A video of the policy, a path in the repository.
        size_bytes: Size of both files.
        sha256: SHA-256 of the checkpoint, see `checkpoint_digest.sha256_of`.
        where: `package`, an address, or a folder (relative to the index).
    """

    name: str
    robot: str
    tasks: tuple[str, ...]
    training: str
    evaluation: str
    successes: int
    episodes: int
    interval_percent: tuple[int, int]
    video: str
    size_bytes: int
    sha256: str
    where: str

    @property
    def result(self) -> str:
        """The success rate with its interval, such as `47/50 = 94 % [84, 98]`."""
        low, high = self.interval_percent
        share = 100 * self.successes / self.episodes
        return f"{self.successes}/{self.episodes} = {share:.0f} % [{low}, {high}]"

    def __str__(self) -> str:
        """Returns name, robot, tasks and result in one line."""
        return f"{self.name}: {self.robot}, {', '.join(self.tasks)}, {self.result}"


def read_index(folder: Path) -> dict[str, RegisteredCheckpoint]:
    """Returns the entries of the index in a folder by name.

    Raises:
        ValueError: The index cannot be read, or an entry is incomplete.
    """
    plain = read_yaml("The index of checkpoints", folder / INDEX)
    return {str(name): _entry(str(name), entry) for name, entry in dict(plain).items()}


def registered_checkpoint(where: str, folder: Path) -> Path:
    """Returns the folder of a checkpoint, fetched if necessary.

    Args:
        where: A folder, an address of fsspec such as `https://HOST/FOLDER`, or a name in the index;
            with `@sha256:HEX` at its end the checkpoint must have this SHA-256. An address needs
            one.
        folder: The folder of the index and of the checkpoints in the package.

    Raises:
        ValueError: There is no such checkpoint, or it has another SHA-256.
        OSError: It cannot be fetched.
    """
    place, sha256 = _reference(where)
    if "://" in place:
        return _at_address(place, sha256)
    found = standing(Path(place))
    if found.is_dir():
        expected = sha256
    else:
        found, expected = _by_name(place, folder)
    for digest in {expected, sha256} - {None}:
        check_sha256(found, str(digest), place)
    return found


def _reference(where: str) -> tuple[str, str | None]:
    """Returns the place and the SHA-256 of `PLACE@sha256:HEX`."""
    place, separator, sha256 = where.rpartition(_DIGEST)
    if not separator:
        return where, None
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"The SHA-256 of {place} is {sha256!r}; allowed: 64 hexadecimal digits.")
    return place, sha256.lower()


def _at_address(url: str, sha256: str | None) -> Path:
    if sha256 is None:
        file_system(url)  # An unknown protocol is reported first.
        raise ValueError(
            f"{url} needs the SHA-256 of the checkpoint, because files of others are verified "
            f"before use: {url}{_DIGEST}HEX. The publisher finds HEX with: cat checkpoint.yaml "
            "weights.safetensors | sha256sum"
        )
    return fetch(url, sha256)


def _by_name(name: str, folder: Path) -> tuple[Path, str | None]:
    """Returns the folder of a checkpoint in the index, and the SHA-256 that it must have."""
    index = read_index(folder)
    if name not in index:
        raise _unknown(name, index)
    entry = index[name]
    if entry.where == PACKAGE:
        return folder / name, None  # Installed with this code, and verified by a test.
    if "://" in entry.where:
        return fetch(entry.where, entry.sha256, entry.size_bytes), entry.sha256
    found = folder / Path(entry.where).expanduser()
    if not found.is_dir():
        raise ValueError(f"The checkpoint {name} should be in {found}, which is not a folder.")
    return found, entry.sha256


def _unknown(name: str, index: Mapping[str, RegisteredCheckpoint]) -> ValueError:
    """Returns the error for an unknown name, with a line per checkpoint, the nearest first."""
    message = str(unknown_name("checkpoint folder or shipped checkpoint", name, index))
    nearest = difflib.get_close_matches(name, index, n=len(index) or 1, cutoff=0.0)
    lines = [f"  {index[each]}" for each in nearest]
    return ValueError(
        "\n".join((f"{message.partition(' Allowed: ')[0]} Allowed: a folder or", *lines))
    )


def _entry(name: str, plain: Any) -> RegisteredCheckpoint:
    """Reads an entry of the index."""
    needed = {field.name for field in fields(RegisteredCheckpoint)} - {"name"}
    if not isinstance(plain, dict) or set(plain) != needed:
        got = ", ".join(map(str, plain)) if isinstance(plain, dict) else repr(plain)
        raise ValueError(
            f"The entry {name} of {INDEX} has {got}; needed: {', '.join(sorted(needed))}."
        )
    pairs = {key: tuple(plain[key]) for key in ("tasks", "interval_percent")}
    return RegisteredCheckpoint(name=name, **{**plain, **pairs})


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
