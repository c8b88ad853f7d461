"""The chart of a training: losses, probes and success over its steps."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from stringline.sim.report.charts import ACCENT, SECOND, TEXT, grouped, reach_of, style, svg
from stringline.sim.statistics.intervals import Rate

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
