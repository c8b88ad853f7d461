"""Timelines are drawn to scale."""

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from stringline.sim.evaluation.runner import Trace
from stringline.sim.report.charts import reached_text, timeline

NAMES = ("start", "lifted_<b>", "placed", "success")
TIME = np.linspace(0, 9.9, 100, dtype=np.float32)
OPEN = {"left": (TIME > 4.95).astype(np.float32), "<&right>": np.zeros(100, np.float32)}


def points(line: ET.Element) -> list[tuple[float, float]]:
    """The corners of a line."""
    return [
        (float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", line.get("points", ""))
    ]


@pytest.mark.parametrize("large", [False, True])
def test_to_scale(large: bool) -> None:
    """Bands begin with stages, lines rise when grippers open, and level parts take no points."""
    trace = Trace(NAMES, {"lifted_<b>": 2.5, "success": 7.5}, TIME, OPEN, np.abs(np.sin(TIME)))
    drawn = ET.fromstring(timeline(trace, 10.0, large=large))
    width = float(drawn.get("viewBox", "").split()[2])
    bands = [
        (float(band.get("x", "")) / width, float(band.get("width", "")) / width)
        for band in drawn.iter("rect")
    ]
    assert bands == [
        pytest.approx(band, abs=1e-3) for band in [(0, 0.25), (0.25, 0.5), (0.75, 0.25)]
    ]
    strengths = [float(band.get("fill-opacity", "")) for band in drawn.iter("rect")]
    assert np.diff(strengths).tolist() == [
        pytest.approx(0.83 / 3, abs=0.01),
        pytest.approx(2 * 0.83 / 3, abs=0.01),
    ]
    left, right, *speed = (points(line) for line in drawn.iter("polyline"))
    assert len(left) == 4
    assert left[0][1] > left[-1][1]
    assert left[1][0] / width == pytest.approx(0.49, abs=0.03)
    assert len(right) == 2
    assert len(speed) == large
    assert (
        drawn.get("aria-label")
        == f"Stages reached: {reached_text(trace)}."
        == "Stages reached: lifted <b> 2.5 s, success 7.5 s."
    )


def test_odd_episodes() -> None:
    """One that ended at once, one without grippers and stages, one that stood still."""
    short = Trace(
        ("start", "success"),
        {"success": 0.02},
        np.zeros(1, np.float32),
        {},
        np.zeros(1, np.float32),
    )
    for seconds in (0.02, 0.0):
        for large in (False, True):
            assert (
                len(list(ET.fromstring(timeline(short, seconds, large=large)).iter("polyline")))
                == 1
            )
    assert reached_text(Trace(NAMES, {}, TIME, {}, TIME)) == "none"


@pytest.mark.parametrize("seconds", [0.5, 8.8, 20.0, 700.0, 1e5])
def test_few_numbers_on_the_axis(seconds: float) -> None:
    drawn = ET.fromstring(timeline(Trace(("start",), {}, TIME, {}, TIME), seconds, large=True))
    numbers = [text.text for text in drawn.iter("text")]
    assert 2 <= len(numbers) <= 9
    assert numbers[0] == "0 s"
