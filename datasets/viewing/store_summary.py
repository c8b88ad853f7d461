"""The summary of a store: a self-contained HTML page with its contents and anomalies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.editing.edit import duration_s
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.templates import template_environment
from stringline.datasets.loading.keyposes import KeyposeSettings
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore, format_size
from stringline.datasets.store.verification import Finding, findings
from stringline.datasets.viewing.keypose_views import KeyposeSection
from stringline.datasets.viewing.page_drawings import (
    Histogram,
    colour_image,
    colour_strip,
    depth_image,
    histograms,
)

SAMPLE_SIZE = 200
SHOWN = 12
KINDS = {
    "stall": "Stalls",
    "jump": "Jumps",
    "gripper": "Clipped grippers",
    "timing": "Irregular frame and step times",
}
_DEPTH_FRAMES = 8
_LISTED = 200
_LARGE = 224


@dataclass(frozen=True)
class TaskRow:
    """The numbers of episodes of one task by result, and their total duration."""

    task: str
    episodes: int
    successes: int
    failures: int
    unjudged: int
    seconds: float


@dataclass(frozen=True)
class CameraRow:
    """One camera; images are data URLs.

    Attributes:
        size: Height and width.
        rate_hz: Median image rate.
        depth: Source of the depth.
        coverage: Share of pixels with a return: the mean, and the minimum over episodes; None
            without depth.
    """

    name: str
    size: tuple[int, int]
    rate_hz: float
    depth: str
    coverage: tuple[float, float] | None
    colour: str
    depth_image: str


@dataclass(frozen=True)
class Summary:
    """The contents of the page.

    All contents except counts and durations come from a sample of the episodes with the most
    frequent contract.

    Attributes:
        sources: Number of episodes by source.
        durations: Durations of all episodes in seconds.
        action: A histogram per dimension.
        state: A histogram per joint.
        strips: Names and images of some episodes.
        damaged: Sentences about unreadable episodes.
        keyposes: Where the grippers act.
        sample_size: Number of sampled episodes.
        made: Time of the summary, UTC.
    """

    title: str
    bytes: int
    tasks: Sequence[TaskRow]
    sources: dict[str, int]
    contract: Contract
    durations: Histogram
    action: Sequence[Histogram]
    state: Sequence[Histogram]
    cameras: Sequence[CameraRow]
    strips: Sequence[tuple[str, str]]
    findings: Sequence[Finding]
    damaged: Sequence[str]
    keyposes: KeyposeSection
    sample_size: int
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return sum(row.episodes for row in self.tasks)

    def by_kind(self) -> dict[str, list[Finding]]:
        """Returns the findings of each kind."""
        return {
            kind: [finding for finding in self.findings if finding.kind == kind] for kind in KINDS
        }


def summarise(store: EpisodeStore, *, sample_size: int = SAMPLE_SIZE) -> Summary:
    """Summarises a store; images and distributions come from evenly spaced episodes."""
    readable, damaged = _readable(store)
    if not readable:
        raise ValueError(
            f"There is no readable episode in {store.path}. {' '.join(damaged[:3])}".strip()
        )
    # Stores of several robots have no common dimensions; the most frequent contract is summarised.
    contract = Counter(episode.attributes.contract for episode in readable).most_common(1)[0][0]
    same = [episode for episode in readable if episode.attributes.contract == contract]
    chosen = [
        same[place] for place in np.unique(np.linspace(0, len(same) - 1, sample_size).astype(int))
    ]
    return Summary(
        title=store.path.absolute().name,
        bytes=sum(episode.nbytes for episode in readable),
        tasks=_tasks(readable),
        sources=dict(Counter(episode.attributes.source for episode in readable).most_common()),
        contract=contract,
        durations=Histogram.of(
            "duration", "s", [duration_s(episode) for episode in readable], bins=30
        ),
        action=histograms(
            [entry.name for entry in contract.action],
            [entry.unit for entry in contract.action],
            [episode.arrays["action"] for episode in chosen],
        ),
        state=_state(contract, chosen),
        cameras=[_camera(place, contract, chosen) for place in range(len(contract.cameras))],
        strips=_strips(contract, chosen),
        findings=[finding for episode in chosen for finding in findings(episode)],
        damaged=damaged,
        keyposes=KeyposeSection.of(chosen, KeyposeSettings()),
        sample_size=len(chosen),
    )


def write_summary(path: Path, summary: Summary) -> None:
    """Writes the page atomically."""
    environment = template_environment(Path(__file__).parent / "assets")
    environment.filters["size"] = format_size
    page = environment.get_template("summary.html.jinja").render(
        summary=summary, kinds=KINDS, listed=_LISTED
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())


def _readable(store: EpisodeStore) -> tuple[list[StoredEpisode], list[str]]:
    readable = []
    damaged = []
    for name in store.names():
        try:
            episode = store.episode(name)
            for key in episode.arrays:
                _ = episode.arrays[key]  # Raises for a missing or truncated file.
            readable.append(episode)
        except ValueError as error:
            damaged.append(str(error))
    return readable, damaged


def _tasks(episodes: Sequence[StoredEpisode]) -> list[TaskRow]:
    rows = []
    for task in sorted({episode.attributes.task for episode in episodes}):
        of_task = [episode for episode in episodes if episode.attributes.task == task]
        judged = Counter(episode.attributes.success for episode in of_task)
        seconds = sum(duration_s(episode) for episode in of_task)
        rows.append(TaskRow(task, len(of_task), judged[True], judged[False], judged[None], seconds))
    return rows


def _state(contract: Contract, chosen: Sequence[StoredEpisode]) -> list[Histogram]:
    rows = [
        episode.arrays["joints/position"]
        for episode in chosen
        if "joints/position" in episode.arrays
    ]
    units = ["opening" if name.endswith("gripper") else "rad" for name in contract.joints]
    return histograms(contract.joints, units, rows) if rows and contract.joints else []


def _camera(place: int, contract: Contract, chosen: Sequence[StoredEpisode]) -> CameraRow:
    camera = contract.cameras[place]
    middle = chosen[len(chosen) // 2]
    gaps = np.concatenate([np.diff(episode.arrays[f"time/{camera.name}"]) for episode in chosen])
    has_depth = all(f"depth/{camera.name}" in episode.arrays for episode in chosen)
    shares = [_coverage(episode, camera.name) for episode in chosen] if has_depth else []
    return CameraRow(
        name=camera.name,
        size=(camera.height, camera.width),
        rate_hz=float(1 / np.median(gaps)) if len(gaps) and np.median(gaps) > 0 else 0.0,
        depth=camera.depth or "none",
        coverage=(float(np.mean(shares)), float(np.min(shares))) if shares else None,
        colour=colour_image(middle, camera.name, _LARGE),
        depth_image=depth_image(middle, camera.name, _LARGE) if has_depth else "",
    )


def _coverage(episode: StoredEpisode, camera: str) -> float:
    """Returns the share of pixels with a return in a few frames."""
    depth = episode.arrays[f"depth/{camera}"]
    return float(
        np.mean(depth[np.unique(np.linspace(0, len(depth) - 1, _DEPTH_FRAMES).astype(int))] > 0)
    )


def _strips(contract: Contract, chosen: Sequence[StoredEpisode]) -> list[tuple[str, str]]:
    if not contract.cameras:
        return []
    shown = [
        chosen[place] for place in np.unique(np.linspace(0, len(chosen) - 1, SHOWN).astype(int))
    ]
    return [(episode.name, colour_strip(episode, contract.cameras[0].name)) for episode in shown]
