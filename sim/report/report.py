"""The report of a run: one self-contained HTML file with videos and charts."""

import base64
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.templates import template_environment
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.trace import read_trace, trace_of_video
from stringline.sim.report.charts import reached_text, timeline
from stringline.sim.report.rerun_command import RerunCommand
from stringline.sim.report.scene_cloud import SceneCloud
from stringline.sim.rollout.video import poster
from stringline.sim.statistics.intervals import Rate

logger = logging.getLogger(__name__)

LARGEST_BYTES = 50 * 10**6
_ROOM_FOR_A_NOTE = 300


@dataclass(frozen=True)
class Clip:
    """A video with the result of its episode.

    Attributes:
        path: An mp4 file; a trace may be beside it, see `trace.py`.
        run: Name of the run in `Report.episodes`.
        cloud: First observation of the policy, as points.
        film: Another video of the episode, for people; shown first.
        start: Task and seed; clips with the same start are shown side by side. Empty: alone.
    """

    path: Path
    result: EpisodeResult
    run: str = ""
    cloud: SceneCloud | None = None
    film: Path | None = None
    start: str = ""


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        headline: Outcome in one or two sentences.
        facts: Checkpoint, seeds, machine, versions and other facts, by name.
        rates: Success rates by run, such as `expert`, `policy` or the name of a task.
        failures: Reasons of runs that failed, by run.
        phases: Duration of each phase, seconds.
        episodes: Results by run.
        videos: Folder of videos and traces by run.
        reruns: Command lines of those episodes, by the same names.
        clips: Videos in order of preference.
        losses: (step, loss) of the training.
        probes: (step, metrics by name) of the probe.
        validations: (step, loss) on held-out episodes.
        successes: (step, success rate in simulation) during training.
        comparison: HTML to embed, such as `Comparison.section()`.
        commands: Commands that repeat the whole run, in order.
        notes: Sentences on the interpretation of the numbers.
        kind: Kind of the names of runs, such as `task`.
        finished: Time of the end, UTC.
    """

    title: str
    headline: str
    facts: Mapping[str, str]
    rates: Mapping[str, Rate]
    failures: Mapping[str, str] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    episodes: Mapping[str, Sequence[EpisodeResult]] = field(default_factory=dict)
    videos: Mapping[str, Path] = field(default_factory=dict)
    reruns: Mapping[str, RerunCommand] = field(default_factory=dict)
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
    """An episode on the page; without a trace or a command the fields are empty."""

    run: str
    result: EpisodeResult
    command: str
    timeline: str
    large: str
    reached: str


@dataclass(frozen=True)
class _Shown:
    """A clip with its row; videos have their posters, and all of them are base64."""

    clip: Clip
    row: _Row
    video: tuple[str, str] = ("", "")
    film: tuple[str, str] | None = None


def choose_clips(
    results: Sequence[EpisodeResult],
    videos: Path,
    *,
    run: str = "",
    successes: int = 3,
    failures: int = 3,
) -> list[Clip]:
    """Returns the existing videos of the first successes and the first failures."""
    wanted = [result for result in results if result.success][:successes]
    wanted += [result for result in results if not result.success][:failures]
    clips = [Clip(videos / f"{result.seed}.mp4", result, run) for result in wanted]
    return [clip for clip in clips if clip.path.is_file()]


def write_report(path: Path, report: Report) -> None:
    """Writes the report; the file appears when it is complete and has at most 50 MB.

    The last videos are omitted if they do not fit, with a note on the page; if the rest alone is
    too large, all videos and timelines are omitted.

    Raises:
        NoSpaceError: The disk is full.
        ValueError: The report is too large without videos and timelines.
    """
    rows = [
        _row(report, run, result) for run, results in report.episodes.items() for result in results
    ]
    clips = report.clips
    empty = [
        _Shown(clip, _row_of(clip, report), film=("", "") if clip.film else None) for clip in clips
    ]
    without_videos = len(_page(report, rows, empty))
    if without_videos > LARGEST_BYTES - _ROOM_FOR_A_NOTE:
        logger.warning(
            "The report is too large for videos and for the timelines of %d episodes.", len(rows)
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
        logger.warning("%d of %d videos fit into the report.", len(shown), len(report.clips))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, _page(report, rows, shown))


def duration(seconds: float) -> str:
    """Returns a duration as text: `0.8 s`, `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _page(report: Report, rows: Sequence[_Row], shown: Sequence[_Shown]) -> bytes:
    environment = template_environment(Path(__file__).parent / "assets")
    environment.filters["duration"] = duration
    summaries = {name: Summary.of(results) for name, results in report.episodes.items() if results}
    stages = {name: summary.reached for name, summary in summaries.items()}
    page = environment.get_template("report.html.jinja").render(
        report=report,
        shown=shown,
        rows=rows,
        timelines=any(row.timeline for row in rows),
        omitted=len(report.clips) - len(shown),
        largest_mb=LARGEST_BYTES // 10**6,
        outcomes={"success": "successes", "failure": "failures"},
        stages=list(
            dict.fromkeys(
                row.result.stage_name for row in sorted(rows, key=lambda row: row.result.stage)
            )
        ),
        summaries=summaries,
        incomplete=[row for row in rows if row.result.error or row.result.unstable],
        **_charts(report, stages),
    )
    return page.encode()


def _charts(report: Report, stages: Mapping[str, Mapping[str, Rate]]) -> dict[str, str]:
    # matplotlib takes half a second, so it is not imported at the start of every command.
    from stringline.sim.report.charts import rates_chart
    from stringline.sim.report.training_chart import training_chart

    rates = rates_chart(report.rates, stages) if report.rates else ""
    losses = (
        training_chart(report.losses, report.probes, report.validations, report.successes)
        if report.losses
        else ""
    )
    return {"rates_chart": rates, "training_chart": losses}


def _row(report: Report, run: str, result: EpisodeResult) -> _Row:
    command = report.reruns[run].command(result.seed) if run in report.reruns else ""
    folder = report.videos.get(run)
    trace = None if folder is None else read_trace(trace_of_video(folder / f"{result.seed}.mp4"))
    if trace is None:
        return _Row(run, result, command, "", "", "")
    small, large = (timeline(trace, result.time_s, large=large) for large in (False, True))
    return _Row(run, result, command, small, large, reached_text(trace))


def _row_of(clip: Clip, report: Report) -> _Row:
    return _row(replace(report, videos={clip.run: clip.path.parent}), clip.run, clip.result)


def _embedded(clips: Sequence[Clip], report: Report, room: int) -> Iterator[_Shown]:
    """Yields the videos with their data and posters, up to `room` bytes."""
    for clip in clips:
        shown = _Shown(
            clip,
            _row_of(clip, report),
            _with_poster(clip.path),
            None if clip.film is None else _with_poster(clip.film),
        )
        room -= sum(len(part) for part in (*shown.video, *(shown.film or ())))
        if room < 0:
            return
        yield shown


def _with_poster(path: Path) -> tuple[str, str]:
    """Returns a video and its poster in base64."""
    video, image = (base64.b64encode(data).decode() for data in (path.read_bytes(), poster(path)))
    return video, image
