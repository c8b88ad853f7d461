"""How an edit of many episodes happens at one moment, although each is written and removed by itself.

Before anything changes, a file `.edit-<id>.json` says which episodes will come and which will go.
Readers show the old ones until all new ones are there, and the new ones from then on. Where an
editor was killed, the next one finishes what it began, or takes it back. What goes is moved into a
folder beside the store, `<store>.trash`, and stays there until somebody deletes it.
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stringline.datasets.files.atomic import sync, write_file
from stringline.datasets.files.lock import exclusive

_PREFIX = ".edit-"
_REMOVED_PREFIX = ".open-taken-back-"


@dataclass(frozen=True)
class Change:
    """What an edit does to a store.

    Attributes:
        new: Names of the episodes that come.
        old: Names of the episodes that go.
    """

    new: Sequence[str]
    old: Sequence[str]

    def hidden(self, there: Collection[str]) -> set[str]:
        """Returns what readers do not see, given the names that are there."""
        return set(self.old if all(name in there for name in self.new) else self.new)


@contextlib.contextmanager
def changing(path: Path, new: Sequence[str], old: Sequence[str]) -> Iterator[None]:
    """Writes down what will change; the caller then commits the new episodes; at the end the old ones are moved away.

    Where the caller fails, what it committed is removed again and the old episodes remain.

    Args:
        path: Of the store.
        new: Names of the episodes that the caller will commit.
        old: Names of the episodes that go.
    """
    with exclusive(path):
        recover(path)
        journal = path / f"{_PREFIX}{uuid.uuid4().hex}.json"
        write_file(journal, json.dumps(asdict(Change(list(new), list(old)))).encode())
        try:
            yield
        finally:
            _settle(path, journal)


def trash_of(path: Path) -> Path:
    """Returns where the episodes go that are removed from a store."""
    whole = path.absolute()
    return whole.with_name(f"{whole.name}.trash")


def hidden_by_edits(path: Path, entries: Collection[str]) -> set[str]:
    """Returns the episodes that an edit under way hides from readers.

    Args:
        path: Of the store.
        entries: The names of all files and folders in it.
    """
    hidden: set[str] = set()
    for entry in entries:
        if entry.startswith(_PREFIX):
            with contextlib.suppress(FileNotFoundError):  # The edit has just ended.
                hidden |= _read(path / entry).hidden(set(entries))
    return hidden


def recover(path: Path) -> None:
    """Ends or takes back the edits of editors that were killed; nobody else may be editing."""
    for journal in sorted(path.glob(f"{_PREFIX}*")):
        _settle(path, journal)
    for unfinished in path.glob(f".{_PREFIX}*"):  # Of `write_file`.
        unfinished.unlink()


def _settle(path: Path, journal: Path) -> None:
    change = _read(journal)
    if all((path / name).is_dir() for name in change.new):
        for name in change.old:
            _move_to_trash(path, name)
    else:
        for name in change.new:
            if (path / name).is_dir():
                away = path / f"{_REMOVED_PREFIX}{name}"
                (path / name).rename(away)  # First, so that no reader sees half of it.
                shutil.rmtree(
                    away, ignore_errors=True
                )  # Somebody who clears leftovers away may be quicker.
    sync(path)
    journal.unlink()


def _move_to_trash(path: Path, name: str) -> None:
    trash = trash_of(path)
    trash.mkdir(exist_ok=True)
    if (path / name).is_dir():  # Else a killed editor came as far as that.
        target = trash / name
        os.rename(
            path / name, target if not target.exists() else trash / f"{name}.{uuid.uuid4().hex[:8]}"
        )


def _read(journal: Path) -> Change:
    try:
        return Change(**json.loads(journal.read_bytes()))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{journal} says what an edit was about to do and cannot be read ({error})."
        ) from error
