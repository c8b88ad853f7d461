"""How keyposes are shown: as entities of a rerun recording, and in the summary of a store.

world/keyposes/<n>_<arm>            the way corner, approach, pose, departure, with labels
world/keyposes/<n>_<arm>/<pose>     each of the four poses, drawn as three axes
world/next_keypose                  where the grippers act next
keyposes                            a line of text at the time of each event
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.keyposes import (
    Keyposes,
    episode_keyposes,
    events_in_words,
)
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.viewing.page_drawings import colour_frame

Floats = NDArray[np.float64]
POSES = ("corner", "approach", "pose", "departure")
AXES_M = {"pose": 0.05, "corner": 0.02, "approach": 0.025, "departure": 0.02}
COLOURS = ((60, 130, 220), (220, 130, 50))
_RADIUS_M = 0.002
_NEXT_RADIUS_M = 0.012
_PICTURE = 176
_PIXELS_PER_M = 400.0
_MARGIN_M = 0.05


@dataclass(frozen=True)
class KeyposeEntities:
    """The keyposes of an episode as entities of a recording.

    Attributes:
        episode: The episode.
        keyposes: Its keyposes; if None, it has none.
        reason: Why it has none.
    """

    episode: StoredEpisode
    keyposes: Keyposes | None
    reason: str = ""

    @classmethod
    def of(cls, episode: StoredEpisode, settings: KeyposeSettings) -> "KeyposeEntities":
        """Finds the keyposes; an episode without any is shown without them."""
        try:
            return cls(episode, episode_keyposes(episode, settings))
        except ValueError as error:
            return cls(episode, None, str(error))

    @property
    def sentence(self) -> str:
        """The events with their times, or why there are none."""
        if self.keyposes is None:
            return f"No keyposes. {self.reason}"
        events = [f"{words} at {time:.2f} s" for words, time in self.events(self.keyposes)]
        return f"{len(events)} keyposes: {', '.join(events)}."

    def events(self, keyposes: Keyposes) -> list[tuple[str, float]]:
        """Returns the events in words with their times, s."""
        time = np.asarray(self.episode.arrays["time"], np.float64)
        words = events_in_words(keyposes, self.episode.attributes.contract.arms)
        return list(zip(words, (time[keyposes.start] - time[0]).tolist(), strict=True))

    def log(self, rerun: ModuleType, stream: Any) -> None:
        """Logs the entities; without keyposes, the reason alone."""
        if self.keyposes is None:
            stream.set_time("step", sequence=0)
            stream.set_time("time", duration=0.0)
            stream.log("keyposes", rerun.TextLog(self.sentence, level="WARN"))
            stream.reset_time()
            return
        arms = self.episode.attributes.contract.arms
        for row, (words, time) in enumerate(self.events(self.keyposes)):
            for arm in np.flatnonzero(self.keyposes.acting[row]).tolist():
                self._log_way(rerun, stream, row, arm, words)
            stream.set_time("step", sequence=int(self.keyposes.start[row]))
            stream.set_time("time", duration=time)
            before = self.keyposes.before[row]
            after = self.keyposes.after[row]
            openings = ", ".join(
                f"{arms[arm]} {before[arm]:.2f} to {after[arm]:.2f}"
                for arm in np.flatnonzero(self.keyposes.acting[row]).tolist()
            )
            stream.log("keyposes", rerun.TextLog(f"{row + 1}: {words} ({openings})", level="INFO"))
            stream.reset_time()
        self._log_next(rerun, stream, self.keyposes)

    def _log_way(self, rerun: ModuleType, stream: Any, row: int, arm: int, words: str) -> None:
        """Logs the poses of one arm at one event, as they are at all times."""
        assert self.keyposes is not None  # Checked by the caller.
        name = self.episode.attributes.contract.arms[arm]
        path = f"world/keyposes/{row + 1}_{name}"
        poses = {kind: getattr(self.keyposes, kind)[row, arm] for kind in POSES}
        points = np.stack([pose[:3, 3] for pose in poses.values()])
        colour = COLOURS[arm % len(COLOURS)]
        labels = [f"{row + 1} {words}" if kind == "pose" else kind for kind in POSES]
        stream.log(
            path,
            rerun.LineStrips3D([points], colors=[colour], radii=_RADIUS_M),
            rerun.Points3D(points, colors=colour, radii=2 * _RADIUS_M, labels=labels),
            static=True,
        )
        for kind, pose in poses.items():
            stream.log(
                f"{path}/{kind}",
                rerun.Transform3D(translation=pose[:3, 3], mat3x3=pose[:3, :3]),
                rerun.TransformAxes3D(AXES_M[kind]),
                static=True,
            )

    def _log_next(self, rerun: ModuleType, stream: Any, keyposes: Keyposes) -> None:
        """Logs the positions of the next keypose from the end of each event to the next event."""
        time = np.asarray(self.episode.arrays["time"], np.float64)
        begins = [0, *keyposes.end.tolist()]
        for row, step in enumerate(begins):
            stream.set_time("step", sequence=step)
            stream.set_time("time", duration=float(time[min(step, len(time) - 1)] - time[0]))
            acting = keyposes.acting[row] if row < len(keyposes) else keyposes.acting[-1] & False
            places = keyposes.pose[min(row, len(keyposes) - 1), acting, :3, 3]
            colours = [COLOURS[arm % len(COLOURS)] for arm in np.flatnonzero(acting).tolist()]
            points = rerun.Points3D(places, colors=colours, radii=_NEXT_RADIUS_M)
            stream.log("world/next_keypose", points)
        stream.reset_time()


@dataclass(frozen=True)
class KeyposeSection:
    """The keyposes of some episodes, for the summary of their store.

    Attributes:
        sequences: Sequences of events with the numbers of episodes, the most frequent one first.
        without: Names of the episodes without keyposes, and why they have none.
        drawing: The events from above, as SVG; empty: there are none.
        shown: The episode whose images at its events are shown.
        images: An image of the first camera at each event, as a data URL, with its event.
    """

    sequences: Sequence[tuple[str, int]]
    without: Sequence[tuple[str, str]]
    drawing: str = ""
    shown: str = ""
    images: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, episodes: Sequence[StoredEpisode], settings: KeyposeSettings) -> "KeyposeSection":
        """Finds the keyposes of episodes with the same contract."""
        found = [KeyposeEntities.of(episode, settings) for episode in episodes]
        seen = [(each, each.keyposes) for each in found if each.keyposes is not None]
        without = [(each.episode.name, each.reason) for each in found if each.keyposes is None]
        if not seen:
            return cls((), without)
        contract = episodes[0].attributes.contract
        texts = [", ".join(events_in_words(each, contract.arms)) for _, each in seen]
        sequences = Counter(texts).most_common()
        typical, keyposes = seen[texts.index(sequences[0][0])]
        return cls(
            sequences,
            without,
            from_above([each for _, each in seen], contract),
            typical.episode.name,
            _images(typical, keyposes, contract),
        )


def _images(
    typical: KeyposeEntities, keyposes: Keyposes, contract: Contract
) -> list[tuple[str, str]]:
    if not contract.cameras:
        return []
    name = contract.cameras[0].name
    frames = typical.episode.arrays[f"frame/{name}"]
    return [
        (colour_frame(typical.episode, name, int(frames[step]), _PICTURE), f"{words}, {time:.1f} s")
        for step, (words, time) in zip(
            keyposes.start.tolist(), typical.events(keyposes), strict=True
        )
    ]


def from_above(episodes: Sequence[Keyposes], contract: Contract) -> str:
    """Returns the keyposes of episodes from above, x to the right and y up, as SVG.

    A full circle is a gripper that closes, an empty one a gripper that opens, a square a stop. The
    line is the straight part before it.
    """
    marks = [
        (keyposes.pose[row, arm, :2, 3], keyposes.approach[row, arm, :2, 3], arm, change)
        for keyposes in episodes
        for row, arm in np.argwhere(keyposes.acting).tolist()
        for change in [float(keyposes.after[row, arm] - keyposes.before[row, arm])]
    ]
    points = np.stack([point for at, start, _, _ in marks for point in (at, start)])
    low = points.min(axis=0) - _MARGIN_M
    high = points.max(axis=0) + _MARGIN_M
    width, height = (_PIXELS_PER_M * (high - low)).tolist()

    def pixel(point: Floats) -> tuple[float, float]:
        x, y = (_PIXELS_PER_M * (point - low)).tolist()
        return x, height - y

    parts = [
        _mark(pixel(at), pixel(start), f"var(--{'second' if arm % 2 else 'accent'})", change)
        for at, start, arm, change in marks
    ]
    size = " x ".join(f"{length:.2f} m" for length in (high - low).tolist())
    title = f"{len(marks)} keyposes from above, {size}, arms {', '.join(contract.arms)}"
    return (
        f'<svg role="img" viewBox="0 0 {width:.0f} {height:.0f}"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>"
    )


def _mark(at: tuple[float, float], start: tuple[float, float], colour: str, change: float) -> str:
    x, y = at
    line = (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{x:.1f}" y2="{y:.1f}" '
        f'stroke="{colour}" stroke-opacity="0.4"/>'
    )
    if abs(change) < 0.05:
        return f'{line}<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{colour}"/>'
    style: Mapping[bool, str] = {
        True: f'fill="{colour}" fill-opacity="0.75"',
        False: f'fill="none" stroke="{colour}" stroke-width="1.5"',
    }
    return f'{line}<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {style[change < 0]}/>'
