"""The report of a run: one self-contained HTML file with videos and charts.

It has command lines that repeat an evaluation or one of its episodes, and hardware and package
versions of the measurement, without the name of the machine.
"""

import base64
import logging
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stringline.datasets.command.command_line import command_line
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.templates import template_environment
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.trace import read_trace, trace_of_video
from stringline.sim.report.charts import reached_text, timeline
from stringline.sim.report.scene_cloud import SceneCloud
from stringline.sim.rollout.video import poster
from stringline.sim.statistics.intervals import Rate
from stringline.sim.worlds.task_settings import TaskSettings


@dataclass(frozen=True)
class RerunCommand:
    """The command lines of an evaluation on a single task.

    Attributes:
        checkpoint: The checkpoint, as the user named it.
        execute_steps: Control periods between two plans; None: whole chunks.
        output: Folder of the evaluation; repeated episodes get folders in it.
        overrides: Overrides of execution and robot; empty for the defaults.
    """

    checkpoint: str
    task: TaskSettings
    execute_steps: int | None
    output: Path
    overrides: Mapping[str, object] = field(default_factory=dict)

    def command(self, seed: int) -> str:
        """Returns a shell command that repeats one episode in a folder of its own."""
        return self._line(1, seed, self.output / "replays" / str(seed))

    def whole(self, seeds: int, first_seed: int) -> str:
        """Returns a shell command that repeats or continues the evaluation in its folder."""
        return self._line(seeds, first_seed, self.output)

    def _line(self, seeds: int, first_seed: int, output: Path) -> str:
        # Defaults may change, so the line has all settings on which the outcome depends.
        options = {f"++task.options.{name}": value for name, value in self.task.options.items()}
        values = {
            "checkpoint": self.checkpoint,
            "task": self.task.name,
            "task.time_limit_s": self.task.time_limit_s,
            "task.frame_hz": self.task.frame_hz,
            **options,
            "execute_steps": self.execute_steps,
            **self.overrides,
            "seeds": seeds,
            "first_seed": first_seed,
            "output": str(output),
        }
        return eval_line(values)


def eval_line(settings: Mapping[str, object]) -> str:
    """Returns a shell command of `stringline-eval` with settings in their order."""
    return command_line("stringline-eval", settings)


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
    from stringline.sim.report.charts import rates_chart, training_chart

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


PACKAGES = ("stringline", "numpy", "torch", "mujoco", "dm-control", "diffusers", "zarr")


def system_info() -> str:
    """Returns processor, cores, memory and system: `Xeon ..., 2 cores, 16 GiB, Linux x86_64`."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {cores} core{'s' if cores > 1 else ''}, {memory:.0f} GiB, "
        f"{platform.system()} {platform.machine()}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    for line in information.read_text().splitlines() if information.exists() else []:
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.processor() or "unknown processor"


def package_versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed packages that affect results."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
