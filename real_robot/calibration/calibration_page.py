"""What a calibration found, as a page for whoever has to trust it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from stringline.datasets.files.atomic import write_file
from stringline.real_robot.calibration.capture_set import Photograph

_TEMPLATE = "summary.html.jinja"


@dataclass(frozen=True)
class CameraSummary:
    """One camera.

    Attributes:
        name: Its name.
        good: Whether the result was written.
        facts: What was found, by name, in words.
        trouble: Why it was not written, in words.
        bars: What each pose left over: number of the pose, in words, and as a share of the largest.
        photographs: Its images.
        legend: What is drawn into them.
    """

    name: str
    good: bool
    facts: Sequence[tuple[str, str]]
    trouble: str
    bars: Sequence[tuple[int, str, float]]
    photographs: Sequence[Photograph]
    legend: str = ""


def bars_of(residuals: Sequence[tuple[int, float]], unit: str) -> list[tuple[int, str, float]]:
    """Returns a bar for each pose.

    Args:
        residuals: Number of the pose, and what it left over.
        unit: Of that.
    """
    largest = max((value for _, value in residuals), default=0.0) or 1.0
    return [(number, f"{value:.2f} {unit}", value / largest) for number, value in residuals]


def write_summary(
    path: Path, title: str, facts: Sequence[tuple[str, str]], cameras: Sequence[CameraSummary]
) -> None:
    """Writes a page that shows the images which lie beside it.

    Args:
        path: Of the page.
        title: What was done.
        facts: About all of it, by name.
        cameras: What was found.
    """
    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, undefined=jinja2.StrictUndefined
    )
    text = environment.get_template(_TEMPLATE).render(title=title, facts=facts, cameras=cameras)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, text.encode())
