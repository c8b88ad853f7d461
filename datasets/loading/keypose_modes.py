"""What the keyposes of a store are: sequences of events, and the modes of each event.

A mode is a way in which demonstrations do the same: at the front or at the back wall of a mug. A
recording has no poses of objects, so two poses are compared by what shifts of the scene and
turns about the vertical leave unchanged:

- the tilt, which is the direction of the vertical in the frame of the gripper,
- the height in the base frame, and
- with depth, the scene: the mean of the points around the gripper before the event, in its frame.

Hence modes that differ only by a turn of the gripper about the vertical count as one, and so do
modes on places that look alike around the gripper.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.loading.keyposes import (
    Keyposes,
    episode_keyposes,
    events_in_words,
)
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.loading.workspace_clouds import CloudMaker, recorded_inputs
from stringline.datasets.store.episode import StoredEpisode

Floats = NDArray[np.float64]
NEAR_M = 0.06
LEVEL_M = 0.15
"""Points within these horizontal and vertical distances of a gripper are the scene around it."""
ABOVE_SUPPORT_M = 0.012
LEAST_SHARE = 0.1
"""Smallest share of the keyposes of an event that is a mode."""


@dataclass(frozen=True, kw_only=True)
class ModeSettings:
    """When two keyposes of an event are alike.

    Attributes:
        mode_m: Heights and scenes of one mode differ by at most this distance, m.
        mode_deg: Tilts of one mode differ by at most this angle, degrees.
    """

    mode_m: float = 0.012
    mode_deg: float = 25.0

    def __post_init__(self) -> None:
        """Checks the values.

        Raises:
            ValueError: A value is not positive.
        """
        POSITIVE.check(mode_m=self.mode_m, mode_deg=self.mode_deg)


@dataclass(frozen=True)
class EventPose:
    """One event of an episode, with the A arms that act.

    Attributes:
        episode: Name of the episode.
        time_s: Time from the beginning of the episode.
        up: (A, 3) the vertical in the frame of each gripper.
        height: (A,) above the base frame, m.
        scene: (A, 3) mean of the points around each gripper in its frame, m; NaN: there are none.
        descent_deg: (A,) angle of the straight part below the horizontal; NaN: there is none.
    """

    episode: str
    time_s: float
    up: Floats
    height: Floats
    scene: Floats
    descent_deg: Floats


@dataclass(frozen=True)
class Mode:
    """Keyposes of an event that are alike.

    Attributes:
        members: The keyposes; the first one is the most typical.
    """

    members: tuple[EventPose, ...]

    def __len__(self) -> int:
        return len(self.members)

    def mean(self, name: str) -> Floats:
        """Returns the mean of an entry over the keyposes that have it; NaN: none has it."""
        values = np.stack([getattr(each, name) for each in self.members])
        count = (~np.isnan(values)).sum(axis=0)
        return np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan)

    def to_dict(self) -> dict[str, Any]:
        """Returns the mode as plain data: means over its keyposes, lengths in m."""
        return {
            "count": len(self),
            "typical": self.members[0].episode,
            **{name: plain(self.mean(name)) for name in ("height", "scene", "descent_deg", "up")},
            "episodes": [each.episode for each in self.members],
        }


@dataclass(frozen=True)
class EventModes:
    """All keyposes of one event.

    Attributes:
        event: The event in words, with its number where an episode has several such events.
        modes: Its modes, the most frequent one first.
        others: Keyposes that belong to no mode.
    """

    event: str
    modes: tuple[Mode, ...]
    others: tuple[EventPose, ...]

    def __len__(self) -> int:
        return sum(map(len, self.modes)) + len(self.others)

    @property
    def times_s(self) -> list[float]:
        """The times of its keyposes, rising."""
        every = (*(each for mode in self.modes for each in mode.members), *self.others)
        return sorted(each.time_s for each in every)

    def to_dict(self) -> dict[str, Any]:
        """Returns the modes as plain data."""
        return {
            "event": self.event,
            "count": len(self),
            "median_s": float(np.median(self.times_s)),
            "modes": [mode.to_dict() for mode in self.modes],
            "others": [each.episode for each in self.others],
        }


@dataclass(frozen=True)
class KeyposeCounts:
    """The keyposes of a store.

    Attributes:
        steps: Steps of the keyposes of each episode that has some.
        sequences: Names of the episodes of each sequence of events, the most frequent one first.
        events: The modes of each event, in the order of time.
        without: Why an episode has no keyposes.
        scenes: Whether modes are told apart by the scene as well.
    """

    steps: dict[str, list[int]]
    sequences: dict[str, list[str]]
    events: list[EventModes]
    without: dict[str, str]
    scenes: bool = field(default=False)

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts as plain data for JSON, without NaN."""
        return {
            "episodes": len(self.steps) + len(self.without),
            "steps": self.steps,
            "sequences": self.sequences,
            "events": [event.to_dict() for event in self.events],
            "without": self.without,
            "scenes": self.scenes,
        }


def count_keyposes(
    episodes: Iterable[StoredEpisode],
    settings: KeyposeSettings,
    modes: ModeSettings,
    maker: CloudMaker | None = None,
) -> KeyposeCounts:
    """Finds the keyposes of all episodes, their sequences and their modes.

    Args:
        episodes: The episodes.
        settings: How keyposes are found.
        modes: When keyposes are alike.
        maker: Makes the clouds of the scene; if None, modes are told apart without them.
    """
    steps: dict[str, list[int]] = {}
    sequences: dict[str, list[str]] = defaultdict(list)
    poses: dict[str, list[EventPose]] = defaultdict(list)
    without: dict[str, str] = {}
    for episode in episodes:
        try:
            keyposes = episode_keyposes(episode, settings)
        except ValueError as error:  # No keypose, or no kinematics.
            without[episode.name] = str(error)
            continue
        steps[episode.name] = keyposes.start.tolist()
        words = list(events_in_words(keyposes, episode.attributes.contract.arms))
        sequences[", ".join(words)].append(episode.name)
        for event, pose in zip(
            _numbered(words), _event_poses(episode, keyposes, maker), strict=True
        ):
            poses[event].append(pose)
    ordered = sorted(poses, key=lambda event: np.median([each.time_s for each in poses[event]]))
    by_count = sorted(sequences.items(), key=lambda entry: -len(entry[1]))
    events = [modes_of_event(event, poses[event], modes) for event in ordered]
    return KeyposeCounts(steps, dict(by_count), events, without, scenes=maker is not None)


def _numbered(words: Sequence[str]) -> Iterator[str]:
    """Yields events with their number from the second event of the same words on."""
    seen: Counter[str] = Counter()
    for word in words:
        seen[word] += 1
        yield word if seen[word] == 1 else f"{word} ({seen[word]})"


def _event_poses(
    episode: StoredEpisode, keyposes: Keyposes, maker: CloudMaker | None
) -> Iterator[EventPose]:
    time = np.asarray(episode.arrays["time"], np.float64)
    before = np.concatenate(([0], keyposes.end[:-1]))
    for row in range(len(keyposes)):
        arms = np.flatnonzero(keyposes.acting[row])
        pose = keyposes.pose[row, arms]
        way = pose[:, :3, 3] - keyposes.approach[row, arms, :3, 3]
        length = np.linalg.norm(way, axis=-1)
        sine = np.where(length > 0.01, -way[:, 2] / np.maximum(length, 0.01), np.nan)
        yield EventPose(
            episode.name,
            float(time[keyposes.start[row]] - time[0]),
            pose[:, 2, :3],
            pose[:, 2, 3],
            _scene(episode, int(before[row]), pose, maker),
            np.rad2deg(np.arcsin(np.clip(sine, -1.0, 1.0))),
        )


def _scene(episode: StoredEpisode, step: int, poses: Floats, maker: CloudMaker | None) -> Floats:
    """Returns the mean of the points around grippers (A, 4, 4) at a step, in their frames."""
    found = np.full((len(poses), 3), np.nan)
    if maker is None or not any(f"depth/{c.name}" in episode.entries for c in maker.cameras):
        return found
    cloud = maker(next(recorded_inputs(episode, maker.cameras, np.array([step]))))
    points = cloud.points[: cloud.count].astype(np.float64)
    points = points[points[:, 2] > cloud.support + ABOVE_SUPPORT_M]
    for row, pose in enumerate(poses):
        away = points - pose[:3, 3]
        near = np.linalg.norm(away[:, :2], axis=-1) < NEAR_M
        near &= np.abs(away[:, 2]) < LEVEL_M
        if near.any():
            found[row] = away[near].mean(axis=0) @ pose[:3, :3]
    return found


def modes_of_event(event: str, poses: Sequence[EventPose], settings: ModeSettings) -> EventModes:
    """Divides the keyposes of an event into modes.

    The densest group of alike keyposes is a mode, then the densest of the rest, and so on. Two
    groups with as many keyposes between them as within are one mode, so that what varies without
    a gap is not divided. Keyposes nearby join the nearest group.
    """
    distance = _distances(poses, poses, settings)
    near = distance <= 1
    free = np.ones(len(poses), bool)
    least = max(2, int(np.ceil(LEAST_SHARE * len(poses))))
    centres: list[int] = []
    while free.any():
        count = (near & free).sum(axis=1) * free
        if len(poses) > 1 and count.max() < least:
            break
        centres.append(int(count.argmax()))
        free &= ~near[centres[-1]]
    group = _joined(centres, poses, distance, settings)
    rows: dict[int, list[int]] = {label: [centres[label]] for label in sorted(set(group))}
    others = []
    for row, away in enumerate(distance[:, centres]):
        if row in centres and group[centres.index(row)] == centres.index(row):
            continue  # It is the first one of its mode already.
        nearest = int(away.argmin()) if centres else 0
        if centres and away[nearest] <= 2:
            rows[group[nearest]].append(row)
        else:
            others.append(poses[row])
    modes = [Mode(tuple(poses[row] for row in members)) for members in rows.values()]
    return EventModes(event, tuple(sorted(modes, key=len, reverse=True)), tuple(others))


def _joined(
    centres: Sequence[int],
    poses: Sequence[EventPose],
    distance: Floats,
    settings: ModeSettings,
) -> list[int]:
    """Returns the group of each centre; those without a gap between them are one.

    There is a gap if fewer than half as many keyposes are at the middle between two centres as at
    the smaller one, all within half the distance of a mode.
    """
    group = list(range(len(centres)))
    count = (distance <= 0.5).sum(axis=1)
    for second in range(len(centres)):
        for first in range(second):
            ends = [poses[centres[first]], poses[centres[second]]]
            if np.isnan(ends[0].scene).tolist() != np.isnan(ends[1].scene).tolist():
                continue
            between = (_distances([_midpoint(*ends)], poses, settings)[0] <= 0.5).sum()
            if between > 0.5 * min(count[centres[first]], count[centres[second]]):
                joined = {group[first], group[second]}
                group = [min(joined) if label in joined else label for label in group]
    return group


def _midpoint(first: EventPose, second: EventPose) -> EventPose:
    up = first.up + second.up
    up = up / np.maximum(np.linalg.norm(up, axis=-1, keepdims=True), 1e-9)
    height, scene, descent_deg = (
        (getattr(first, name) + getattr(second, name)) / 2
        for name in ("height", "scene", "descent_deg")
    )
    return EventPose("", 0.0, up, height, scene, descent_deg)


def _distances(
    first: Sequence[EventPose], second: Sequence[EventPose], settings: ModeSettings
) -> Floats:
    """Returns the distances (N, M) of keyposes; up to 1 they are alike."""

    def parts(name: str) -> tuple[Floats, Floats]:
        one, two = (np.stack([getattr(e, name) for e in each]) for each in (first, second))
        return one[:, None], two[None]

    up, other_up = parts("up")
    angle = np.arccos(np.clip((up * other_up).sum(-1), -1.0, 1.0))
    height, other_height = parts("height")
    scene, other_scene = parts("scene")
    unseen, other_unseen = (np.isnan(each).any(axis=-1) for each in (scene, other_scene))
    away = np.linalg.norm(np.nan_to_num(scene) - np.nan_to_num(other_scene), axis=-1)
    away = np.where(unseen | other_unseen, np.where(unseen & other_unseen, 0.0, np.inf), away)
    each = np.stack(
        (
            angle / np.deg2rad(settings.mode_deg),
            np.abs(height - other_height) / settings.mode_m,
            away / settings.mode_m,
        )
    )
    return np.asarray(each.max(axis=(0, 3)))


def plain(values: Floats) -> Any:
    """Returns an array as lists for JSON, with None for NaN."""
    shown = values.astype(object)
    shown[np.isnan(values)] = None
    return shown.tolist()
