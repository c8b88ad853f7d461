"""Measures of detection by size, distance and visibility of the objects."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from stringline.datasets.images.labelled_image import LabelledObject
from stringline.encoders.perception.average_precision import AveragePrecision
from stringline.encoders.perception.detections import (
    QUANTITIES,
    Array,
    Quantity,
    Space,
    Subset,
)
from stringline.encoders.perception.perception_network import Row, Statistic, mean_over_images

# Bounds between the ranges.
VISIBILITY = (0.5, 0.9)
COCO = (32.0, 96.0)
UNITS: dict[Quantity, str] = {"size_2d": " px", "size_3d": " m", "distance": " m", "visibility": ""}
MEASURED: dict[Space, tuple[Quantity, ...]] = {
    "2d": ("size_2d", "visibility"),
    "3d": ("size_3d", "distance", "visibility"),
}
_THIRDS = (1 / 3, 2 / 3)


def subsets_of(objects: Sequence[LabelledObject], space: Space) -> Iterator[Subset]:
    """Yields ranges of each quantity that objects of a space have.

    Visibility has ranges from .5 and from .9; lengths and distances have thirds of the objects.
    Sizes in the image have the ranges of COCO, or thirds if no object reaches the largest of them.
    A quantity of which all objects are in one range is left out.
    """
    for quantity in MEASURED[space]:
        known = [value for each in objects if (value := QUANTITIES[quantity](each)) is not None]
        if not known:
            continue
        bounds = _bounds(quantity, known)
        ends = sorted({-np.inf, *bounds, np.inf})
        ranges = [
            Subset(title=_title(quantity, low, high), quantity=quantity, least=low, below=high)
            for low, high in pairwise(ends)
        ]
        held = [one for one in ranges if any(map(one.holds, objects))]
        if len(held) > 1:
            yield from held


def measured_subsets(
    truth: Sequence[Sequence[LabelledObject]],
    ious: Sequence[Array],
    precision: AveragePrecision,
    space: Space,
) -> list[Row]:
    """Returns a row per subset: its number of objects, their mean IoU, and average precision.

    Args:
        truth: The objects of each image.
        ious: (M,) of the M objects of each image, as in the mean IoU of all.
        precision: The average precision of all.
        space: "2d" or "3d".
    """
    objects = [thing for things in truth for thing in things]
    every = np.concatenate(ious) if len(ious) else np.zeros(0)
    rows: list[Row] = []
    for subset in subsets_of(objects, space):
        chosen = every[[subset.holds(thing) for thing in objects]]
        rows.append(
            {
                "subset": subset.title,
                "objects": float(len(chosen)),
                "mean_iou": float(chosen.mean()),
                f"ap{space}": precision.of(subset).value(),
            }
        )
    return rows


def subset_statistics(
    truth: Sequence[Sequence[LabelledObject]], ious: Sequence[Array], space: Space
) -> dict[str, Statistic]:
    """Returns the mean IoU of each subset as a function of drawn images; see `measured_subsets`."""
    found = {}
    for subset in subsets_of([thing for things in truth for thing in things], space):
        chosen = [np.array([subset.holds(thing) for thing in things], bool) for things in truth]
        sums = [float(iou[mask].sum()) for iou, mask in zip(ious, chosen, strict=True)]
        found[subset.title] = mean_over_images(sums, [int(mask.sum()) for mask in chosen])
    return found


def _bounds(quantity: Quantity, known: Sequence[float]) -> tuple[float, ...]:
    if quantity == "visibility":
        return VISIBILITY
    if quantity == "size_2d" and max(known) >= COCO[-1]:
        return COCO
    return _rounded(np.quantile(known, _THIRDS))


def _rounded(bounds: Array) -> tuple[float, ...]:
    """Returns bounds with two digits, so that titles and ranges are the same."""
    return tuple(float(f"{bound:.2g}") for bound in bounds)


def _title(quantity: Quantity, low: float, high: float) -> str:
    unit = UNITS[quantity]
    if np.isinf(low):
        return f"{quantity} below {high:g}{unit}"
    if np.isinf(high):
        return f"{quantity} from {low:g}{unit}"
    return f"{quantity} {low:g} to {high:g}{unit}"
