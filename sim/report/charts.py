"""Charts and timelines as SVG for an HTML page, in the page's font and colours."""

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from stringline.sim.evaluation.trace import Trace
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
