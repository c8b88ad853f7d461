"""An episode along its time, as a small SVG that takes the page's colours."""

from html import escape

import numpy as np
from numpy.typing import NDArray

from stringline.sim.trace import Trace

_COLOURS = ("var(--accent)", "var(--second)", "var(--good)")


def timeline(trace: Trace, seconds: float, *, large: bool = False) -> str:
    """Returns bands for stages, darker for later ones, and below them how far each gripper was told to open.

    Without grippers the largest commanded joint speed is drawn in their place; the large form shows both, and the seconds.

    Args:
        trace: Of an episode.
        seconds: How long it took.
        large: 360 by 104 units and not 150 by 26.
    """
    width, height, end = (360, 104, max(seconds, 1e-6)) if large else (150, 26, max(seconds, 1e-6))
    every = 1 if large else 3  # A table may have thousands of them.
    x = np.clip(trace.time[::every] / end, 0, 1) * width
    openings, speed = ((18, 48), (56, 88)) if large else ((8, 25), (8, 25))
    parts = [_stages(trace, width, 6 if large else 5, end)]
    courses = list(zip(trace.openings.items(), _COLOURS, strict=False))
    if large:
        parts += [_seconds(width, height, end)]
        parts += [
            f'<text x="{width - 34 * (len(courses) - place)}" y="15" fill="{colour}">{escape(arm)}</text>'
            for place, ((arm, _), colour) in enumerate(courses)
        ]
    parts += [_line(x, course[::every], openings, colour) for (_, course), colour in courses]
    if large or not courses:
        parts.append(_line(x, trace.speed[::every] / max(float(trace.speed.max(initial=0.0)), 1e-9), speed, "currentColor"))
    name = f"Stages reached: {reached_text(trace)}."
    label = f'role="img" aria-label="{escape(name, quote=True)}"'
    return f'<svg class="timeline" viewBox="0 0 {width} {height}" {label}><title>{escape(name)}</title>{"".join(parts)}</svg>'


def reached_text(trace: Trace) -> str:
    """Returns when each stage was reached: `lifted 2.1 s, success 8.4 s`."""
    return ", ".join(f"{name.replace('_', ' ')} {time:.1f} s" for name, time in trace.stages.items()) or "none"


def _stages(trace: Trace, width: int, height: int, end: float) -> str:
    begins = [0.0, *trace.stages.values()]
    levels = [0, *(trace.names.index(name) for name in trace.stages)]
    shares = [0.12 + 0.83 * level / max(len(trace.names) - 1, 1) for level in levels]
    bands = zip(begins, [*begins[1:], end], shares, strict=True)
    return "".join(
        f'<rect x="{begin / end * width:.1f}" y="0" width="{max(until - begin, 0) / end * width:.1f}" height="{height}" '
        f'fill="var(--accent)" fill-opacity="{share:.2f}"/>'
        for begin, until, share in bands
    )


def _seconds(width: int, height: int, end: float) -> str:
    """Returns lines and numbers at round seconds, at most eight."""
    every = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300, 3600, end) if end / step <= 8)
    times = [step * every for step in range(int(end / every) + 1)]
    return "".join(
        f'<path d="M{time / end * width:.1f} 9V{height - 12}" stroke="var(--line)" fill="none"/>'
        f'<text x="{min(time / end * width, width - 16):.1f}" y="{height - 2}" fill="currentColor">{time:g} s</text>'
        for time in times
    )


def _line(x: NDArray[np.float32], course: NDArray[np.float32], between: tuple[int, int], colour: str) -> str:
    """Returns a course over x, 0 at the lower edge and 1 at the upper one."""
    upper, lower = between
    y = lower - np.clip(course, 0, 1) * (lower - upper)
    keep = np.ones(len(x), bool)
    keep[1:-1] = (np.diff(y[:-1]) != 0) | (np.diff(y[1:]) != 0)  # Where it is level its ends are enough.
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[keep], y[keep], strict=True))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.2"/>'
