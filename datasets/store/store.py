"""The episode store: a zarr 3 group with one group per episode, safe for parallel writers.

Every zarr reads it (`zarr.open_group(path)[name]["rgb.overhead"][:]`), and `StoredEpisode.arrays`
maps the chunk files. An episode is written under a name that starts with `.open-`, synced, and
renamed when it is complete: a crash loses only the open episode, and writers in any number of
processes need no lock. Names are `<task>.<seed>.<unique id>`; the order by task and seed does not
depend on the order of writing.

Parallel work on many episodes continues after damaged ones. Anomalies in intact episodes are
stalls, jumps, clipped grippers and irregular frame times. They are hints, not errors: a robot that
waits on purpose is a stall, too.
"""

import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, EpisodeArrays, check_episode
from stringline.datasets.files.atomic import is_locked, made_folder, write_file
from stringline.datasets.store.episode import (
    EpisodeAttributes,
    StoredEpisode,
    read_episode,
    removed_episodes,
)
from stringline.datasets.store.episode_writer import NEW_PREFIX, OPEN_PREFIX, EpisodeWriter
from stringline.datasets.store.transactions import StorePin, hidden_by_edits, pin, removed_copies
from stringline.datasets.store.zarr_layout import (
    FORMAT_VERSION,
    IMAGES_KEY,
    ROOT_KEY,
    DamagedError,
    checksummed_group,
    read_group,
    read_metadata,
)

_NAME = re.compile(r"(?P<task>[^.].*)\.(?P<seed>\d{10,})\.(?P<id>[0-9a-f]{12})")
_STARTING_S = 600.0
_MOST_LISTINGS = 100  # An edit that ends during a listing makes another one necessary.


def episode_name(task: str, seed: int) -> str:
    """Returns a new name for an episode; its id is unique among all writers."""
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", task).strip("_") or "task"
    return f"{safe}.{seed:010d}.{uuid.uuid4().hex[:12]}"


class EpisodeStore:
    """A folder of episodes."""

    def __init__(self, path: Path) -> None:
        """Reads the metadata of the store.

        Raises:
            ValueError: There is no store at `path`, or it is newer than this code.
        """
        self.path = path
        try:
            data = read_metadata(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ValueError(
                f"There is no episode store at {path}. Record one with stringline-collect."
            ) from error
        if f'"{IMAGES_KEY}"'.encode() in data:
            raise ValueError(
                f"{path} is a store of images, not of episodes; stringline-perceive reads it."
            )
        read_group(data, f"The store {path}", ROOT_KEY)

    @classmethod
    def open(cls, path: str | Path) -> "EpisodeStore":
        """Opens an existing store."""
        return cls(Path(path))

    @classmethod
    def create(cls, path: str | Path) -> "EpisodeStore":
        """Creates or opens a store; many processes may do so at once.

        Raises:
            ValueError: There is something else at `path`.
        """
        path = Path(path)
        if not (path / "zarr.json").exists():
            empty = not path.exists() or (
                path.is_dir() and all(entry.name.startswith(".") for entry in path.iterdir())
            )
            # Another process may have created the store before the look at the files.
            if not empty and not (path / "zarr.json").exists():
                raise ValueError(
                    f"{path} exists and is not an episode store; choose a new or empty folder."
                )
            path.mkdir(parents=True, exist_ok=True)
            write_file(path / "zarr.json", checksummed_group({ROOT_KEY: FORMAT_VERSION}))
        return cls(path)

    def names(self) -> list[str]:
        """Returns the names of the complete episodes, ordered by task, seed and id."""
        entries, hidden = self._listed()
        matches = [
            match for entry in entries if entry not in hidden and (match := _NAME.fullmatch(entry))
        ]
        matches.sort(key=lambda match: (match["task"], int(match["seed"]), match["id"]))
        return [match[0] for match in matches]

    def _listed(self) -> tuple[list[str], set[str]]:
        """Returns the names of all files, and those of episodes that unfinished edits hide."""
        for _ in range(_MOST_LISTINGS):
            entries = os.listdir(self.path)
            try:
                return entries, hidden_by_edits(self.path, entries)
            except FileNotFoundError:
                continue
        raise OSError(
            f"During each of {_MOST_LISTINGS} listings of {self.path} an edit ended; try again."
        )

    def __len__(self) -> int:
        return len(self.names())

    def episode(self, name: str, *, removed: bool = False) -> StoredEpisode:
        """Opens an episode without reading its arrays.

        An opened episode stays readable when an edit removes it from the store, as long as it is in
        the trash or a process that pinned the store is running.

        Args:
            name: Name of the episode.
            removed: Whether the episode may be one that an edit has removed.

        Raises:
            ValueError: The episode does not exist, or its metadata is damaged.
        """
        exists = (
            _NAME.fullmatch(name) and (self._folder(name) if removed else self.path / name).is_dir()
        )
        if not exists:
            raise unknown_name("episode", name, self.names()[:20])
        return self._read(name)

    def has_removed(self, name: str) -> bool:
        """Returns whether an episode that an edit has removed can still be opened."""
        return next(removed_episodes(self.path / name), None) is not None

    def episodes(self) -> list[StoredEpisode]:
        """Opens all episodes, in the order of `names`."""
        return [self._read(name) for name in self.names()]

    def pin(self) -> StorePin:
        """Keeps all episodes for this process as long as the returned object exists.

        Edits may remove episodes from the store, and the trash may be emptied.
        """
        return pin(self.path)

    def digest(self, names: Iterable[str] | None = None) -> str:
        """Returns an identifier of the content, the start of a SHA-256 of all episodes.

        It covers their attributes and the checksums of their arrays, not the arrays themselves. It
        does not depend on the place of the store, nor on the order or ids of its episodes. `names`
        are the names of the episodes, by default all; they may have been removed by an edit.
        """
        of_episodes = self.names() if names is None else names
        files = (read_metadata(self._folder(name)) for name in of_episodes)
        digests = sorted(hashlib.sha256(data).digest() for data in files)
        return hashlib.sha256(b"".join(digests)).hexdigest()[:16]

    def _folder(self, name: str) -> Path:
        """Returns the folder of an episode, or its copy if an edit has removed it."""
        folder = self.path / name
        return folder if folder.is_dir() else next(removed_copies(folder), folder)

    def _read(self, name: str) -> StoredEpisode:
        path = self.path / name
        try:
            return read_episode(path)
        except DamagedError as error:
            if not path.is_dir() and (kept := next(removed_episodes(path), None)):
                return replace(kept, name=name, path=path)
            advice = (
                "To use the other episodes, set it aside: stringline-data verify "
                f"store={self.path} set_aside=true"
            )
            raise DamagedError(f"{error} {advice}") from error

    def seeds(self, task: str) -> set[int]:
        """Returns the seeds of a task that have a complete episode."""
        safe = episode_name(task, 0).split(".")[0]
        return {
            int(match["seed"])
            for name in self.names()
            if (match := _NAME.fullmatch(name)) and match["task"] == safe
        }

    def writer(self, attributes: EpisodeAttributes, *, expected_bytes: int = 0) -> EpisodeWriter:
        """Returns a writer that records an episode step by step."""
        return EpisodeWriter(
            self.path,
            episode_name(attributes.task, attributes.seed),
            attributes,
            expected_bytes=expected_bytes,
        )

    def write(self, arrays: EpisodeArrays, attributes: EpisodeAttributes) -> str:
        """Stores a whole episode and returns its name."""
        check_episode(arrays, attributes.contract)
        size = sum(array.nbytes for array in arrays.values())
        with self.writer(attributes, expected_bytes=size) as writer:
            for key, array in arrays.items():
                writer.put(key, array)
            return writer.commit()

    def verify(self, name: str) -> list[str]:
        """Reads all bytes of an episode and returns one sentence for each damaged part."""
        try:
            return read_episode(self.path / name).damaged()
        except ValueError as error:
            return [str(error)]

    def leftovers(self) -> list[Path]:
        """Returns the temporary folders of killed writers."""
        left = [path for path in sorted(self.path.glob(f"{OPEN_PREFIX}*")) if not _is_alive(path)]
        return left + [path for path in sorted(self.path.glob(f"{NEW_PREFIX}*")) if _is_old(path)]

    def remove_leftovers(self) -> list[Path]:
        """Removes and returns the temporary folders of killed writers."""
        leftovers = self.leftovers()
        for path in leftovers:
            shutil.rmtree(path)
        return leftovers


def _is_old(path: Path) -> bool:
    """Returns whether a new folder is older than the time that a writer needs to lock it."""
    try:
        return time.time() - path.stat().st_mtime > _STARTING_S
    except FileNotFoundError:
        return False


def _is_alive(path: Path) -> bool:
    """Returns whether the writer of a temporary folder is running."""
    try:
        return is_locked(path)
    except FileNotFoundError:
        return True  # Committed or discarded at this moment.


@contextmanager
def new_store(path: str | Path) -> Iterator[EpisodeStore]:
    """Creates or opens a store for a block, see `EpisodeStore.create`.

    If the block fails, a store that was created here is removed, unless it has an episode or
    another process works on it.
    """
    path = Path(path)
    with nullcontext() if path.exists() else made_folder(path):
        created = not (path / "zarr.json").exists()
        store = EpisodeStore.create(path)
        try:
            yield store
        except BaseException:
            # Episodes are folders, and the marks of other processes have names with a dot.
            files = list(path.iterdir())
            if created and all(each.is_file() and each.name[0] != "." for each in files):
                for each in files:
                    each.unlink()
            raise


def store_size(store: EpisodeStore) -> int:
    """Returns the bytes of all arrays of a store."""
    return sum(episode.nbytes for episode in store.episodes())


def format_size(size: float) -> str:
    """Returns a size with its unit: `3.2 MiB`, `41 MiB`, `1.6 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def for_each_episode(
    work: Callable[[str], object], names: Sequence[str], workers: int, title: str
) -> None:
    """Calls `work` with the name of each episode, in threads.

    Raises:
        ValueError: Some episodes are damaged; the work is done for all others.
    """
    damage: list[str] = []

    def guarded(name: str) -> None:
        try:
            work(name)
        except ValueError as error:
            damage.append(str(error))

    with ThreadPoolExecutor(max(1, workers)) as pool:
        for _ in tqdm(
            pool.map(guarded, names),
            total=len(names),
            unit="episode",
            desc=title,
            disable=len(names) < 2,
        ):
            pass
    if damage:
        raise ValueError(
            f"{len(damage)} of {len(names)} episodes are damaged, the others are done. "
            f"{' '.join(sorted(damage))}"
        )


def verify_store(store: EpisodeStore) -> dict[str, list[str]]:
    """Returns sentences about the damage of each damaged episode, by its name.

    Opening the store has verified its own metadata.
    """
    names = store.names()
    quiet = len(names) < 20
    with ThreadPoolExecutor(2) as pool:
        work = pool.map(store.verify, names)
        found = list(tqdm(work, "verify", len(names), unit="episode", disable=quiet))
    return {name: sentences for name, sentences in zip(names, found, strict=True) if sentences}


def describe_leftover(folder: Path) -> str:
    """Describes the progress of a killed writer, given one of `EpisodeStore.leftovers`."""
    steps = _rows(folder / "time")
    frames = [
        f"{_rows(path)} frames of rgb/{path.name.removeprefix('time.')}"
        for path in sorted(folder.glob("time.*"))
    ]
    written = ", ".join([f"{steps} steps", *frames])
    return (
        f"Episode {folder.name.removeprefix(OPEN_PREFIX)} is incomplete: its writer was killed "
        f"after {written}."
    )


def _rows(array: Path) -> int:
    """Returns the length of a growing float64 array."""
    chunk = array / "c" / "0"
    return chunk.stat().st_size // 8 if chunk.is_file() else 0


Floats = NDArray[np.float64]

STILL_PER_S = 0.01
STALL_S = 1.0
# Above the speeds of all embodiments, per second, by unit. A gripper does not close in one step.
FASTEST = {"rad": 2 * np.pi, "m": 2.0, "opening": 25.0}
BEYOND = 0.02
CLIPPED_SHARE = 0.05
CLIPPED_BY = 0.05
LATE = 1.5
STALE = 2.5
FUTURE_S = 1e-3


@dataclass(frozen=True)
class Finding:
    """An anomaly `time_s` after the first step: a `stall`, `jump`, `gripper` or `timing`."""

    kind: str
    episode: str
    time_s: float
    text: str


def findings(episode: StoredEpisode) -> list[Finding]:
    """Returns the anomalies of an episode in order of time."""
    time = np.asarray(episode.arrays["time"], np.float64)
    found = [
        Finding(kind, episode.name, float(time[min(step, len(time) - 1)] - time[0]), text)
        for search in (_stalls, _jumps, _grippers, _timing)
        for kind, step, text in search(episode, time)
    ]
    return sorted(found, key=lambda finding: finding.time_s)


def runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Returns the first index and the index after the last one of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(first), int(stop)) for first, stop in edges.reshape(-1, 2)]


_Found = Iterator[tuple[str, int, str]]


def _stalls(episode: StoredEpisode, time: Floats) -> _Found:
    moving = _motion(episode)
    if moving is None or len(time) < 2:
        return
    speed = np.abs(np.diff(moving, axis=0)).max(axis=1) / np.diff(time)
    for first, stop in runs(speed < STILL_PER_S):
        if (lasted := time[stop] - time[first]) >= STALL_S:
            yield "stall", first, f"nothing moves for {lasted:.1f} s"


def _motion(episode: StoredEpisode) -> Array | None:
    """Returns the measured joints (T, D), or the absolute actions if there is no measurement."""
    if "joints/position" in episode.arrays:
        return episode.arrays["joints/position"]
    absolute = [
        place
        for place, entry in enumerate(episode.attributes.contract.action)
        if entry.mode == "absolute"
    ]
    return episode.arrays["action"][:, absolute] if absolute else None


def _jumps(episode: StoredEpisode, time: Floats) -> _Found:
    action = episode.arrays["action"]
    steps_s = np.diff(time)
    for place, entry in enumerate(episode.attributes.contract.action):
        limit = FASTEST.get(entry.unit)
        if limit is None or entry.mode != "absolute" or entry.kind == "rotation":
            continue
        change = np.abs(np.diff(action[:, place].astype(np.float64)))
        for step in np.flatnonzero(change > limit * steps_s):
            yield (
                "jump",
                int(step) + 1,
                f"action {entry.name} changes by {change[step]:.2f} {entry.unit} within one step",
            )


def _grippers(episode: StoredEpisode, time: Floats) -> _Found:
    contract = episode.attributes.contract
    arrays = episode.arrays
    commands = {
        entry.name: arrays["action"][:, place]
        for place, entry in enumerate(contract.action)
        if entry.kind == "gripper" and entry.mode == "absolute"
    }
    measured = {}
    if "joints/position" in arrays:
        measured = {
            name: arrays["joints/position"][:, place]
            for place, name in enumerate(contract.joints)
            if name in commands
        }
    for what, values in (("commanded", commands), ("measured", measured)):
        for name, opening in values.items():
            beyond = (opening < -BEYOND) | (opening > 1 + BEYOND)
            if beyond.any():
                worst = opening[np.argmax(np.abs(opening - 0.5))]
                text = f"{name}: the {what} opening reaches {worst:.2f}; the range is 0 to 1"
                yield "gripper", int(np.argmax(beyond)), text
    for name, opening in measured.items():
        for end in (opening.min(), opening.max()):
            held = (opening == end) & (np.abs(commands[name] - end) > CLIPPED_BY)
            if held.mean() > CLIPPED_SHARE:
                text = (
                    f"{name}: the measured opening stays at exactly {end:.3f} in "
                    f"{held.mean():.0%} of the steps, although the command differs"
                )
                yield "gripper", int(np.argmax(held)), text


def _timing(episode: StoredEpisode, time: Floats) -> _Found:
    period = 1 / episode.attributes.contract.control_hz
    for step in np.flatnonzero(np.diff(time) > LATE * period):
        text = (
            f"a step takes {1e3 * (time[step + 1] - time[step]):.0f} ms instead of "
            f"{1e3 * period:.0f} ms"
        )
        yield "timing", int(step) + 1, text
    for camera in episode.attributes.contract.cameras:
        yield from _camera_timing(camera.name, episode.arrays, time)


def _camera_timing(camera: str, arrays: EpisodeArrays, time: Floats) -> _Found:
    captured = np.asarray(arrays[f"time/{camera}"], np.float64)
    frame = arrays[f"frame/{camera}"]
    gaps = np.diff(captured)
    for place in np.flatnonzero(gaps <= 0):
        text = f"{camera}: frame {place + 1} was not captured after frame {place}"
        yield "timing", _seen(frame, int(place) + 1), text
    usual = float(np.median(gaps)) if len(gaps) else 0.0
    for place in np.flatnonzero(gaps > LATE * usual) if usual > 0 else ():
        text = (
            f"{camera}: {1e3 * gaps[place]:.0f} ms without a frame before frame {place + 1}; the "
            f"median is {1e3 * usual:.0f} ms"
        )
        yield "timing", _seen(frame, int(place) + 1), text
    age = time - captured[frame]
    early = age < -FUTURE_S
    old = (age > STALE * usual) & (usual > 0)
    if early.any():
        text = (
            f"{camera}: {early.sum()} steps refer to a frame captured up to "
            f"{-1e3 * age.min():.0f} ms after them"
        )
        yield "timing", int(np.argmax(early)), text
    if old.any():
        text = f"{camera}: {old.sum()} steps refer to a frame up to {1e3 * age.max():.0f} ms old"
        yield "timing", int(np.argmax(old)), text


def _seen(frame: Array, place: int) -> int:
    """Returns the first step that refers to a frame or a later one."""
    return int(np.searchsorted(frame, place))
