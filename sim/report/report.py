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

from stringline.datasets.command.application import command_line
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.pages import (
    SORTING,
    Block,
    Card,
    Cell,
    Choice,
    Code,
    Column,
    Content,
    Facts,
    Figure,
    Filter,
    Fold,
    Grid,
    Heading,
    Items,
    Page,
    Row,
    Section,
    Span,
    Svg,
    Table,
    Text,
    Video,
)
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.runner import read_trace, trace_of_video
from stringline.sim.report.charts import reached_text, timeline
from stringline.sim.report.scene_cloud import CLOUDS, SceneCloud
from stringline.sim.rollout.rollout import poster
from stringline.sim.statistics.intervals import Rate
from stringline.sim.worlds.task_settings import TaskSettings


@dataclass(frozen=True)
class RerunCommand:
    """The command lines of an evaluation on a single task.

    Attributes:
        checkpoint: The checkpoint, as the user named it.
        execute_steps: Control periods between two plans; if None, whole chunks.
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
        arm = self.task.embodiment
        values = {
            "checkpoint": self.checkpoint,
            "task": self.task.name,
            "task.time_limit_s": self.task.time_limit_s,
            "task.frame_hz": self.task.frame_hz,
            **({} if arm is None else {"++task.embodiment": arm}),
            **({} if self.task.python is None else {"task.python": self.task.python}),
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
        path: An mp4 file; a trace may be beside it, see `Trace`.
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
        sections: Further sections, such as `Comparison.section()`.
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
    sections: Sequence[Section] = ()
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

    def figure(self) -> Figure:
        """Returns the videos with their timeline, the cloud and the command of the episode."""
        result = self.clip.result
        name = f"Video of seed {result.seed}"
        observed: Block = Video(*self.video, f"{name}, colour and depth")
        videos = [observed]
        if self.film:
            camera = Fold("Images of the policy's camera", observed, "quiet")
            videos = [Video(*self.film, name, wide=True), camera]
        run = f"{_words(self.clip.run)}, " if self.clip.run else ""
        outcome: list[Content] = [
            Span("Failure", "bad"),
            f" at stage {_words(result.stage_name)}; {run}seed {result.seed}",
        ]
        if result.success:
            text = f" after {result.time_s:.1f} s; {run}seed {result.seed}"
            outcome = [Span("Success", "good"), text]
        caption: list[Content] = [Text(outcome)]
        if self.row.reached:
            caption.append(Text(f"Reached: {self.row.reached}"))
        after: list[Content] = [Code(self.row.command)] if self.row.command else []
        after += [self.clip.cloud] if self.clip.cloud else []
        return Figure(videos, [*caption, Svg(self.row.large)], after, _marks(self.row))


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
    summaries = {name: Summary.of(results) for name, results in report.episodes.items() if results}
    total = sum(report.phases.values())
    after = f", after {duration(total)}" if report.phases else ""
    phases = {name: duration(seconds) for name, seconds in report.phases.items()}
    run = [Card(Facts(report.facts))]
    if phases:
        run.append(Card(Facts(phases | {"total": duration(total)}, numbers=True)))
    commands = [Card(Code("\n".join(report.commands)))] if report.commands else []
    page = Page(
        report.title,
        [
            Text(report.headline, "headline"),
            Text(f"Finished {report.finished:%Y-%m-%d %H:%M} UTC{after}.", "quiet"),
        ],
        [
            Section("success", "Success", _success(report, rows, summaries)),
            *report.sections,
            Section(
                "episodes",
                "Episodes" if rows else "Videos of the same starts",
                [*_filter(report, rows), *_videos(report, shown), *_episodes(report, rows)],
            ),
            Section("training", "Training", _training(report)),
            Section("run", "Run", [Grid(run, 22, stretched=True)]),
            Section("again", "Repeat", commands),
        ],
        scripts=(SORTING, CLOUDS) if rows or shown else (),
    )
    return page.html().encode()


def _words(name: str) -> str:
    return name.replace("_", " ")


def _measured(name: str, unit: str, *, sort: bool = False) -> Column:
    return Column(name, unit, "number", ".1f", sort)


def _success(
    report: Report, rows: Sequence[_Row], summaries: Mapping[str, Summary]
) -> list[Content]:
    """Returns the rates of the runs and their stages, as a table and a chart, with notes."""
    if not report.rates and not report.failures:
        return []
    note = "Intervals are Wilson's; widely overlapping intervals are no evidence of a difference."
    if summaries:
        note += (
            " Time to success is the median of simulated times over successes. Acceleration is the "
            "root mean square of the commanded joint accelerations; smaller is smoother. Limit "
            "hits are the share of control periods whose command exceeds a limit of a joint. Times "
            "per plan are the median and the 95th percentile of an episode, on the machine named "
            "below."
        )
    # matplotlib takes half a second, so it is not imported at the start of every command.
    from stringline.sim.report.charts import rates_chart

    stages = {name: summary.reached for name, summary in summaries.items()}
    chart = Svg(rates_chart(report.rates, stages) if report.rates else "")
    blocks: list[Content] = [Card([_rates(report, summaries), chart])]
    blocks += [Text(text, "quiet") for text in (note, *report.notes)]
    incomplete = [
        f"{_words(row.run)}, seed {row.result.seed}: "
        + (row.result.error or f"the physics became unstable after {row.result.time_s:.1f} s.")
        for row in rows
        if row.result.error or row.result.unstable
    ]
    if incomplete:
        title = "Incomplete or unstable episodes, which count as failed:"
        blocks += [Text(title), Items(incomplete, "incomplete")]
    return blocks


def _rates(report: Report, summaries: Mapping[str, Summary]) -> Table:
    """Returns the table of rates: runs, the stages of each, and runs that failed."""
    columns = [
        Column(report.kind),
        *(
            Column(name, kind="number")
            for name in ("successes", "episodes", "rate", "95 % interval")
        ),
    ]
    if summaries:
        columns += [
            _measured("time to success", "s"),
            _measured("acceleration", "rad/s²"),
            _measured("limit hits", "%"),
            _measured("time per plan", "ms"),
            _measured("95\N{NO-BREAK SPACE}%", "ms"),
        ]
    blank = [Cell("", span=len(columns) - 5)] if summaries else []
    lines = []
    for name, rate in report.rates.items():
        found = summaries.get(name)
        if found is None:
            lines.append(Row([_words(name), *_rate_cells(rate), *blank]))
            continue
        measures = (
            found.time_to_success_s,
            found.acceleration,
            _percent(found.limit_hits),
            found.inference_ms,
            found.inference_p95_ms,
        )
        lines.append(Row([_words(name), *_rate_cells(rate), *measures]))
        lines += [
            Row([f"reached {_words(stage)}", *_rate_cells(reached), *blank], below=True)
            for stage, reached in found.reached.items()
            if stage != "success"
        ]
    for name, reason in report.failures.items():
        failure = Cell(f"could not be evaluated: {reason}", "bad", span=len(columns) - 1)
        lines.append(Row([_words(name), failure]))
    return Table(columns, lines)


def _rate_cells(rate: Rate) -> list[Content | None]:
    return [
        rate.successes,
        rate.trials,
        f"{rate.value * 100:.0f} %" if rate.trials else None,
        f"{rate.low * 100:.0f} to {rate.high * 100:.0f} %",
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _marks(row: _Row) -> dict[str, str]:
    """Returns the values by which the reader chooses episodes."""
    outcome = "success" if row.result.success else "failure"
    return {"outcome": outcome, "run": row.run, "stage": row.result.stage_name}


def _filter(report: Report, rows: Sequence[_Row]) -> list[Content]:
    if not rows:
        return []
    in_order = sorted(rows, key=lambda row: row.result.stage)
    stages = {row.result.stage_name: _words(row.result.stage_name) for row in in_order}
    choices = [
        Choice("outcome", "Outcome", {"success": "successes", "failure": "failures"}),
        Choice(
            "run",
            report.kind.capitalize(),
            {name: _words(name) for name, results in report.episodes.items() if results},
        ),
        Choice("stage", "Furthest stage", stages),
    ]
    return [Filter("Filter of episodes", choices, "episodes")]


def _videos(report: Report, shown: Sequence[_Shown]) -> list[Content]:
    """Returns the figures of clips, side by side those of the same start, with notes."""
    blocks: list[Content] = []
    for start in dict.fromkeys(item.clip.start for item in shown):
        figures = [item.figure() for item in shown if item.clip.start == start]
        if start:
            blocks += [Heading(_words(start)), Grid(figures, 15, stretched=True)]
        else:
            blocks.append(Grid(figures, 23))
    if shown:
        note = (
            "Left: the camera's image. Right: its depth, from yellow (near) to violet (far); black "
            "has no depth."
        )
        if any(item.film for item in shown):
            note = (
                f"The videos show the recorded motion, seen by a camera that the policy does not "
                f"have; below each are the images of the policy's camera. {note}"
            )
        if any(item.row.large for item in shown):
            note += (
                " Below, over the time of the episode: a band for each stage, from its first "
                "arrival; the commanded opening of each gripper; and the largest commanded speed "
                "of any joint, scaled to its maximum."
            )
        blocks.append(Text(note, "quiet"))
    if any(item.clip.cloud for item in shown):
        note = (
            "The points are pixels of the first observation of all cameras, placed by their depth; "
            "drag to rotate, scroll to zoom. The larger squares are the patches of the policy. "
            "Attention is traced back through all blocks from the token of an arm (attention "
            "rollout, Abnar and Zuidema 2020): it shows possible sources of information, not their "
            "use or their effect on the outcome."
        )
        blocks.append(Text(note, "quiet"))
    if omitted := len(report.clips) - len(shown):
        videos = "video was" if omitted == 1 else "videos were"
        note = (
            f"{omitted} more {videos} omitted, because a report has at most "
            f"{LARGEST_BYTES // 10**6} MB."
        )
        blocks.append(Text(note, "quiet"))
    return blocks


def _episodes(report: Report, rows: Sequence[_Row]) -> list[Content]:
    """Returns the table of all episodes with a note."""
    if not rows:
        return []
    timelines = any(row.timeline for row in rows)
    columns = [
        *(Column(name, sort=True) for name in (report.kind, "seed", "outcome", "stage reached")),
        _measured("time", "s", sort=True),
        *([Column("stages, grippers")] if timelines else []),
        Column("plans", kind="number", sort=True),
        _measured("time per plan", "ms", sort=True),
        _measured("95\N{NO-BREAK SPACE}%", "ms", sort=True),
        _measured("acceleration", "rad/s²", sort=True),
        _measured("limit hits", "%", sort=True),
        *([Column("repeat")] if report.reruns else []),
    ]
    note = "Times are simulated."
    if report.reruns:
        note += (
            " A command, run in the folder where this evaluation was started, repeats the episode "
            "to the last action; only the times per plan differ."
        )
    table = Table(columns, [_line(report, row, timelines) for row in rows], dense=True)
    return [Card(table), Text(note, "quiet")]


def _line(report: Report, row: _Row, timelines: bool) -> Row:
    """Returns the row of an episode in the table of all episodes."""
    result = row.result
    outcome = "success" if result.success else "failure"
    if result.error or result.unstable:
        outcome = "incomplete" if result.error else "unstable"
    command: Content = ""
    if row.command:
        label = f"Command that repeats seed {result.seed}"
        command = Fold("command", Code(row.command), label=label)
    cells = [
        _words(row.run),
        result.seed,
        Cell(outcome, "good" if result.success else "bad"),
        Cell(_words(result.stage_name), value=result.stage),
        result.time_s,
        *([Svg(row.timeline)] if timelines else []),
        result.plans,
        result.inference_ms if result.plans else None,
        result.inference_p95_ms,
        result.acceleration if result.plans else None,
        _percent(result.limit_hits),
        *([command] if report.reruns else []),
    ]
    return Row(cells, _marks(row))


def _training(report: Report) -> list[Content]:
    """Returns the chart of the training with notes."""
    if not report.losses:
        return []
    # matplotlib takes half a second, so it is not imported at the start of every command.
    from stringline.sim.report.charts import training_chart

    curves = (report.losses, report.probes, report.validations, report.successes)
    blocks: list[Content] = [Card(Svg(training_chart(*curves)))]
    if report.probes:
        note = (
            "Localisation is the share of the variance between held-out episodes that the first "
            "planned chunk explains from the images alone: 1 at best, 0 for a guess without "
            "images. A small loss without localisation proves little."
        )
        blocks.append(Text(note, "quiet"))
    if report.validations:
        note = (
            "Validation is the loss of the averaged weights on held-out episodes, always with the "
            "same noise."
        )
        blocks.append(Text(note, "quiet"))
    if report.successes:
        note = (
            "Success during training is measured on other seeds than the reported results and "
            "selects the best checkpoint. Bars are 95 % intervals."
        )
        blocks.append(Text(note, "quiet"))
    return blocks


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
