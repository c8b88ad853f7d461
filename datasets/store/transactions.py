"""Transactions: an edit of many episodes becomes visible at one moment.

Before an edit, a file `.edit-<id>.json` lists the new and the old episodes. Readers show the old
ones until all new ones exist, and the new ones from then on. The next edit completes or rolls back
a killed one. An edit replaces only episodes that exist when it has the lock, so that two edits of
an episode at once do not both have an effect. Old episodes are moved to a folder beside the store,
`<store>.trash`; processes that read them keep them (`pins.py`).
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
from stringline.datasets.store.pins import add_copies, pinned_copies, pinned_folders

_PREFIX = ".edit-"
_REMOVED_PREFIX = ".open-taken-back-"


@dataclass(frozen=True)
class Change:
    """The episodes that an edit adds and removes, by name."""

    new: Sequence[str]
    old: Sequence[str]

    def hidden(self, there: Collection[str]) -> set[str]:
        """Returns the episodes that are hidden from readers, given the existing names."""
        return set(self.old if all(name in there for name in self.new) else self.new)


@contextlib.contextmanager
def transaction(path: Path, new: Sequence[str], old: Sequence[str]) -> Iterator[None]:
    """Replaces episodes: the caller commits the new ones within the block, then the old ones go.

    The old episodes move to the trash. If the caller fails, they remain, and its new episodes are
    removed.

    Raises:
        ValueError: Another command has removed an old episode, maybe while this one waited for the
            lock. Then nothing is changed.
    """
    with exclusive(path):
        recover(path)
        _check_present(path, old)
        log = path / f"{_PREFIX}{uuid.uuid4().hex}.json"
        write_file(log, json.dumps(asdict(Change(list(new), list(old)))).encode())
        try:
            yield
        finally:
            _finish(path, log)


def trash_of(path: Path) -> Path:
    """Returns the folder for removed episodes of a store."""
    absolute = path.absolute()
    return absolute.with_name(f"{absolute.name}.trash")


def removed_copies(episode: Path) -> Iterator[Path]:
    """Yields the folders that may be an episode that an edit removed, named by its old path."""
    yield from pinned_folders(episode)
    trash = trash_of(episode.parent)
    if (trash / episode.name).is_dir():
        yield trash / episode.name
    if trash.is_dir():
        again = f"{episode.name}."
        yield from sorted(each for each in trash.iterdir() if each.name.startswith(again))
    if episode.is_dir():
        yield episode  # It has just been moved back.


def hidden_by_edits(path: Path, entries: Collection[str]) -> set[str]:
    """Returns the episodes that unfinished edits hide, given the names of all files in a store.

    Raises:
        FileNotFoundError: An edit has ended since the files were listed; list them again.
    """
    hidden: set[str] = set()
    for entry in entries:
        if entry.startswith(_PREFIX):
            hidden |= _read(path / entry).hidden(set(entries))
    return hidden


def recover(path: Path) -> None:
    """Completes or rolls back killed edits; the caller holds the lock of the store."""
    for log in sorted(path.glob(f"{_PREFIX}*")):
        _finish(path, log)
    for unfinished in path.glob(f".{_PREFIX}*"):  # Of `write_file`.
        unfinished.unlink()


def _check_present(path: Path, names: Sequence[str]) -> None:
    missing = [name for name in names if not (path / name).is_dir()]
    if missing:
        others = f" and {len(missing) - 3} others" if len(missing) > 3 else ""
        raise ValueError(
            f"Another command has replaced or removed {', '.join(missing[:3])}{others} of {path}. "
            "Nothing was changed; repeat the command with episodes that the store has now."
        )


def _finish(path: Path, log: Path) -> None:
    change = _read(log)
    if all((path / name).is_dir() for name in change.new):
        if change.old:
            with pinned_copies(path) as pins:
                for name in change.old:
                    _move_to_trash(path, name, pins)
    else:
        for name in change.new:
            if (path / name).is_dir():
                away = path / f"{_REMOVED_PREFIX}{name}"
                (path / name).rename(away)  # First, so that no reader sees a partial episode.
                # Another process may remove the leftovers at the same time.
                shutil.rmtree(away, ignore_errors=True)
    sync(path)
    log.unlink()


def _move_to_trash(path: Path, name: str, pins: list[Path]) -> None:
    trash = trash_of(path)
    trash.mkdir(exist_ok=True)
    if (path / name).is_dir():  # Otherwise a killed edit has moved it already.
        add_copies(pins, path / name)
        target = trash / name
        if target.exists():
            target = trash / f"{name}.{uuid.uuid4().hex[:8]}"
        os.rename(path / name, target)


def _read(log: Path) -> Change:
    try:
        return Change(**json.loads(log.read_bytes()))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"The log of an unfinished edit, {log}, cannot be read: {error}."
        ) from error
