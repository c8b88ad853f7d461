"""Work on all episodes of a store: verification of every byte, and anomalies.

Parallel work on many episodes continues after damaged ones. Anomalies in intact episodes are
stalls, jumps, clipped grippers and irregular frame times. They are hints, not errors: a robot that
waits on purpose is a stall, too.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from stringline.datasets.contract.contract import Array, EpisodeArrays
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.episode_writer import OPEN_PREFIX
from stringline.datasets.store.store import EpisodeStore


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
