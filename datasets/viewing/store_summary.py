"""The summary of a store: a self-contained HTML page with its contents and anomalies."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from stringline.datasets.contract.contract import Contract
from stringline.datasets.editing.edit import duration_s
from stringline.datasets.files.pages import (
    Card,
    Column,
    Content,
    Facts,
    Figure,
    Fold,
    Grid,
    Image,
    Page,
    Section,
    Span,
    Svg,
    Table,
    Text,
)
from stringline.datasets.loading.window_settings import KeyposeSettings
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.store.store import EpisodeStore, Finding, findings, format_size
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
_WARNINGS_NOTE = (
    "Warnings are hints, not errors. Stall: no measured motion for a second. Jump: a command "
    "faster than any arm. Clipped gripper: an opening outside of 0 to 1, or constant at a limit "
    "although the command differs. Frame times should be regular, and shortly before the steps "
    "that refer to the frames."
)
_DEPTH_FRAMES = 8
_LISTED = 200
_SEQUENCES = 10
_LARGE = 224


@dataclass(frozen=True)
class TaskRow:
    """The numbers of episodes of one task by result, and their total duration."""

    task: str
    episodes: int
    successes: int
    failures: int
    unlabelled: int
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
    """Summarises a store; images and distributions come from evenly spaced episodes.

    Args:
        store: The data.
        sample_size: Number of sampled episodes for distributions, images and warnings.

    Raises:
        ValueError: No episode can be read.
    """
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
    minutes = sum(row.seconds for row in summary.tasks) / 60
    headline: list[Content] = [
        f"{summary.episodes} episodes, {minutes:.1f} minutes, {format_size(summary.bytes)}; "
    ]
    if summary.damaged:
        damaged = Span(f"{len(summary.damaged)} damaged", "bad")
        headline += [f"{len(summary.findings)} warnings, ", damaged, "."]
    else:
        headline.append(
            f"{len(summary.findings)} warnings." if summary.findings else "no anomalies."
        )
    note = (
        f"Created {summary.made:%Y-%m-%d %H:%M} UTC. Counts and durations refer to all episodes; "
        f"distributions, images and warnings to {summary.sample_size} of them."
    )
    sections = [
        Section("episodes", "Episodes", [_episodes_card(summary)]),
        Section("warnings", "Warnings", _warnings(summary)),
        Section("cameras", "Cameras", _cameras(summary)),
        Section("strips", "First, middle and last image", _image_strips(summary)),
        Section("keyposes", "Keyposes", _keyposes(summary)),
        Section("actions", "Actions", [_dimensions(summary.action)]),
        Section("state", "Measured joints", [_dimensions(summary.state)] if summary.state else []),
    ]
    top = [Text(headline, "headline"), Text(note, "quiet")]
    Page(summary.title, top, sections).write(path)


def _episodes_card(summary: Summary) -> Card:
    counts = ("episodes", "successes", "failures", "not judged")
    rows = [
        (
            row.task.replace("_", " "),
            *(row.episodes, row.successes, row.failures, row.unlabelled),
            row.seconds / 60,
        )
        for row in summary.tasks
    ]
    columns = [
        Column("task", kind="wrap"),
        *(Column(name, kind="number") for name in counts),
        Column("duration", "min", "number", ".1f"),
    ]
    contract = summary.contract
    sources = ", ".join(f"{source} {count}" for source, count in summary.sources.items())
    note = (
        f"Sources of the actions: {sources}. Embodiment {contract.embodiment}, "
        f"{contract.control_hz:g} actions per second, {len(contract.action)} dimensions."
    )
    durations = Grid([_dimension(summary.durations)], 24)
    return Card([Table(columns, rows), Text(note, "quiet"), durations])


def _warnings(summary: Summary) -> list[Content]:
    blocks: list[Content] = [Text(sentence, "bad") for sentence in summary.damaged]
    columns = [
        Column("episode"),
        Column("time", "s", "number", ".2f"),
        Column("anomaly", kind="wrap"),
    ]
    for kind, found in summary.by_kind().items():
        if not found:
            blocks.append(Text(f"{KINDS[kind]}: none.", name=kind))
            continue
        rows = [(finding.episode, finding.time_s, finding.text) for finding in found[:_LISTED]]
        content: list[Content] = [Table(columns, rows)]
        if len(found) > _LISTED:
            content.append(Text(f"The first {_LISTED} of {len(found)}.", "quiet"))
        episodes = len({finding.episode for finding in found})
        title = f"{KINDS[kind]}: {len(found)}, in {episodes} of {summary.sample_size} episodes"
        blocks.append(Fold(title, Card(content), name=kind))
    return [*blocks, Text(_WARNINGS_NOTE, "quiet")]


def _cameras(summary: Summary) -> list[Content]:
    figures = []
    for camera in summary.cameras:
        depth = "no depth"
        if camera.coverage is not None:
            mean, least = (f"{share * 100:.1f} %" for share in camera.coverage)
            depth = f"{camera.depth} depth on {mean} of the pixels, in the worst episode {least}"
        height, width = camera.size
        images = [Image(camera.colour, f"{camera.name}, colour")]
        if camera.depth_image:
            images.append(Image(camera.depth_image, f"{camera.name}, depth"))
        caption = f"{camera.name}: {height}x{width}, {camera.rate_hz:.3g} Hz, {depth}"
        figures.append(Figure(images, caption))
    note = "From the middle of an episode. Depth: near is light, far is dark, no return is red."
    return [Grid(figures, 14), Text(note, "quiet")] if figures else []


def _image_strips(summary: Summary) -> list[Content]:
    figures = [Figure(Image(strip, name), Text(name, "quiet")) for name, strip in summary.strips]
    return [Grid(figures, 19)] if figures else []


def _keyposes(summary: Summary) -> list[Content]:
    keyposes = summary.keyposes
    blocks: list[Content] = []
    if keyposes.sequences:
        columns = [Column("events", kind="wrap"), Column("episodes", kind="number")]
        table: list[Content] = [Table(columns, keyposes.sequences[:_SEQUENCES])]
        if len(keyposes.sequences) > _SEQUENCES:
            first = f"The first {_SEQUENCES} of {len(keyposes.sequences)} sequences."
            table.append(Text(first, "quiet"))
        legend = (
            f"From above, x to the right and y up, arms {', '.join(summary.contract.arms)}: full "
            f"circles close, empty ones open, squares are stops; lines are the straight parts "
            f"before."
        )
        drawing = Card([Svg(keyposes.drawing), Text(legend, "quiet")])
        blocks.append(Grid([Card(table), drawing], 22, stretched=True))
    if keyposes.images:
        figures = [
            Figure(Image(image, caption), f"{number}: {caption}")
            for number, (image, caption) in enumerate(keyposes.images, 1)
        ]
        blocks += [Text(f"Episode {keyposes.shown}:", "quiet"), Grid(figures, 14)]
    if keyposes.without:
        title = f"Episodes without keyposes: {len(keyposes.without)} of {summary.sample_size}"
        blocks.append(Fold(title, Card(Facts(dict(keyposes.without[:_LISTED])))))
    note = (
        "Where grippers act; stringline-data keyposes counts those of all episodes with their "
        "modes."
    )
    return [*blocks, Text(note, "quiet")]


def _dimensions(found: Sequence[Histogram]) -> Card:
    return Card(Grid([_dimension(histogram) for histogram in found], 12))


def _dimension(histogram: Histogram) -> Figure:
    numbers = f"{histogram.low:.3g} to {histogram.high:.3g}, mean {histogram.mean:.3g}"
    caption = [Text(f"{histogram.name}, {histogram.unit}"), Text(numbers, "quiet")]
    return Figure(Svg(histogram.svg()), caption)


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


def summarise_store(config: DictConfig) -> None:
    """Writes the summary of a store as an HTML page."""
    store = EpisodeStore.open(config.store)
    page = Path(config.output) if config.output is not None else Path(f"{store.path}_summary.html")
    summary = summarise(store, sample_size=config.sample_size)
    write_summary(page, summary)
    found = ", ".join(
        f"{KINDS[kind].lower()} {len(each)}" for kind, each in summary.by_kind().items()
    )
    sys.stdout.write(
        f"{page}: {summary.episodes} episodes; {found}; damaged {len(summary.damaged)}.\n"
    )
