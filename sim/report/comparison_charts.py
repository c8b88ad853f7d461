"""Charts that compare policies or recipes: estimates with intervals, and learning curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from stringline.sim.report.charts import ACCENT, BAD, GOOD, SECOND, TEXT, grouped, style, svg
from stringline.sim.report.learning_curve import LearningCurve

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
