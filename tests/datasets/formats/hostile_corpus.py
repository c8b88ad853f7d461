"""Hostile data sets: how each is made from a valid one, and what the import answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SECRET = b"what only a file outside of the data set contains "
Build = Callable[[Path], Path]


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


def secret_of(folder: Path) -> Path:
    """Returns the file outside of the data set below a folder."""
    return folder.parent / "secret"


def canary_of(folder: Path) -> Path:
    """Returns the file that code in a data set below a folder would create."""
    return folder.parent / "canary"
