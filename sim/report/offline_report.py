"""The page of an evaluation on recordings: errors of actions or keyposes, and drawings of plans.

Actions are drawn over time, and the ways of grippers in images.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape

import numpy as np
import torch
from matplotlib.figure import Figure as Chart
from numpy.typing import NDArray

from stringline.datasets.command.application import command_line
from stringline.datasets.contract.contract import Camera
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
    Image,
    Page,
    Section,
    Svg,
    Table,
    Text,
)
from stringline.datasets.loading.keyposes import PREFIX, episode_keyposes
from stringline.datasets.store.episode import StoredEpisode
from stringline.datasets.viewing.page_drawings import colour_frame
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.keypose_policy import KeyposePolicy, keypose_of
from stringline.policies.probes.probes import GRIPPERS, HOLD, JOINTS, LINEAR, commanded_places
from stringline.sim.evaluation.offline_evaluation import EpisodePlans, OfflineResult, Planner
from stringline.sim.report.charts import ACCENT, SECOND, TEXT, style, svg
from stringline.sim.report.report import package_versions, system_info

PAGE = "offline.html"
Floats = NDArray[np.float64]
_NEAREST_M = 0.05  # Points nearer to the image plane are not drawn.
_LARGEST = 360
RECORDED = "var(--good)"
PLANNED = "var(--accent)"
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


def spaced(steps: Sequence[int], apart: int) -> list[int]:
    """Returns the numbers of steps of which each is at least `apart` behind the one before."""
    found: list[int] = []
    for number, step in enumerate(steps):
        if not found or step >= steps[found[-1]] + apart:
            found.append(number)
    return found


def actions_chart(plans: EpisodePlans, name: str) -> str:
    """Returns the recorded actions of an episode over time, with plans drawn over them.

    `name` is that of the chart on its page.
    """
    contract = plans.episode.attributes.contract
    recorded = np.asarray(plans.episode.arrays["action"])
    horizon = plans.plans.shape[1]
    rows = -(-len(contract.action) // 2)
    figure = Chart(figsize=(8.0, 0.5 + 1.05 * rows))
    panels = figure.subplots(rows, 2, sharex=True, squeeze=False).T.flatten()
    time = np.arange(max(len(recorded), int(plans.steps[-1]) + horizon)) / contract.control_hz
    chosen = spaced(plans.steps.tolist(), horizon // 2)
    for place, (axes, dimension) in enumerate(zip(panels, contract.action, strict=False)):
        axes.plot(time[: len(recorded)], recorded[:, place], color=TEXT, linewidth=1.0)
        for turn, number in enumerate(chosen):
            start = int(plans.steps[number])
            planned = plans.plans[number, :, place].numpy()[: len(recorded) - start]
            colour = (ACCENT, SECOND)[turn % 2]
            axes.plot(
                time[start : start + len(planned)], planned, color=colour, linewidth=1.3, alpha=0.85
            )
        axes.set_title(
            f"{dimension.name}, {dimension.unit}".replace("_", " "),
            fontsize=8,
            color=TEXT,
            loc="left",
            pad=2,
        )
        style(axes, grid="y")
        axes.tick_params(labelsize=7)
    for axes in panels[len(contract.action) :]:
        axes.set_visible(False)
    for axes in (panels[rows - 1], panels[len(contract.action) - 1]):
        axes.set_xlabel("s", fontsize=8)
    figure.tight_layout(pad=0.4)
    return svg(figure, name)


def seen_plans(policy: Planner, plans: EpisodePlans, most: int) -> list[Figure]:
    """Returns images at up to `most` windows, with recorded and planned ways of the grippers.

    They are of the first camera of the policy with a known pose; without one, or without
    kinematics, there are none.
    """
    seen = [
        each
        for each in policy.contract.cameras
        if each.has_geometry and f"T_base_camera/{each.name}" in plans.episode.arrays
    ]
    draw = _keyposes(policy, plans) if isinstance(policy, KeyposePolicy) else _ways(policy, plans)
    if not seen or draw is None:
        return []
    known = np.flatnonzero(np.isfinite(plans.errors))
    chosen = known[np.unique(np.linspace(0, len(known) - 1, most).round().astype(int))]
    time = np.asarray(plans.episode.arrays["time"], np.float64)
    figures = []
    for number in chosen.tolist():
        step = int(plans.steps[number])
        view = _View(plans.episode, seen[0], step)
        size = f"{seen[0].width} {seen[0].height}"
        over = Svg(f'<svg viewBox="0 0 {size}">{"".join(draw(number, view))}</svg>')
        caption = f"{time[step] - time[0]:.1f} s, {plans.errors[number]:.0f} mm"
        label = f"{plans.episode.name}, {seen[0].name}, {caption}"
        image = Image(colour_frame(plans.episode, seen[0].name, view.frame, _LARGEST), label, over)
        figures.append(Figure(image, caption))
    return figures


class _View:
    """The image of a camera at a step of an episode."""

    def __init__(self, episode: StoredEpisode, camera: Camera, step: int) -> None:
        self.frame = int(episode.arrays[f"frame/{camera.name}"][step])
        pose = np.asarray(episode.arrays[f"T_base_camera/{camera.name}"], np.float64)
        intrinsics = np.asarray(episode.arrays[f"intrinsics/{camera.name}"], np.float64)
        self._T_camera_base = np.linalg.inv(pose[self.frame] if pose.ndim == 3 else pose)
        self._intrinsics = intrinsics[self.frame] if intrinsics.ndim == 3 else intrinsics
        self._radius = max(camera.height, camera.width) / 70

    def pixels(self, points: Floats) -> Floats:
        """Returns the pixels (N, 2) of points (N, 3) in the base frame; NaN behind the camera."""
        inside = points @ self._T_camera_base[:3, :3].T + self._T_camera_base[:3, 3]
        inside[inside[:, 2] < _NEAREST_M] = np.nan
        return np.asarray((inside @ self._intrinsics.T)[:, :2] / inside[:, 2:])

    def line(self, points: Floats, colour: str) -> str:
        """Returns a line through points (N, 3) in the base frame, with a dot at its end."""
        pixels = self.pixels(points)
        inside = pixels[np.isfinite(pixels).all(axis=1)].tolist()
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in inside)
        return f'<polyline points="{text}" stroke="{colour}"/>{self.dot(points[-1], colour)}'

    def dot(self, point: Floats, colour: str, title: str = "", share: float = 1.0) -> str:
        """Returns a circle at a point (3,) in the base frame; empty if it is not seen."""
        x, y = self.pixels(point[None])[0].tolist()
        if not np.isfinite((x, y)).all():
            return ""
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{self._radius:.2f}" fill="{colour}" '
            f'fill-opacity="{share:.2f}" stroke="{colour}"><title>{escape(title)}</title></circle>'
        )


Draw = Callable[[int, _View], Sequence[str]]


def _ways(policy: ChunkPolicy, plans: EpisodePlans) -> Draw | None:
    """Returns what draws the recorded and the planned ways of a window; None: unknown kinematics.

    The ways end with the recording.
    """
    places = commanded_places(policy.contract)
    if places is None:
        return None
    recorded = torch.tensor(np.asarray(plans.episode.arrays["action"]))

    def draw(number: int, view: _View) -> list[str]:
        rows = recorded[int(plans.steps[number]) :][: plans.plans.shape[1]]
        both = ((rows, RECORDED), (plans.plans[number, : len(rows)], PLANNED))
        return [
            view.line(way.numpy().astype(np.float64), colour)
            for actions, colour in both
            for way in places(actions).unbind(dim=1)
        ]

    return draw


def _keyposes(policy: KeyposePolicy, plans: EpisodePlans) -> Draw:
    """Returns what draws the next recorded keypose of a window, and the predicted modes."""
    found = episode_keyposes(plans.episode, policy.events)
    targets = found.targets(plans.steps)

    def draw(number: int, view: _View) -> list[str]:
        predicted = keypose_of(plans.plans[number].numpy())
        parts = []
        for arm in np.flatnonzero(targets[f"{PREFIX}acting"][number]).tolist():
            name = policy.contract.arms[arm]
            for mode, share in zip(predicted.pose[arm], predicted.share[arm], strict=True):
                title = f"{name}, predicted, {100 * share:.0f} % of the votes"
                parts.append(view.dot(mode[:3, 3], PLANNED, title, float(share)))
            at = np.asarray(targets[f"{PREFIX}pose"][number, arm, :3, 3], np.float64)
            parts.append(view.dot(at, RECORDED, f"{name}, recorded"))
        return parts

    return draw
