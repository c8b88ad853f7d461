"""The report of a run: one HTML file with films and charts inside, which needs nothing else to be read."""

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import jinja2

from stringline.datasets.disk import write_file
from stringline.datasets.intervals import Rate
from stringline.sim.charts import rates_chart, training_chart
from stringline.sim.results import EpisodeResult, Summary

logger = logging.getLogger(__name__)

LARGEST_BYTES = 20 * 10**6
_ROOM_FOR_TEXT = 2 * 10**6


@dataclass(frozen=True)
class Clip:
    """A film with what became of its episode.

    Attributes:
        path: An mp4 file.
        result: The episode.
        run: What acted, as in `Report.episodes`.
    """

    path: Path
    result: EpisodeResult
    run: str = ""


@dataclass(frozen=True)
class Report:
    """What a report says.

    Attributes:
        title: What was done, a few words.
        headline: What came out, one or two sentences.
        facts: What was run, on what, with which versions and seeds, by name.
        rates: Success by who acted, such as `expert`, `policy`, `policy through the wire`.
        phases: Seconds that each part of the run took, by name.
        episodes: The results behind the rates, where they are known one by one.
        clips: Films, the first of them if not all fit.
        losses: (step, loss) of the training.
        probes: (step, value by name) of the probe beside the loss.
        commands: What to type to do it all again, in order.
        notes: Sentences that a reader needs to read the numbers rightly.
        finished: When, UTC.
    """

    title: str
    headline: str
    facts: Mapping[str, str]
    rates: Mapping[str, Rate]
    phases: Mapping[str, float] = field(default_factory=dict)
    episodes: Mapping[str, Sequence[EpisodeResult]] = field(default_factory=dict)
    clips: Sequence[Clip] = ()
    losses: Sequence[tuple[int, float]] = ()
    probes: Sequence[tuple[int, Mapping[str, float]]] = ()
    commands: Sequence[str] = ()
    notes: Sequence[str] = ()
    finished: datetime = field(default_factory=lambda: datetime.now(UTC))


def choose_clips(
    results: Sequence[EpisodeResult], films: Path, *, run: str = "", successes: int = 3, failures: int = 3
) -> list[Clip]:
    """Returns films of the first successes and the first failures, those that exist, successes first."""
    wanted = [result for result in results if result.success][:successes]
    wanted += [result for result in results if not result.success][:failures]
    clips = [Clip(films / f"{result.seed}.mp4", result, run) for result in wanted]
    return [clip for clip in clips if clip.path.is_file()]


def write_report(path: Path, report: Report) -> None:
    """Writes the report; the file appears when it is complete and has at most 20 MB.

    Raises:
        NoSpaceError: The disk is full.
    """
    folder = Path(__file__).parent / "assets"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    page = environment.get_template("report.html.jinja").render(
        report=report,
        films=_embedded(report.clips),
        summaries={name: Summary.of(results) for name, results in report.episodes.items() if results},
        rates_chart=rates_chart(report.rates) if report.rates else "",
        training_chart=training_chart(report.losses, report.probes) if report.losses else "",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode())


def duration(seconds: float) -> str:
    """Returns seconds as a reader says them: `0.8 s`, `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _embedded(clips: Sequence[Clip]) -> list[tuple[Clip, str]]:
    """Returns the films as base64, as many as fit."""
    films: list[tuple[Clip, str]] = []
    room = LARGEST_BYTES - _ROOM_FOR_TEXT
    for clip in clips:
        data = base64.b64encode(clip.path.read_bytes()).decode()
        room -= len(data)
        if room < 0:
            logger.warning("The report has room for %d of %d films.", len(films), len(clips))
            break
        films.append((clip, data))
    return films
