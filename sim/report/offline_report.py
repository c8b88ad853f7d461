"""The page of an evaluation on recordings: errors of actions or keyposes, and drawings of plans."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from matplotlib.figure import Figure as Chart

from stringline.datasets.command.command_line import command_line
from stringline.datasets.files.pages import (
    SORTING,
    Block,
    Card,
    Code,
    Column,
    Content,
    Facts,
    Figure,
    Fold,
    Grid,
    Heading,
    Page,
    Section,
    Svg,
    Table,
    Text,
)
from stringline.policies.probes.probes import GRIPPERS, HOLD, JOINTS, LINEAR
from stringline.sim.evaluation.offline_evaluation import EpisodePlans, OfflineResult
from stringline.sim.report.charts import ACCENT, SECOND, TEXT, style, svg
from stringline.sim.report.plan_drawings import actions_chart, seen_plans
from stringline.sim.report.report import package_versions, system_info

PAGE = "offline.html"
_IMAGES = 4  # Of each drawn episode.
_UNITS = {JOINTS: ("joints", "mrad"), GRIPPERS: ("grippers", "mm")}
_PLANS = {"": "policy", HOLD: "holding", LINEAR: "linear map"}
_KEYPOSES = {
    "close_mm": "closing gripper, median, mm",
    "close_90_mm": "closing gripper, 90 %, mm",
    "open_mm": "opening gripper, median, mm",
    "open_90_mm": "opening gripper, 90 %, mm",
    "keypose_deg": "rotation, median, degrees",
    "right_arm": "share of the frames with the right arm",
}
_NOTE = (
    "Errors of single plans from recorded states. A policy that acts meets states of its own, so "
    "small errors are necessary for success, not sufficient. Holding keeps the measured joints; "
    "the linear map reads joints and velocities. Neither sees an image."
)


def write_offline_report(result: OfflineResult) -> None:
    """Writes `offline.html` into the output of the evaluation."""
    settings = result.settings
    names = {"checkpoint": settings.checkpoint, "dataset": str(settings.dataset)}
    again = command_line("stringline-eval", {**names, "output": str(settings.output)})
    versions = ", ".join(f"{name} {number}" for name, number in package_versions().items())
    facts: dict[str, str | int | float | Block] = {
        **names,
        "digest of the checkpoint": result.digest,
        "episodes": result.chosen.why,
        "windows": result.windows,
        "machine": system_info(),
        "versions": versions,
    }
    Page(
        "Evaluation on recordings",
        [
            Text(headline(result), "headline"),
            Text(f"Finished {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.", "quiet"),
        ],
        [
            Section("errors", "Errors", _errors(result)),
            Section("plans", "Plans over recordings", _drawings(result)),
            Section("episodes", "Episodes", [_episodes(result)]),
            Section("run", "Run", [Card(Facts(facts)), Card(Code(again))]),
        ],
        scripts=(SORTING,),
    ).write(settings.output / PAGE)


def headline(result: OfflineResult) -> str:
    """Returns the main result as a sentence."""
    where = f"On {result.windows} windows of {len(result.chosen.names)} recorded episodes"
    found = result.metrics
    if result.measure not in (GRIPPERS, JOINTS):
        parts = [
            f"{found[f'{kind}_mm']:.0f} mm where the gripper {kind}s"
            for kind in ("close", "open")
            if f"{kind}_mm" in found
        ]
        return f"{where} the predicted keypose is off by {' and '.join(parts)} (medians)."
    label = max((name for name in found if name.startswith(f"{result.measure}/")), key=_number)
    label = label.partition("/")[2]
    unit = _UNITS[result.measure][1]
    others = [
        f"{name} {found[key]:.1f} {unit}"
        for kind, name in _PLANS.items()
        if kind and (key := f"{result.measure}{kind}/{label}") in found
    ]
    beside = f"; {', '.join(others)}" if others else ""
    own = f"{found[f'{result.measure}/{label}']:.1f} {unit}"
    return f"{where} the {label} action of a plan is off by {own}{beside}."


def _number(name: str) -> int:
    """Returns the number of an action, the last one first."""
    label = name.partition("/")[2]
    return -int(label) if label.isdigit() else 0


def _errors(result: OfflineResult) -> list[Content]:
    found = result.metrics
    if result.measure not in (GRIPPERS, JOINTS):
        shown = {_KEYPOSES[name]: f"{value:.2f}" for name, value in found.items()}
        return [Card(Facts(shown, numbers=True))]
    kinds = [
        (metric, kind)
        for metric in _UNITS
        for kind in _PLANS
        if any(name.startswith(f"{metric}{kind}/") for name in found)
    ]
    labels = list(dict.fromkeys(name.partition("/")[2] for name in found))
    hz = result.policy.contract.control_hz
    last = result.policy.chunk
    columns = [
        Column("action"),
        Column("after", "s", "number", ".2f"),
        *(
            Column(f"{_UNITS[metric][0]}, {_PLANS[kind]}", _UNITS[metric][1], "number", ".1f")
            for metric, kind in kinds
        ),
    ]
    rows = [
        [
            label,
            (int(label) if label.isdigit() else last) / hz,
            *(found.get(f"{metric}{kind}/{label}") for metric, kind in kinds),
        ]
        for label in labels
    ]
    charts = [Card(Svg(_errors_chart(result, metric, labels))) for metric in dict(kinds)]
    return [
        Card(Table(columns, rows)),
        Grid(charts, 22, stretched=True),
        Text(f"{_NOTE} {result.linear}", "quiet"),
    ]


def _errors_chart(result: OfflineResult, metric: str, labels: Sequence[str]) -> str:
    """Returns the errors of a metric over the time of the action."""
    hz = result.policy.contract.control_hz
    figure = Chart(figsize=(5.2, 2.4))
    axes = figure.subplots()
    for (kind, name), colour in zip(_PLANS.items(), (ACCENT, TEXT, SECOND), strict=True):
        points = [
            ((int(label) if label.isdigit() else result.policy.chunk) / hz, value)
            for label in labels
            if (value := result.metrics.get(f"{metric}{kind}/{label}")) is not None
        ]
        if points:
            axes.plot(
                *zip(*points, strict=True), color=colour, marker="o", markersize=3, label=name
            )
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("time of the action, s")
    axes.set_ylabel(", ".join(_UNITS[metric]))
    style(axes, grid="y")
    axes.legend(frameon=False, labelcolor=TEXT, fontsize="small")
    figure.tight_layout()
    return svg(figure, f"errors-{metric}")


def _drawings(result: OfflineResult) -> list[Content]:
    """Returns the episodes with the smallest, the median and the largest error."""
    ranked = sorted(
        (one for one in result.episodes if np.isfinite(one.error)), key=lambda e: e.error
    )
    if not ranked:
        return []
    places = dict.fromkeys((0, len(ranked) // 2, len(ranked) - 1))
    words = {0: "the smallest error", len(ranked) - 1: "the largest error"}
    blocks: list[Content] = []
    for place in places:
        plans = ranked[place]
        which = words.get(place, "the median error")
        blocks.append(Heading(f"{plans.episode.name}, {which}"))
        blocks += _drawn(result, plans)
    legend = (
        "In images the recorded way or keypose is green and the planned one in the accent colour; "
        "its opacity is the share of the votes. In charts the recording is in the colour of the "
        "text; every other plan has the same colour."
    )
    return [*blocks, Text(legend, "quiet")]


def _drawn(result: OfflineResult, plans: EpisodePlans) -> list[Content]:
    blocks: list[Content] = []
    if images := seen_plans(result.policy, plans, _IMAGES):
        blocks.append(Grid(images, 14))
    if result.measure in (GRIPPERS, JOINTS):
        chart = Svg(actions_chart(plans, f"actions-{plans.episode.name}"))
        blocks.append(Fold("Actions over time", Card(chart), label=plans.episode.name))
    return blocks


def _episodes(result: OfflineResult) -> Figure | Card:
    unit = _UNITS[result.measure][1] if result.measure in _UNITS else "mm"
    columns = [
        Column("episode", sort=True),
        Column("instruction", kind="wrap"),
        Column("windows", kind="number", sort=True),
        Column("mean error", unit, "number", ".1f", sort=True),
    ]
    rows = [
        [
            each.episode.name,
            each.episode.attributes.instruction or each.episode.attributes.task,
            len(each.steps),
            each.error if np.isfinite(each.error) else None,
        ]
        for each in result.episodes
    ]
    return Card(Table(columns, rows, dense=True))
