"""Checkpoints by name, address or folder; the index lists those with a name."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.files.remote_files import file_system
from stringline.datasets.files.replaced_directory import standing
from stringline.datasets.files.yaml_file import read_yaml
from stringline.policies.checkpoints.download import check_sha256, fetch

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
    told = str(unknown_name("checkpoint folder or shipped checkpoint", name, index))
    nearest = difflib.get_close_matches(name, index, n=len(index) or 1, cutoff=0.0)
    lines = [f"  {index[each]}" for each in nearest]
    return ValueError(
        "\n".join((f"{told.partition(' Allowed: ')[0]} Allowed: a folder or", *lines))
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
