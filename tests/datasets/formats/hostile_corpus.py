"""Hostile data sets: how each is made from a valid one, and what the import answers."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

SECRET = b"what only a file outside of the data set contains "
Build = Callable[[Path], Path]
Edit = Callable[[Path, Path], object]
Row = tuple[str, Edit, str, int]


@dataclass(frozen=True)
class Case:
    """A hostile data set.

    Attributes:
        format: The format that it claims to have.
        build: Writes it below a folder and returns its path. The file `secret` beside the folder
            must not be read, and nothing may create the file `canary` there.
        says: Part of the only message.
        others: Number of episodes that are imported nevertheless.
    """

    name: str
    format: str
    build: Build
    says: str
    others: int


CASES: dict[str, Case] = {}


def case(name: str, of: str, says: str, others: int = 0) -> Callable[[Build], Build]:
    """Adds the decorated function as a hostile data set of the format `of`."""

    def add(build: Build) -> Build:
        assert name not in CASES
        CASES[name] = Case(name, of, build, says, others)
        return build

    return add


def cases(of: str, prefix: str, write: Build, place: str, rows: Iterable[Row]) -> None:
    """Adds valid data sets in which the file at a place is edited: names, edits, answers, others.

    An edit gets the file and the folder of the data set. Without a place, the set is the file.
    """
    for name, edit, says, others in rows:
        case(f"{prefix}, {name}", of, says, others)(partial(_edited, write, place, edit))


def _edited(write: Build, place: str, edit: Edit, folder: Path) -> Path:
    root = write(folder)
    edit(root / place, folder)
    return root


def cut(end: int) -> Edit:
    """Leaves the first bytes of a file."""
    return lambda file, _: file.write_bytes(file.read_bytes()[:end])


def written(data: bytes | str) -> Edit:
    """Writes other contents."""
    raw = data.encode() if isinstance(data, str) else data
    return lambda file, _: file.write_bytes(raw)


def linked(file: Path, folder: Path) -> None:
    """Puts a file or folder beside the data set, and a link in its place."""
    outside = folder.parent / f"{folder.name}-outside-{file.name}"
    file.rename(outside)
    file.symlink_to(outside)


def linked_to(target: str) -> Edit:
    """Puts a link in the place of a file."""

    def edit(file: Path, _: Path) -> None:
        file.unlink()
        file.symlink_to(target)

    return edit


def linked_to_secret(file: Path, folder: Path) -> None:
    """Puts a link to the secret file in the place of a file."""
    linked_to(str(secret_of(folder)))(file, folder)


def piped(file: Path, _: Path) -> None:
    """Puts a pipe in the place of a file."""
    file.unlink()
    os.mkfifo(file)


def secret_of(folder: Path) -> Path:
    """Returns the file outside of the data set below a folder."""
    return folder.parent / "secret"


def canary_of(folder: Path) -> Path:
    """Returns the file that code in a data set below a folder would create."""
    return folder.parent / "canary"
