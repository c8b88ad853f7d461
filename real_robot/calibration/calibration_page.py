"""The page that shows the result of a calibration."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from stringline.datasets.files.atomic import write_file
from stringline.real_robot.calibration.capture_set import CapturedImage

_TEMPLATE = "summary.html.jinja"

Bar = tuple[int, str, float]
"""Number of a pose, its residual as text, and the residual as a share of the largest."""


@dataclass(frozen=True)
class CameraSummary:
    """The result of one camera.

    Attributes:
        good: Whether the result was written.
        problem: Why the result was not written.
        legend: Explanation of the marks in the images.
    """

    name: str
    good: bool
    facts: Sequence[tuple[str, str]]
    problem: str
    bars: Sequence[Bar]
    images: Sequence[CapturedImage]
    legend: str = ""


def bars_of(residuals: Sequence[tuple[int, float]], unit: str) -> list[Bar]:
    """Returns a bar for each pose, from the numbers of poses with their residuals."""
    largest = max((value for _, value in residuals), default=0.0) or 1.0
    return [(number, f"{value:.2f} {unit}", value / largest) for number, value in residuals]


def write_summary(
    path: Path, title: str, facts: Sequence[tuple[str, str]], cameras: Sequence[CameraSummary]
) -> None:
    """Writes the page; the images lie in the same folder."""
    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, undefined=jinja2.StrictUndefined
    )
    text = environment.get_template(_TEMPLATE).render(title=title, facts=facts, cameras=cameras)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())
