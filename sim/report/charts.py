"""Charts and timelines as SVG for an HTML page, in the page's font and colours.

There are charts of success rates, of a training (losses, probes and success over its steps), and
those that compare policies or recipes (estimates with intervals, and learning curves). The
learning curve of a checkpoint is read from the history of its run.
"""

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter
from numpy.typing import NDArray

from stringline.sim.evaluation.runner import Trace
from stringline.sim.statistics.intervals import Rate

# Placeholders, replaced by the page's colours in the finished chart.
TEXT = "#010203"
LINES = "#040506"
ACCENT = "#070809"
SECOND = "#0a0b0c"
GOOD = "#0d0e0f"
BAD = "#101112"
_PAGE_COLOURS = {
    TEXT: "currentColor",
    LINES: "var(--line)",
    ACCENT: "var(--accent)",
    SECOND: "var(--second)",
    GOOD: "var(--good)",
    BAD: "var(--bad)",
}
_MOST_POINTS = 400


def rates_chart(
    rates: Mapping[str, Rate], stages: Mapping[str, Mapping[str, Rate]] | None = None
) -> str:
    """Returns a bar chart of success rates and, in lighter bars, of stages, with 95 % intervals.

    Rates are by label, from top to bottom; those of stages by label and stage.
    """
    rows = [
        row
        for name, rate in rates.items()
        for row in [(name, rate, 0.55), *_stage_rows((stages or {}).get(name, {}))]
    ]
    # Labels above the bars and a small width, so that the text can be read on a telephone.
    figure = Figure(figsize=(5.2, 0.4 + 0.46 * len(rows)))
    axes = figure.add_axes(
        (0.03, 0.3 / figure.get_figheight(), 0.92, 1 - 0.4 / figure.get_figheight())
    )
    places = np.arange(len(rows))[::-1]
    values = np.array([rate.successes / max(rate.trials, 1) for _, rate, _ in rows])
    for place, value, (_, _, strength) in zip(places, values, rows, strict=True):
        axes.barh(place, value, height=0.42, color=ACCENT, alpha=strength)
    reach = reach_of(values, [rate for _, rate, _ in rows])
    axes.errorbar(
        values, places, xerr=reach, fmt="none", color=TEXT, ecolor=TEXT, elinewidth=1.3, capsize=4
    )
    for place, (name, _, _) in zip(places, rows, strict=True):
        label = name.replace("_", " ").replace("$", r"\$")
        axes.text(0, place + 0.29, label, color=TEXT, fontsize=10, va="bottom")
    axes.set_yticks([])
    axes.set_xlim(0, 1.0)
    axes.set_ylim(-0.35, len(rows) - 0.3)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    style(axes, grid="x")
    return svg(figure, "rates")


def _stage_rows(stages: Mapping[str, Rate]) -> list[tuple[str, Rate, float]]:
    return [(f"reached {name}", rate, 0.22) for name, rate in stages.items() if name != "success"]


def reach_of(values: NDArray[np.float64], rates: Sequence[Rate]) -> NDArray[np.float64]:
    """Returns the distances of the intervals' ends from their rates, (2, n)."""
    ends = [
        (value - rate.low, rate.high - value) for value, rate in zip(values, rates, strict=True)
    ]
    return np.array(ends).clip(0).T


def grouped(losses: Sequence[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """Averages neighbours, (step, loss), so that at most `_MOST_POINTS` points are left."""
    groups = np.array_split(np.asarray(losses, np.float64), min(len(losses), _MOST_POINTS))
    return [float(group[:, 0].mean()) for group in groups], [
        float(group[:, 1].mean()) for group in groups
    ]


def style(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Gives axes the lines and colours of the page."""
    axes.grid(axis=grid, color=LINES, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(LINES)
    axes.tick_params(which="both", color=LINES, labelcolor=TEXT, labelsize=10)
    axes.xaxis.label.set_color(TEXT)
    axes.yaxis.label.set_color(TEXT)
    axes.patch.set_visible(False)


def svg(figure: Figure, name: str) -> str:
    """Returns the SVG without metadata and namespaces, with identifiers unique on the page."""
    figure.patch.set_visible(False)
    drawn = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = drawn.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'((?:id="|url\(#|href="#))', rf"\1{name}-", text)
    text = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r'<svg role="img" \1>', text, count=1)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
    for placeholder, colour in _PAGE_COLOURS.items():
        text = text.replace(placeholder, colour)
    return text


_COLOURS = ("var(--accent)", "var(--second)", "var(--good)")


def timeline(trace: Trace, seconds: float, *, large: bool = False) -> str:
    """Returns the timeline of an episode: bands of stages, and the commanded gripper openings.

    Without grippers it shows the largest commanded joint speed instead; the large form shows both
    and an axis of seconds. Its size is 360 by 104 units, that of the small form 150 by 26.
    """
    width, height, end = (360, 104, max(seconds, 1e-6)) if large else (150, 26, max(seconds, 1e-6))
    every = 1 if large else 3  # A table may have thousands of timelines.
    x = np.clip(trace.time[::every] / end, 0, 1) * width
    openings, speed = ((18, 48), (56, 88)) if large else ((8, 25), (8, 25))
    parts = [_stages(trace, width, 6 if large else 5, end)]
    courses = list(zip(trace.openings.items(), _COLOURS, strict=False))
    if large:
        parts += [_seconds(width, height, end)]
        parts += [
            (
                f'<text x="{width - 34 * (len(courses) - place)}" y="14" '
                f'fill="{colour}">{escape(arm)}</text>'
            )
            for place, ((arm, _), colour) in enumerate(courses)
        ]
    parts += [_line(x, course[::every], openings, colour) for (_, course), colour in courses]
    if large or not courses:
        parts.append(
            _line(
                x,
                trace.speed[::every] / max(float(trace.speed.max(initial=0.0)), 1e-9),
                speed,
                "currentColor",
            )
        )
    name = f"Stages reached: {reached_text(trace)}."
    label = f'role="img" aria-label="{escape(name, quote=True)}"'
    return (
        f'<svg class="timeline" viewBox="0 0 {width} {height}" '
        f"{label}><title>{escape(name)}</title>{''.join(parts)}</svg>"
    )


def reached_text(trace: Trace) -> str:
    """Returns the times of the stages: `lifted 2.1 s, success 8.4 s`."""
    return (
        ", ".join(f"{name.replace('_', ' ')} {time:.1f} s" for name, time in trace.stages.items())
        or "none"
    )


def _stages(trace: Trace, width: int, height: int, end: float) -> str:
    starts = [0.0, *trace.stages.values()]
    levels = [0, *(trace.names.index(name) for name in trace.stages)]
    shares = [0.12 + 0.83 * level / max(len(trace.names) - 1, 1) for level in levels]
    bands = zip(starts, [*starts[1:], end], shares, strict=True)
    return "".join(
        f'<rect x="{start / end * width:.1f}" y="0" '
        f'width="{max(until - start, 0) / end * width:.1f}" height="{height}" '
        f'fill="var(--accent)" fill-opacity="{share:.2f}"/>'
        for start, until, share in bands
    )


def _seconds(width: int, height: int, end: float) -> str:
    """Returns lines and numbers at round seconds, at most eight."""
    every = next(
        step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300, 3600, end) if end / step <= 8
    )
    times = [step * every for step in range(int(end / every) + 1)]
    return "".join(
        f'<path d="M{time / end * width:.1f} 9V{height - 12}" stroke="var(--line)" fill="none"/>'
        f'<text x="{min(time / end * width, width - 22):.1f}" y="{height - 2}" '
        f'fill="currentColor">{time:g} s</text>'
        for time in times
    )


def _line(
    x: NDArray[np.float32], course: NDArray[np.float32], between: tuple[int, int], colour: str
) -> str:
    """Returns a polyline of values 0 (lower edge) to 1 (upper edge) over x."""
    upper, lower = between
    y = lower - np.clip(course, 0, 1) * (lower - upper)
    keep = np.ones(len(x), bool)
    # Of a horizontal part, only the ends are kept.
    keep[1:-1] = (np.diff(y[:-1]) != 0) | (np.diff(y[1:]) != 0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[keep], y[keep], strict=True))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.2"/>'


HISTORY = "history.jsonl"


@dataclass(frozen=True)
class LearningCurve:
    """The metrics of a training run.

    Attributes:
        losses: (step, loss).
        probes: (step, metrics by name).
        validations: (step, loss) of the averaged weights on held-out episodes.
        successes: (step, success rate in simulation).
    """

    losses: tuple[tuple[int, float], ...] = ()
    probes: tuple[tuple[int, Mapping[str, float]], ...] = ()
    validations: tuple[tuple[int, float], ...] = ()
    successes: tuple[tuple[int, Rate], ...] = ()


def learning_curve(checkpoint: Path) -> LearningCurve:
    """Reads the history in the parent folder of a checkpoint; empty if it does not exist."""
    rows = list(_rows(checkpoint.resolve().parent / HISTORY))
    rates = [
        (row["step"], row["evaluation"]) for row in rows if "successes" in row.get("evaluation", ())
    ]
    return LearningCurve(
        tuple((row["step"], row["loss"]) for row in rows if "loss" in row),
        tuple((row["step"], row["probe"]) for row in rows if row.get("probe")),
        tuple((row["step"], row["validation"]) for row in rows if "validation" in row),
        tuple((step, Rate(int(found["successes"]), int(found["trials"]))) for step, found in rates),
    )


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return  # The last line may be incomplete during training or after a crash.


MILLIMETRES = "_mm"
BASELINES = ("_hold", "_linear")


def training_chart(
    losses: Sequence[tuple[int, float]],
    probes: Sequence[tuple[int, Mapping[str, float]]] = (),
    validations: Sequence[tuple[int, float]] = (),
    successes: Sequence[tuple[int, Rate]] = (),
) -> str:
    """Returns charts of losses, probes and success over the training steps.

    Args:
        losses: (step, loss); many values are averaged in groups.
        probes: (step, metrics by name): millimetres where the name ends in `_mm`, else shares of at
            most 1; of errors of actions, `<name>/<action>`, those of the first and the last action.
        validations: (step, loss on held-out episodes), drawn beside the training loss.
        successes: (step, success rate in simulation), drawn with their intervals.
    """
    panels: list[Callable[[Axes], None]] = [
        partial(_draw_losses, losses=losses, validations=validations)
    ]
    panels += [
        partial(_draw_probes, probes=probes, names=names) for names in _by_unit(probes) if names
    ]
    panels += [partial(_draw_errors, probes=probes, name=name) for name in _groups(probes)]
    panels += [partial(_draw_successes, successes=successes)] if successes else []
    figure = Figure(figsize=(5.2, 0.8 + 1.5 * len(panels)))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for each, draw in zip(axes, panels, strict=True):
        draw(each)
        style(each, grid="y")
    axes[-1].set_xlabel("training step")
    figure.tight_layout()
    return svg(figure, "training")


def _draw_losses(
    axes: Axes, *, losses: Sequence[tuple[int, float]], validations: Sequence[tuple[int, float]]
) -> None:
    axes.plot(*grouped(losses), color=ACCENT, linewidth=1.6, label="training")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel("loss")
    if validations:
        axes.plot(
            *zip(*validations, strict=True),
            color=SECOND,
            linewidth=1.6,
            marker="o",
            markersize=3.5,
            label="validation",
        )
        axes.legend(frameon=False, labelcolor=TEXT, loc="upper right")


def _by_unit(probes: Sequence[tuple[int, Mapping[str, float]]]) -> tuple[list[str], list[str]]:
    """Returns the names of shares and of lengths."""
    names = list(dict.fromkeys(name for _, found in probes for name in found if "/" not in name))
    lengths = [name for name in names if name.endswith(MILLIMETRES)]
    return [name for name in names if name not in lengths], lengths


def _draw_probes(
    axes: Axes, *, probes: Sequence[tuple[int, Mapping[str, float]]], names: Sequence[str]
) -> None:
    values = []
    for name, colour in zip(names, (SECOND, ACCENT, TEXT), strict=False):
        points = [(step, found[name]) for step, found in probes if name in found]
        values += [value for _, value in points]
        axes.plot(
            *zip(*points, strict=True),
            color=colour,
            linewidth=1.6,
            marker="o",
            markersize=3.5,
            label=name,
        )
    if names[0].endswith(MILLIMETRES):
        axes.set_ylim(0.0, 1.05 * max(values))
        axes.set_ylabel(", ".join(f"{name.removesuffix(MILLIMETRES)}, mm" for name in names))
    else:
        axes.set_ylim(max(min(0.0, *values), -1.0) - 0.03, 1.03)
        axes.set_ylabel(", ".join(names))


def _groups(probes: Sequence[tuple[int, Mapping[str, float]]]) -> list[str]:
    """Returns the errors of actions, without those of the baselines."""
    groups = dict.fromkeys(
        name.partition("/")[0] for _, found in probes for name in found if "/" in name
    )
    return [name for name in groups if not name.endswith(BASELINES)]


def _draw_errors(
    axes: Axes, *, probes: Sequence[tuple[int, Mapping[str, float]]], name: str
) -> None:
    """Draws the errors of the first and the last action, and the baselines at the first."""
    for entry, colour in (("1", ACCENT), ("last", SECOND)):
        key = f"{name}/{entry}"
        points = [(step, found[key]) for step, found in probes if key in found]
        if points:
            label = "first action" if entry == "1" else "last action"
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.6, label=label)
    for baseline, dashes in zip(BASELINES, ("--", ":"), strict=True):
        value = probes[-1][1].get(f"{name}{baseline}/1")
        if value is not None:
            axes.axhline(value, color=TEXT, linestyle=dashes, label=f"first, {baseline[1:]}")
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel(name.replace("_", ", "))
    axes.legend(frameon=False, labelcolor=TEXT, loc="upper right", fontsize="small")


def _draw_successes(axes: Axes, *, successes: Sequence[tuple[int, Rate]]) -> None:
    steps = [step for step, _ in successes]
    rates = [rate for _, rate in successes]
    values = np.array([rate.successes / max(rate.trials, 1) for rate in rates])
    reach = reach_of(values, rates)
    axes.errorbar(
        steps,
        values,
        yerr=reach,
        color=ACCENT,
        ecolor=TEXT,
        capsize=3,
        marker="o",
        markersize=3.5,
    )
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.set_ylabel("success")


COLOURS = (ACCENT, SECOND, GOOD, BAD, TEXT)
LINE_STYLES = ("-", "--", ":")


@dataclass(frozen=True)
class EstimateRow:
    """A row of a chart of estimates: a value with its interval, and the points behind it.

    Attributes:
        label: Text on the left.
        value: A rate, or a difference of rates.
        low: Lower end of the interval; equal to the value if there is no interval.
        high: Upper end of the interval.
        points: Rates of single trainings.
    """

    label: str
    value: float
    low: float
    high: float
    points: tuple[float, ...] = ()


def estimates_chart(rows: Sequence[EstimateRow], name: str, *, differences: bool = False) -> str:
    """Returns a chart with a row for each estimate, from top to bottom.

    `name` makes the identifiers of the SVG unique on its page. Rates are drawn from 0 to 100 %,
    differences around a line at 0.
    """
    height = 0.6 + 0.36 * len(rows)
    figure = Figure(figsize=(8.6, height))
    axes = figure.add_axes((0.34, 0.45 / height, 0.62, 1 - 0.55 / height))
    for place, row in zip(range(len(rows) - 1, -1, -1), rows, strict=True):
        axes.plot([row.low, row.high], [place, place], color=ACCENT, linewidth=2.2)
        axes.plot([row.value], [place], "o", color=ACCENT, markersize=7)
        axes.plot(
            row.points, [place] * len(row.points), "o", color=TEXT, markersize=3.5, fillstyle="none"
        )
    labels = [row.label.replace("_", " ").replace("$", r"\$") for row in rows]
    axes.set_yticks(range(len(rows) - 1, -1, -1), labels)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    if differences:
        axes.axvline(0, color=TEXT, linewidth=1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:+.0f}"))
        axes.set_xlabel("difference, percentage points")
    else:
        axes.set_xlim(-0.01, 1.01)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    style(axes, grid="x")
    figure.set_size_inches(8.6, height + 0.2 * differences)
    return svg(figure, name)


class RoundPoint(NamedTuple):
    """The success of a recipe after a round: its mean, interval, and that of each training."""

    round: int
    value: float
    low: float
    high: float
    points: tuple[float, ...]


def rounds_chart(curves: Mapping[str, Sequence[RoundPoint]]) -> str:
    """Returns a chart of the success over the rounds, a colour for each recipe."""
    figure = Figure(figsize=(7.2, 2.9))
    axes = figure.subplots()
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        rounds = [point.round for point in points]
        reach = np.array([(p.value - p.low, p.high - p.value) for p in points]).T.clip(0)
        axes.errorbar(
            rounds,
            [point.value for point in points],
            yerr=reach,
            color=colour,
            linestyle=LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)],
            marker="o",
            markersize=5,
            capsize=4,
            label=name.replace("$", r"\$"),
        )
        for point in points:
            places = [point.round] * len(point.points)
            axes.plot(places, point.points, "o", color=TEXT, markersize=3.5, fillstyle="none")
    axes.set_xticks(sorted({point.round for points in curves.values() for point in points}))
    axes.set_xlabel("round of corrections")
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    style(axes, grid="y")
    axes.legend(frameon=False, labelcolor=TEXT, loc="best")
    figure.tight_layout()
    return svg(figure, "rounds")


def curves_chart(curves: Mapping[str, Sequence[LearningCurve]]) -> str:
    """Returns a chart of the losses of all trainings, a colour for each recipe.

    Below are the losses on held-out episodes and the success in simulation, if any training has
    them. Recipes without a curve are omitted; without any curve the chart is empty.
    """
    shown = {name: [c for c in found if c.losses] for name, found in curves.items()}
    shown = {name: found for name, found in shown.items() if found}
    if not shown:
        return ""
    everything = [curve for found in shown.values() for curve in found]
    panels = ["loss"]
    panels += ["validation"] if any(curve.validations for curve in everything) else []
    panels += ["success"] if any(curve.successes for curve in everything) else []
    figure = Figure(figsize=(7.2, 1 + 1.9 * len(panels)))
    axes = dict(
        zip(panels, figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0], strict=True)
    )
    for number, (name, found) in enumerate(shown.items()):
        for index, curve in enumerate(found):
            _draw(axes, curve, number, name.replace("$", r"\$") if index == 0 else None)
    for panel, each in axes.items():
        _label(each, panel)
        style(each, grid="y")
    axes["loss"].legend(frameon=False, labelcolor=TEXT, loc="upper right")
    axes[panels[-1]].set_xlabel("training step")
    figure.tight_layout()
    return svg(figure, "curves")


def _draw(axes: Mapping[str, Axes], curve: LearningCurve, number: int, label: str | None) -> None:
    colour = COLOURS[number % len(COLOURS)]
    line = LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)]
    successes = [(step, rate.value) for step, rate in curve.successes]
    axes["loss"].plot(
        *grouped(curve.losses), color=colour, linestyle=line, linewidth=1.2, label=label
    )
    for panel, points in (("validation", curve.validations), ("success", successes)):
        if panel in axes and points:
            steps, values = zip(*points, strict=True)
            axes[panel].plot(
                steps, values, color=colour, linestyle=line, marker="o", markersize=3, linewidth=1.2
            )


def _label(axes: Axes, panel: str) -> None:
    axes.set_ylabel(panel)
    if panel == "success":
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
