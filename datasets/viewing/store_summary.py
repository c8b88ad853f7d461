"""The summary of a store: one HTML file that shows what was recorded and what looks wrong, and that needs nothing beside it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import jinja2
import numpy as np

from stringline.datasets.contract.contract import Contract
from stringline.datasets.editing.edit import duration_s
from stringline.datasets.files.atomic import write_file
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.quality import Finding, findings
from stringline.datasets.store.sizes import mebibytes
from stringline.datasets.store.store import EpisodeStore
from stringline.datasets.viewing.page_drawings import (
    Histogram,
    colour_image,
    colour_strip,
    depth_image,
    histograms,
)

LOOKED_AT = 200
SHOWN = 12
KINDS = {
    "stall": "Stalls",
    "jump": "Jumps",
    "gripper": "Clipped grippers",
    "timing": "Mis-timed frames and steps",
}
_DEPTH_FRAMES = 8
_LISTED = 200
_LARGE = 224


@dataclass(frozen=True)
class TaskRow:
    """The episodes of one task: how many, how many succeeded, failed or were never judged, and their seconds together."""

    task: str
    episodes: int
    successes: int
    failures: int
    unjudged: int
    seconds: float


@dataclass(frozen=True)
class CameraRow:
    """One camera.

    Attributes:
        name: Its name.
        size: Height and width.
        rate_hz: Median rate of its images.
        depth: Where its depth comes from.
        coverage: Share of pixels with a return: the mean, and the least of any episode; None
            without depth.
        colour: An image, as a data address.
        depth_image: Its depth, the same.
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
    """What the page says.

    Attributes:
        title: Of the store.
        bytes: Of all arrays.
        tasks: A row per task.
        sources: Episodes by who acted.
        contract: Of the episodes that were looked at.
        durations: Of all episodes, seconds.
        action: A histogram per dimension.
        state: The same.
        cameras: A row per camera.
        strips: Name and images of some episodes.
        findings: What looks wrong.
        damaged: Sentences about episodes that cannot be read.
        looked_at: How many episodes everything but counts and durations comes from.
        made: When, UTC.
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
    looked_at: int
    made: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def episodes(self) -> int:
        """How many episodes there are."""
        return sum(row.episodes for row in self.tasks)

    def by_kind(self) -> dict[str, list[Finding]]:
        """Returns the findings of each kind, those first that are many."""
        return {
            kind: [finding for finding in self.findings if finding.kind == kind] for kind in KINDS
        }


def summarise(store: EpisodeStore, *, looked_at: int = LOOKED_AT) -> Summary:
    """Looks at a store; images and numbers come from some episodes, evenly chosen, where there are many.

    Args:
        store: The data.
        looked_at: From how many episodes.

    Raises:
        ValueError: There is no episode that can be read.
    """
    readable, damaged = _readable(store)
    if not readable:
        raise ValueError(
            f"There is no episode to look at in {store.path}. {' '.join(damaged[:3])}".strip()
        )
    # Sets of several robots have no common dimensions; the most frequent contract is looked at.
    contract = Counter(episode.attributes.contract for episode in readable).most_common(1)[0][0]
    same = [episode for episode in readable if episode.attributes.contract == contract]
    chosen = [
        same[place] for place in np.unique(np.linspace(0, len(same) - 1, looked_at).astype(int))
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
        looked_at=len(chosen),
    )


def write_summary(path: Path, summary: Summary) -> None:
    """Writes the page; the file appears when it is complete.

    Raises:
        NoSpaceError: The disk is full.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = mebibytes
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
                _ = episode.arrays[key]  # A file that is missing or cut short shows here.
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
    """Returns the share of pixels with a return, in a few frames."""
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
