"""The page of predictions: the measures, and images with truth (green) and prediction (blue)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stringline.datasets.contract.contract import Array
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.templates import template_environment
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.datasets.viewing.page_drawings import jpeg_url
from stringline.encoders.perception.image_arrays import ImageArrays, Labelled
from stringline.encoders.perception.image_contract import CAMERA
from stringline.encoders.perception.perception_data import drawn_places
from stringline.encoders.perception.perception_network import Drawing, Examples, Measurement

SHOWN = 48
_ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Picture:
    """One image of the page.

    Attributes:
        url: The image as a data URL; the frames of a clip side by side.
        width: Columns, of all frames together.
        height: Rows.
        truth: In words.
        prediction: In words.
        comment: A sentence on what is wrong.
        true_lines: Points of polylines, as SVG has them.
        predicted_lines: The same.
    """

    url: str
    width: int
    height: int
    truth: str
    prediction: str
    comment: str
    true_lines: Sequence[str]
    predicted_lines: Sequence[str]


def write_page(
    path: Path,
    examples: Examples,
    found: Measurement,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Writes a self-contained page with the measures and some of the drawings.

    Args:
        path: The file.
        examples: The images.
        found: What was measured on them.
        intervals: Those of measures, by name.
    """
    drawings = found.drawings
    chosen = [drawings[place] for place in drawn_places(len(drawings), SHOWN)]
    text = (
        template_environment(_ASSETS)
        .get_template("predictions.html.jinja")
        .render(
            images=len(examples),
            measures={name: f"{value:.4g}" for name, value in found.values.items()},
            intervals={
                name: f"{low:.4g} to {high:.4g}" for name, (low, high) in (intervals or {}).items()
            },
            columns=list(dict.fromkeys(name for row in found.subsets for name in row)),
            subsets=[
                {k: v if isinstance(v, str) else f"{v:.4g}" for k, v in row.items()}
                for row in found.subsets
            ],
            pictures=[_picture(examples, drawing) for drawing in chosen],
        )
    )
    write_file(path, text.encode())


def _picture(examples: Examples, drawing: Drawing) -> Picture:
    labelled: Labelled = examples.images[examples.indices[drawing.example]]
    rgb = ImageArrays(examples.contract).observation(labelled)[f"rgb/{CAMERA}"]
    if isinstance(labelled, LabelledClip):
        rgb = np.concatenate(list(rgb), axis=1)
    return Picture(
        jpeg_url(rgb),
        rgb.shape[1],
        rgb.shape[0],
        drawing.truth,
        drawing.prediction,
        drawing.comment,
        [_points(line) for line in drawing.true_lines],
        [_points(line) for line in drawing.predicted_lines],
    )


def _points(line: Array) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
