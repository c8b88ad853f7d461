"""Measures by which runs of `stringline-perceive` are compared."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.encoders.perception.detection_results import AT
from stringline.encoders.perception.perception_network import Statistic
from stringline.encoders.perception.perception_results import DETECTIONS, read_detections

Array = NDArray[np.float64]

MEANS = {
    "mean_iou": ("iou_sum", "objects"),
    "i2t_recall_at_1": ("i2t_rank", None),
    "t2i_recall_at_1": ("t2i_first", "texts"),
    "within_pair": ("within_pair", None),
    "top1": ("correct", None),
}
"""Means over images, with the names of their values and numbers of each image."""

PRECISIONS = {
    name: at
    for space, thresholds in AT.items()
    for name, at in (
        (f"ap{space}", None),
        *((f"ap{space}_{100 * at:.0f}", at) for at in thresholds),
    )
}
"""Average precisions with the threshold of the IoU; None: the mean over all thresholds."""


def measures_of(results: Mapping[str, Any]) -> list[str]:
    """Returns the names of the measures by which a run can be compared.

    Args:
        results: See `results_of`.
    """
    means = [name for name, (key, _) in MEANS.items() if key in results["each"]]
    known = results.get("measures", {})
    return means + [name for name in PRECISIONS if known.get(name) is not None]


def checked_measure(results: Mapping[str, Any], measure: str | None) -> str:
    """Returns a measure of a run; None stands for the first of `measures_of`.

    Raises:
        ValueError: The run does not have the measure.
    """
    found = measures_of(results)
    if measure is None:
        return found[0]
    if measure not in found:
        raise unknown_name("measure", measure, found)
    return measure


def image_values(results: Mapping[str, Any], measure: str) -> tuple[Array, Array | None]:
    """Returns the values of a mean (N,), and the numbers of objects or texts (N,).

    Values of detectors are sums over the objects of an image, those of `t2i_recall_at_1` over its
    texts; others have no numbers.

    Args:
        results: See `results_of`.
        measure: One of `MEANS`.

    Raises:
        ValueError: The run does not have the measure.
    """
    key, counts = MEANS[checked_measure(results, measure)]
    each = results["each"]
    values = np.array(each[key], float)
    if measure == "i2t_recall_at_1":
        values = (values == 0).astype(float)
    return values, None if counts is None else np.array(each[counts], float)


def precision(path: Path, results: Mapping[str, Any], measure: str) -> Statistic:
    """Returns an average precision of a run as a function of drawn images.

    Args:
        path: Folder of the run.
        results: See `results_of`.
        measure: One of `PRECISIONS`.

    Raises:
        ValueError: The run does not have the measure, or its detections are missing or of another
            measurement.
    """
    at = PRECISIONS[checked_measure(results, measure)]
    detections = read_detections(path)
    found: Statistic = detections.value if at is None else partial(detections.at, at)
    value = found(np.arange(detections.images))
    stored = results["measures"][measure]
    images = len(results["each"]["index"])
    if detections.images != images or not math.isclose(value, stored, abs_tol=1e-9):
        raise ValueError(
            f"{path / DETECTIONS} has {measure} {value:.4f} on {detections.images} images, the "
            f"results {stored:.4f} on {images}: run the command of the run again, and it measures "
            f"the trained network."
        )
    return found
