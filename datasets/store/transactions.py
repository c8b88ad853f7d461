"""Transactions and pins: an edit becomes visible at one moment, and readers keep their episodes.

Before an edit, a file `.edit-<id>.json` lists the new and the old episodes. Readers show the old
ones until all new ones exist, and the new ones from then on. The next edit completes or rolls back
a killed one. An edit replaces only episodes that exist when it has the lock, so that two edits of
an episode at once do not both have an effect. Old episodes are moved to a folder beside the store,
`<store>.trash`; processes that read them keep them.

A reader has a locked folder in `<store>.pins`, beside the store. An edit adds the episodes that it
removes to the folders of all readers, as hard links, before it moves them to the trash. So the cost
of a pin does not depend on the size of the store, and emptying the trash costs no reader an
episode. The locks end with their processes; the next reader or edit removes the folders of those
that were killed. Where the folder cannot be made, a removed episode is read from the trash.
"""

import contextlib
import json
import logging
import os
import shutil
import threading
import uuid
import weakref
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stringline.datasets.files.atomic import (
    exclusive,
    is_locked,
    link_tree,
    lock_folder,
    sync,
    write_file,
)

logger = logging.getLogger(__name__)


class StorePin:
    """A pin on a store; it ends when the object is deleted, at the latest with the process."""

    def __init__(self, store: Path) -> None:
        """Pins a store. Episodes that are listed from now on stay readable."""
        try:
            with _locked(_pins_of(store)) as pins:
                folder = pins / uuid.uuid4().hex
                folder.mkdir()
                descriptor = lock_folder(folder)
        except OSError as error:
            logger.info(
                "%s cannot be pinned (%s); episodes that an edit removes are read from the trash.",
                store,
                error,
            )
            return
        self._end = weakref.finalize(self, _release, folder, descriptor, os.getpid())


_shared: weakref.WeakValueDictionary[Path, StorePin] = weakref.WeakValueDictionary()
_sharing = threading.Lock()


def pin(store: Path) -> StorePin:
    """Returns the pin of this process on a store; all its readers share one."""
    store = store.resolve()
    with _sharing:
        if (found := _shared.get(store)) is None:
            found = _shared[store] = StorePin(store)
        return found


@contextlib.contextmanager
def pinned_copies(store: Path) -> Iterator[list[Path]]:
    """Yields the folders of all readers of a store; none is added or removed during the block."""
    with _locked(_pins_of(store)) as pins:
        yield list(pins.iterdir())


def add_copies(pins: list[Path], episode: Path) -> None:
    """Adds an episode of the store to the folders of its readers."""
    for folder in pins:
        unfinished = folder / f".{episode.name}"
        shutil.rmtree(unfinished, ignore_errors=True)  # Of a killed edit.
        if not (folder / episode.name).is_dir():
            link_tree(episode, unfinished)
            unfinished.rename(folder / episode.name)


def pinned_folders(episode: Path) -> Iterator[Path]:
    """Yields the copies of a removed episode, named by its path in the store, for readers."""
    with contextlib.suppress(FileNotFoundError):
        for pin_folder in _pins_of(episode.parent).iterdir():
            if (pin_folder / episode.name).is_dir():
                yield pin_folder / episode.name


def _pins_of(store: Path) -> Path:
    resolved = store.resolve()
    return resolved.with_name(f"{resolved.name}.pins")


@contextlib.contextmanager
def _locked(pins: Path) -> Iterator[Path]:
    """Locks `<store>.pins` for a block; there it exists and has the folders of live readers."""
    while True:
        pins.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # The last reader has just removed it.
            descriptor = lock_folder(pins, wait=True)
            if _is_at(descriptor, pins):
                break
            os.close(descriptor)
    try:
        for folder in pins.iterdir():
            if not _is_read(folder):
                shutil.rmtree(folder)
        yield pins
    finally:
        with contextlib.suppress(OSError):  # It has readers.
            pins.rmdir()
        os.close(descriptor)


def _is_at(descriptor: int, folder: Path) -> bool:
    """Returns whether an opened folder has this path still."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def _is_read(folder: Path) -> bool:
    try:
        return is_locked(folder)
    except OSError:  # The file system has no locks, so that nothing tells whether it is read.
        return True


def _release(folder: Path, descriptor: int, owner: int) -> None:
    if os.getpid() != owner:  # A forked process shares the pin, which is not its own to end.
        return
    os.close(descriptor)
    with contextlib.suppress(OSError):
        # A garbage collection may come while this thread holds the lock; then the next one clears.
        if not is_locked(folder.parent):
            with _locked(folder.parent):
                pass


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
