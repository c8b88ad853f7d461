"""Edits of the episodes of a store: trim, split, relabel, delete, calibrate.

No byte of an episode is changed in place: an edit makes new episodes, and unchanged arrays become
hard links. Replaced or deleted episodes go to the folder `<store>.trash` (see `transactions.py`).
A calibration adds or replaces intrinsics and camera poses.
"""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.cameras.camera_calibration import CameraCalibration
from stringline.datasets.cameras.resampling import (
    FittedImages,
    fitted_images,
    recorded_contract,
)
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import (
    INSTRUCTIONS,
    LABELLED_STEPS,
    LABELS,
    PER_STEP,
    Array,
    Contract,
)
from stringline.datasets.store.episode import INTERVENTIONS, EpisodeAttributes, StoredEpisode
from stringline.datasets.store.episode_writer import EpisodeWriter, write_episode
from stringline.datasets.store.store import EpisodeStore, episode_name
from stringline.datasets.store.transactions import transaction

_OF_CAMERA = ("rgb", "depth", "segmentation", "time", "T_base_camera", "intrinsics")


def select(store: EpisodeStore, patterns: Iterable[str]) -> list[str]:
    """Returns the names of the episodes that match any of the patterns; `*` matches anything."""
    names = store.names()
    chosen = set[str]()
    for pattern in patterns:
        found = fnmatch.filter(names, pattern)
        if not found:
            raise unknown_name("episode", pattern, names[:20])
        chosen |= set(found)
    return [name for name in names if name in chosen]


def delete(store: EpisodeStore, names: Sequence[str]) -> None:
    """Moves episodes to the trash in one transaction."""
    with transaction(store.path, [], names):
        pass


def trim(
    store: EpisodeStore, names: Sequence[str], *, from_s: float = 0.0, to_s: float | None = None
) -> list[str]:
    """Replaces episodes by the part of them between two times and returns the new names.

    Args:
        store: The data.
        names: Names of the episodes.
        from_s: Seconds from the beginning of each episode.
        to_s: Seconds from the beginning, or, if negative, from the end; None: the end of the
            episode.
    """
    parts = {name: [_steps_between(store.episode(name), from_s, to_s)] for name in names}
    return _replace_by_parts(store, parts)


def split_episode(store: EpisodeStore, name: str, at_s: Sequence[float]) -> list[str]:
    """Replaces an episode by several parts and returns their names.

    `at_s` are the beginnings of the parts after the first one, in s from the beginning of the
    episode. No part may be empty.
    """
    if not at_s:
        raise ValueError("Set at_s, the times of the splits in seconds from the beginning.")
    episode = store.episode(name)
    places = [0.0, *sorted(at_s)]
    # A part ends one step before the next one begins.
    first = [_steps_between(episode, place, None)[0] for place in places]
    stops = [*first[1:], episode.steps]
    if any(start >= stop for start, stop in zip(first, stops, strict=True)):
        raise ValueError(
            f"Episode {name} lasts {duration_s(episode):.2f} s; a split at {list(at_s)} leaves an "
            "empty part."
        )
    return _replace_by_parts(store, {name: list(zip(first, stops, strict=True))})


def relabel(
    store: EpisodeStore,
    names: Sequence[str],
    *,
    success: bool | None = None,
    instruction: str | None = None,
    task: str | None = None,
    source: str | None = None,
) -> list[str]:
    """Replaces attributes of episodes and returns the new names.

    Args:
        store: The data.
        names: Names of the episodes.
        success: Whether the episodes succeeded, true or false; None: unchanged.
        instruction: New instruction; None: unchanged.
        task: New name of the task; None: unchanged.
        source: New source of the actions; None: unchanged.

    Raises:
        ValueError: All are None, or a label is invalid.
    """
    requested = {"success": success, "instruction": instruction, "task": task, "source": source}
    labels: dict[str, Any] = {key: value for key, value in requested.items() if value is not None}
    if not labels:
        raise ValueError(f"Nothing to change: give one of {', '.join(requested)}.")
    episodes = [store.episode(name) for name in names]
    # `transaction` needs the new names. An invalid label raises here, before any change.
    new = [
        replace(episode.attributes, **labels, extra=_relabelled(episode, labels))
        for episode in episodes
    ]
    new_names = [episode_name(attributes.task, attributes.seed) for attributes in new]
    with transaction(store.path, new_names, names):
        for name, attributes, episode in zip(new_names, new, episodes, strict=True):
            take_over(episode, store.path, name, attributes)
    return new_names


def part_of(episode: StoredEpisode, start: int, stop: int) -> dict[str, Array]:
    """Returns the arrays of the steps from `start` to before `stop`, with their images."""
    arrays = episode.arrays
    cameras = {camera.name for camera in episode.attributes.contract.cameras}
    frames = {}
    for camera in cameras:
        seen = arrays[f"frame/{camera}"][start:stop]
        frames[camera] = int(seen.min()), int(seen.max()) + 1
    part: dict[str, Array] = {}
    for key in arrays:
        kind, _, name = key.partition("/")
        array = arrays[key]
        if kind == "frame" and name in cameras:
            part[key] = array[start:stop] - np.int32(frames[name][0])
        elif kind in _OF_CAMERA and name in cameras:
            fixed = kind == "intrinsics" or (kind == "T_base_camera" and array.ndim == 2)
            part[key] = array if fixed else array[slice(*frames[name])]
        elif key not in (LABELLED_STEPS, LABELS):
            part[key] = array[start:stop] if array.ndim and len(array) == episode.steps else array
    if LABELLED_STEPS in arrays:
        steps = arrays[LABELLED_STEPS]
        inside = (steps >= start) & (steps < stop)
        if inside.any():
            part[LABELLED_STEPS] = steps[inside] - np.int32(start)
            part[LABELS] = arrays[LABELS][inside]
    return part


def duration_s(episode: StoredEpisode) -> float:
    """Returns the seconds from the first step to the last."""
    time = episode.arrays["time"]
    return float(time[-1] - time[0])


def _steps_between(episode: StoredEpisode, from_s: float, to_s: float | None) -> tuple[int, int]:
    time = episode.arrays["time"] - episode.arrays["time"][0]
    end = time[-1] if to_s is None else to_s if to_s >= 0 else time[-1] + to_s
    # A tolerance of half a microsecond: 0.3 s includes the step at 0.30000000000000004.
    start, stop = np.searchsorted(time, [from_s - 5e-7, end + 5e-7])
    if from_s < 0 or start >= stop:
        raise ValueError(
            f"Episode {episode.name} lasts {time[-1]:.2f} s; nothing is left from {from_s} s to "
            f"{end:.2f} s."
        )
    return int(start), int(stop)


def _replace_by_parts(
    store: EpisodeStore, parts: Mapping[str, Sequence[tuple[int, int]]]
) -> list[str]:
    episodes = {name: store.episode(name) for name in parts}
    for episode in episodes.values():
        episode.check_undamaged()
    jobs = [(episodes[name], steps) for name, ranges in parts.items() for steps in ranges]
    new_names = [
        episode_name(episode.attributes.task, episode.attributes.seed) for episode, _ in jobs
    ]
    with transaction(store.path, new_names, list(parts)):
        for name, (episode, steps) in zip(new_names, jobs, strict=True):
            extra = edited(episode, {"steps": list(steps)}) | _interventions(episode, *steps)
            attributes = replace(episode.attributes, extra=extra)
            attributes, arrays = _with_own_instruction(attributes, part_of(episode, *steps))
            size = sum(array.nbytes for array in arrays.values())
            write_episode(store.path, name, attributes, arrays.items(), size)
    return new_names


def _interventions(episode: StoredEpisode, start: int, stop: int) -> dict[str, Any]:
    """Returns the interventions in the steps from `start` to before `stop`, if any are recorded."""
    recorded = episode.attributes.interventions
    if recorded is None:
        return {}
    inside = [(max(first, start), min(last, stop)) for first, last in recorded]
    parts = [[first - start, last - start] for first, last in inside if first < last]
    return {INTERVENTIONS: parts}


def _with_own_instruction(
    attributes: EpisodeAttributes, arrays: dict[str, Array]
) -> tuple[EpisodeAttributes, dict[str, Array]]:
    """Returns a part with the instruction of most of its steps, as imports choose it.

    If all its steps have one, the list of instructions and their series are left out.
    """
    texts = attributes.extra.get(INSTRUCTIONS)
    if not texts or PER_STEP not in arrays:
        return attributes, arrays
    places, counts = np.unique(arrays[PER_STEP].astype(np.int64), return_counts=True)
    if places[0] < 0 or places[-1] >= len(texts):
        return attributes, arrays  # The series counts other texts.
    text = texts[int(places[np.argmax(counts)])]
    if len(places) > 1:
        return replace(attributes, instruction=text), arrays
    extra = {key: value for key, value in attributes.extra.items() if key != INSTRUCTIONS}
    kept = {key: array for key, array in arrays.items() if key != PER_STEP}
    return replace(attributes, instruction=text, extra=extra), kept


def edited(episode: StoredEpisode, what: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `extra` of an episode with a record of the edit."""
    extra = dict(episode.attributes.extra)
    return extra | {"edits": [*extra.get("edits", []), {"of": episode.name, **what}]}


def _relabelled(episode: StoredEpisode, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `extra` of an episode with other labels; one instruction replaces several."""
    extra = edited(episode, {"relabel": labels})
    return {k: v for k, v in extra.items() if k != INSTRUCTIONS or "instruction" not in labels}


def take_over(episode: StoredEpisode, root: Path, name: str, attributes: EpisodeAttributes) -> None:
    """Adds an episode to the store at `root`, with other attributes and shared arrays."""
    with EpisodeWriter(root, name, attributes) as writer:
        writer.take_over(episode, episode.entries)
        writer.commit()


def calibrate(
    store: EpisodeStore, names: Sequence[str], calibration: CameraCalibration
) -> list[str]:
    """Replaces episodes by calibrated ones, which share all other arrays; returns the new names.

    Cameras that the calibration lacks keep their geometry. Those with `parent: recorded` keep their
    poses and get its intrinsics.

    Raises:
        ValueError: The calibration does not fit an episode, or belongs to smaller images of which
            the store does not record how they were fitted; then none is changed.
    """
    episodes = [store.episode(name) for name in names]
    what = {"calibrate": {"cameras": sorted(calibration.cameras)}}
    found = [_calibrated(episode, calibration) for episode in episodes]
    new = [
        replace(episode.attributes, contract=contract, extra=edited(episode, what))
        for episode, (contract, _) in zip(episodes, found, strict=True)
    ]
    arrays = [each for _, each in found]
    new_names = [episode_name(attributes.task, attributes.seed) for attributes in new]
    with transaction(store.path, new_names, names):
        for name, attributes, episode, added in zip(new_names, new, episodes, arrays, strict=True):
            with EpisodeWriter(store.path, name, attributes) as writer:
                writer.take_over(episode, [key for key in episode.entries if key not in added])
                for key, array in added.items():
                    writer.put(key, array)
                writer.commit()
    return new_names


def scaled_intrinsics(episode: StoredEpisode, calibration: CameraCalibration) -> list[str]:
    """Returns a sentence for each camera whose intrinsics are scaled to its recorded images."""
    return calibration.scaled(recorded_contract(episode.attributes.contract, _fitted(episode)))


def _calibrated(
    episode: StoredEpisode, calibration: CameraCalibration
) -> tuple[Contract, dict[str, Array]]:
    """Returns the new contract of an episode and its new arrays.

    The calibration belongs to the images of the camera; if an import fitted them to another size,
    the intrinsics follow.
    """
    contract = episode.attributes.contract
    fitted = _fitted(episode)
    poses = _poses(episode)
    recorded = calibration.contract(recorded_contract(contract, fitted), poses)
    _check_sizes(contract, calibration, fitted)
    arrays = calibration.arrays(recorded, episode.arrays, poses)
    for name in calibration.cameras.keys() & fitted.keys():
        key = f"intrinsics/{name}"
        arrays[key] = fitted[name].intrinsics(arrays[key], contract.camera(name))
    cameras = zip(contract.cameras, recorded.cameras, strict=True)
    return contract.with_cameras(
        *(replace(old, has_geometry=new.has_geometry) for old, new in cameras)
    ), arrays


def _fitted(episode: StoredEpisode) -> dict[str, FittedImages]:
    try:
        return fitted_images(episode.attributes.extra)
    except ValueError as error:
        raise ValueError(f"Episode {episode.name}: {error}") from error


def _check_sizes(
    contract: Contract, calibration: CameraCalibration, fitted: Mapping[str, FittedImages]
) -> None:
    """Checks that intrinsics of smaller images belong to images whose fit is recorded."""
    unknown = ((name, each) for name, each in calibration.cameras.items() if name not in fitted)
    for name, geometry in unknown:
        height, width = geometry.size
        camera = contract.camera(name)
        if height < camera.height or width < camera.width:
            stored = f"{camera.height}x{camera.width}"
            raise ValueError(
                f"The calibration of the camera {name!r} is for images of {height}x{width} (rows x "
                f"columns), smaller than the stored ones of {stored}. These may be padded, and the "
                "store does not record how an import fitted them. Allowed: the size and the "
                "intrinsics of the stored images, or of larger ones of the same aspect ratio; or "
                "import the data again with cameras=FILE."
            )


def _poses(episode: StoredEpisode) -> dict[str, Array]:
    """Returns the stored poses by the name of the camera."""
    return {
        camera.name: episode.arrays[f"T_base_camera/{camera.name}"]
        for camera in episode.attributes.contract.cameras
        if camera.has_geometry
    }
