"""The report of a run: one HTML file with videos and charts inside, which needs nothing else to be read."""

import base64
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import jinja2

from stringline.datasets.files.atomic import write_file
from stringline.sim.collection.rerun_command import Replay
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.trace import read_trace, trace_of_video
from stringline.sim.report.charts import reached_text, timeline
from stringline.sim.report.scene_cloud import SceneCloud
from stringline.sim.statistics.intervals import Rate

logger = logging.getLogger(__name__)

LARGEST_BYTES = 50 * 10**6
_ROOM_FOR_A_NOTE = 300


@dataclass(frozen=True)
class Clip:
    """A video with what became of its episode.

    Attributes:
        path: An mp4 file; beside it may lie a trace, see `trace.py`.
        result: The episode.
        run: What acted, as in `Report.episodes`.
        cloud: What the policy saw first, in space.
    """

    path: Path
    result: EpisodeResult
    run: str = ""
    cloud: SceneCloud | None = None


@dataclass(frozen=True)
class Report:
    """What a report says.

    Attributes:
        title: What was done, a few words.
        headline: What came out, one or two sentences.
        facts: What was run, on what, with which versions and seeds, by name.
        rates: Success by who acted or by task, such as `expert`, `policy`, `policy through the
            wire`.
        failures: What could not be run at all, with the reason, by the same kind of name.
        phases: Seconds that each part of the run took, by name.
        episodes: The results behind the rates, where they are known one by one.
        videos: The folder of the videos and traces of those episodes, where there is one.
        replays: How to run those episodes again, where one command does.
        clips: Videos to show, the first of them if not all fit.
        losses: (step, loss) of the training.
        probes: (step, value by name) of the probe beside the loss.
        validations: (step, loss) on what was not trained on.
        successes: (step, success in simulation) while the training went on.
        comparison: HTML to embed as it is, such as `Comparison.section()`.
        commands: What to type to do it all again, in order.
        notes: Sentences that a reader needs to read the numbers rightly.
        kind: What rates and episodes are named by, such as `task`.
        finished: When, UTC.
    """

    title: str
    headline: str
    facts: Mapping[str, str]
    rates: Mapping[str, Rate]
    failures: Mapping[str, str] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    episodes: Mapping[str, Sequence[EpisodeResult]] = field(default_factory=dict)
    videos: Mapping[str, Path] = field(default_factory=dict)
    replays: Mapping[str, Replay] = field(default_factory=dict)
    clips: Sequence[Clip] = ()
    losses: Sequence[tuple[int, float]] = ()
    probes: Sequence[tuple[int, Mapping[str, float]]] = ()
    validations: Sequence[tuple[int, float]] = ()
    successes: Sequence[tuple[int, Rate]] = ()
    comparison: str = ""
    commands: Sequence[str] = ()
    notes: Sequence[str] = ()
    kind: str = "acted"
    finished: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True)
class _Row:
    """An episode as the page shows it; SVG and reached stages are empty without a trace, the command without a `Replay`."""

    run: str
    result: EpisodeResult
    command: str
    timeline: str
    large: str
    reached: str


@dataclass(frozen=True)
class _Shown:
    """A video with its row; `data` is base64."""

    clip: Clip
    row: _Row
    data: str


def choose_clips(
    results: Sequence[EpisodeResult],
    videos: Path,
    *,
    run: str = "",
    successes: int = 3,
    failures: int = 3,
) -> list[Clip]:
    """Returns videos of the first successes and the first failures, those that exist, successes first."""
    wanted = [result for result in results if result.success][:successes]
    wanted += [result for result in results if not result.success][:failures]
    clips = [Clip(videos / f"{result.seed}.mp4", result, run) for result in wanted]
    return [clip for clip in clips if clip.path.is_file()]


def write_report(path: Path, report: Report) -> None:
    """Writes the report; the file appears when it is complete and has at most 50 MB.

    Videos that do not fit are left out, the last ones first, and the page says so; if the rest
    alone were too large, so are timelines.

    Raises:
        NoSpaceError: The disk is full.
        ValueError: It would be too large even so.
    """
    rows = [
        _row(report, run, result) for run, results in report.episodes.items() for result in results
    ]
    without_videos = len(
        _page(report, rows, [_Shown(clip, _row_of(clip, report), "") for clip in report.clips])
    )
    clips = report.clips
    if without_videos > LARGEST_BYTES - _ROOM_FOR_A_NOTE:
        logger.warning(
            "The report has no room for videos, nor for the timelines of %d episodes.", len(rows)
        )
        rows = [replace(row, timeline="") for row in rows]
        clips = ()
        without_videos = len(_page(report, rows, []))
    if without_videos > LARGEST_BYTES:
        raise ValueError(
            f"The report would have {without_videos / 1e6:.0f} MB; allowed: "
            f"{LARGEST_BYTES / 1e6:.0f} MB."
        )
    shown = list(_embedded(clips, report, LARGEST_BYTES - _ROOM_FOR_A_NOTE - without_videos))
    if len(shown) < len(report.clips):
        logger.warning("The report has room for %d of %d videos.", len(shown), len(report.clips))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, _page(report, rows, shown))


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


def _page(report: Report, rows: Sequence[_Row], shown: Sequence[_Shown]) -> bytes:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    summaries = {name: Summary.of(results) for name, results in report.episodes.items() if results}
    stages = {name: summary.reached for name, summary in summaries.items()}
    page = environment.get_template("report.html.jinja").render(
        report=report,
        shown=shown,
        rows=rows,
        timelines=any(row.timeline for row in rows),
        left_out=len(report.clips) - len(shown),
        largest_mb=LARGEST_BYTES // 10**6,
        outcomes={"success": "successes", "failure": "failures"},
        stages=list(
            dict.fromkeys(
                row.result.stage_name for row in sorted(rows, key=lambda row: row.result.stage)
            )
        ),
        summaries=summaries,
        troubled=[row for row in rows if row.result.trouble or row.result.unstable],
        **_charts(report, stages),
    )
    return page.encode()


def _charts(report: Report, stages: Mapping[str, Mapping[str, Rate]]) -> dict[str, str]:
    # Not at the start of every command: matplotlib takes half a second.
    from stringline.sim.report.charts import rates_chart, training_chart

    rates = rates_chart(report.rates, stages) if report.rates else ""
    losses = (
        training_chart(report.losses, report.probes, report.validations, report.successes)
        if report.losses
        else ""
    )
    return {"rates_chart": rates, "training_chart": losses}


def _row(report: Report, run: str, result: EpisodeResult) -> _Row:
    command = report.replays[run].command(result.seed) if run in report.replays else ""
    folder = report.videos.get(run)
    trace = None if folder is None else read_trace(trace_of_video(folder / f"{result.seed}.mp4"))
    if trace is None:
        return _Row(run, result, command, "", "", "")
    small, large = (timeline(trace, result.time_s, large=large) for large in (False, True))
    return _Row(run, result, command, small, large, reached_text(trace))


def _row_of(clip: Clip, report: Report) -> _Row:
    return _row(replace(report, videos={clip.run: clip.path.parent}), clip.run, clip.result)


def _embedded(clips: Sequence[Clip], report: Report, room: int) -> Iterator[_Shown]:
    """Yields the videos with their data, as many as fit into `room` bytes."""
    for clip in clips:
        data = base64.b64encode(clip.path.read_bytes()).decode()
        room -= len(data)
        if room < 0:
            return
        yield _Shown(clip, _row_of(clip, report), data)
