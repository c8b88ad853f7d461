"""Measurement of detectors: mean IoU of matched objects, and average precision.

Both are measured of all objects, and by their size, distance and visibility. The baseline of 3D
detectors is the overlap that one box, the same for all objects, reaches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import Box3d, LabelledImage, LabelledObject
from stringline.encoders.perception.average_precision import (
    QUANTITIES,
    AveragePrecision,
    Detection,
    Quantity,
    Space,
    Subset,
    iou_matrix,
    overlaps,
    sampled_iou,
)
from stringline.encoders.perception.detection_losses import match
from stringline.encoders.perception.perception_network import (
    Details,
    Drawing,
    Measurement,
    Row,
    Statistic,
    mean_over_images,
)

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


_FACTORS = np.geomspace(0.5, 4.0, 13)


def constant_box_iou(boxes: Sequence[Box3d]) -> float:
    """Returns the mean IoU of boxes with the best of 26 constant boxes; NaN without boxes.

    The constant boxes have the axes of the frame, the mean or the median of the centres, and the
    geometric means of the sides times one of 13 factors between 0.5 and 4. The best is chosen on
    these very boxes; chosen on training images, it would reach less.
    """
    if not boxes:
        return float("nan")
    centres = np.array([box.centre for box in boxes])
    sides = np.exp(np.log([box.size for box in boxes]).mean(axis=0))
    constant = [
        Box3d(centre, np.eye(3), factor * sides)
        for centre in (centres.mean(axis=0), np.median(centres, axis=0))
        for factor in _FACTORS
    ]
    return float(iou_matrix(boxes, constant).mean(axis=0).max())


MOST = 100
"""Predictions per image that count."""

PERMUTATIONS = 5
"""Largest number of permutations of unknown names."""

AT = {"2d": (0.5, 0.75), "3d": (0.25, 0.5)}
"""Thresholds that are reported besides the mean over all."""


class BoxReader(Protocol):
    """The part of a detector that knows its boxes."""

    def detection(
        self, name: str, score: float, numbers: Tensor, labelled: LabelledImage
    ) -> Detection:
        """Returns a predicted object with its box in the frame of the labels."""
        ...

    def lines(self, thing: LabelledObject | Detection, labelled: LabelledImage) -> list[Array]:
        """Returns a box as lines in pixels of the contract."""
        ...


class DetectionResults:
    """Collects the predictions for images, and measures them.

    The mean IoU is that of STRING (Schenck et al., 2025, F.2.3): of each object with the prediction
    that the matching of the training assigns to it, 0 without one.
    """

    def __init__(self, reader: BoxReader, space: Space, names: Sequence[str]) -> None:
        """Begins without images; `names` are the queries."""
        self._reader = reader
        self._space: Space = space
        self._names = names
        self._truth: list[list[LabelledObject]] = []
        self._found: list[list[Detection]] = []
        self._ious: list[Array] = []
        self._pairs: list[tuple[Detection, LabelledObject]] = []
        self._drawings: list[Drawing] = []

    def add(
        self,
        image: LabelledImage,
        wanted: Sequence[LabelledObject],
        logits: Tensor,
        numbers: Tensor,
        cost: Tensor,
    ) -> None:
        """Adds an image with its objects, and logits (N, Q), numbers (N, ...) and cost (N, M)."""
        probabilities = torch.sigmoid(logits)
        scores, places = probabilities.flatten().topk(min(MOST, probabilities.numel()))
        found = [
            self._reader.detection(
                self._names[int(place) % len(self._names)],
                score,
                numbers[int(place) // len(self._names)],
                image,
            )
            for score, place in zip(scores.tolist(), places.tolist(), strict=True)
        ]
        rows, columns = match(cost)
        best = probabilities[torch.as_tensor(rows)].argmax(dim=1).tolist() if len(rows) else []
        matched = [
            self._reader.detection(self._names[int(name)], 1.0, numbers[int(row)], image)
            for name, row in zip(best, rows, strict=True)
        ]
        ious = np.zeros(len(wanted))
        assigned: list[Detection | None] = [None] * len(wanted)
        for one, column in zip(matched, columns, strict=True):
            assigned[int(column)] = one
            thing = wanted[int(column)]
            ious[column] = overlaps([one], [thing], self._space)[0, 0]
            if ious[column]:  # Other boxes do not have a point in common.
                self._pairs.append((one, thing))
        self._truth.append(list(wanted))
        self._found.append(found)
        self._ious.append(ious)
        self._drawings.append(
            self._drawing(image, wanted, matched, comment(wanted, assigned, ious))
        )

    def measured(self, known: frozenset[str]) -> Measurement:
        """Returns the measures; `known` are the names of the training.

        Without objects of known or of unknown names their measures are left out. `constant_box_iou`
        is the mean IoU of one box for all objects, see the function of that name, and
        `..._permuted_unknown_names` the average precision if predictions of unknown names get other
        unknown names. The details are those of subsets, and of 3D boxes `mean_iou_sampled`, the
        mean IoU by 100,000 random points of each pair, as published.
        """
        ious = np.concatenate(self._ious) if self._ious else np.zeros(0)
        name = f"ap{self._space}"
        precision = AveragePrecision(self._truth, self._found, space=self._space)
        at_thresholds = {
            f"{name}_{100 * at:.0f}": partial(precision.at, at) for at in AT[self._space]
        }
        values = {
            "objects": float(len(ious)),
            "mean_iou": float(ious.mean()) if len(ious) else float("nan"),
            name: precision.value(),
            **{title: one(None) for title, one in at_thresholds.items()},
        }
        if self._space == "3d":
            values["constant_box_iou"] = constant_box_iou(self._boxes())
        of_names = {title: one.value for title, one in self._of_names(known, precision).items()}
        values |= {title: one(None) for title, one in of_names.items()}
        if len(unknown := self._unknown(known)) > 1:
            values[f"{name}_permuted_unknown_names"] = self._permuted(sorted(unknown))
        each = {
            "iou_sum": [float(one.sum()) for one in self._ious],
            "objects": [float(len(one)) for one in self._ious],
        }
        statistics: dict[str, Statistic] = {
            "mean_iou": mean_over_images(each["iou_sum"], each["objects"]),
            name: precision.value,
            **at_thresholds,
            **of_names,
        }
        details = partial(self._details, precision)
        return Measurement(
            values, each, self._drawings, statistics, detections=precision, details=details
        )

    def _details(self, precision: AveragePrecision) -> Details:
        subsets = measured_subsets(self._truth, self._ious, precision, self._space)
        statistics = subset_statistics(self._truth, self._ious, self._space)
        if self._space == "2d":
            return {}, subsets, statistics
        sampled = sum(
            sampled_iou(one.box3d, thing.box3d)
            for one, thing in self._pairs
            if one.box3d is not None and thing.box3d is not None
        )
        count = sum(map(len, self._ious))
        mean = sampled / count if count else float("nan")
        return {"mean_iou_sampled": mean}, subsets, statistics

    def _of_names(
        self, known: frozenset[str], precision: AveragePrecision
    ) -> dict[str, AveragePrecision]:
        """Returns the precision of known and of unknown names, if some are unknown."""
        unknown = self._unknown(known)
        present = frozenset(thing.name for things in self._truth for thing in things)
        return {
            f"ap{self._space}_{title}_names": precision.of(Subset(title=title, names=names))
            for title, names in (("known", known & present), ("unknown", unknown))
            if names and unknown
        }

    def _unknown(self, known: frozenset[str]) -> frozenset[str]:
        return frozenset(thing.name for things in self._truth for thing in things) - known

    def _boxes(self) -> list[Box3d]:
        """Returns the true 3D boxes of all images."""
        return [thing.box3d for things in self._truth for thing in things if thing.box3d]

    def _precision(self, found: Sequence[Sequence[Detection]], names: frozenset[str]) -> float:
        """Returns the average precision of predictions for objects of some names."""
        subset = Subset(title="names", names=names)
        return AveragePrecision(self._truth, found, space=self._space, subset=subset).value()

    def _permuted(self, names: Sequence[str]) -> float:
        """Returns the mean average precision of names if predictions have others of them.

        Predictions of each name get the next, the one after it, and so on, up to `PERMUTATIONS`.
        """
        values = []
        for shift in range(1, min(len(names), PERMUTATIONS + 1)):
            others = dict(zip(names, (*names[shift:], *names[:shift]), strict=True))
            renamed = [
                [replace(one, name=others.get(one.name, one.name)) for one in found]
                for found in self._found
            ]
            values.append(self._precision(renamed, frozenset(names)))
        return fmean(values)

    def _drawing(
        self,
        image: LabelledImage,
        wanted: Sequence[LabelledObject],
        matched: Sequence[Detection],
        comment: str,
    ) -> Drawing:
        """Returns the objects, and the predictions that are matched to them."""
        return Drawing(
            len(self._drawings),
            ", ".join(thing.name for thing in wanted) or "nothing",
            ", ".join(one.name for one in matched) or "nothing",
            comment,
            [line for thing in wanted for line in self._reader.lines(thing, image)],
            [line for one in matched for line in self._reader.lines(one, image)],
        )


def comment(
    wanted: Sequence[LabelledObject], assigned: Sequence[Detection | None], ious: Array
) -> str:
    """Returns a sentence on the objects of an image with the predictions assigned to them.

    It counts wrong names, and names the object whose box overlaps least.
    """
    if not wanted:
        return "No object is to be found."
    pairs = list(zip(wanted, assigned, strict=True))
    wrong = sum(one is None or one.name != thing.name for thing, one in pairs)
    worst = int(np.argmin(ious))
    thing, one = pairs[worst]
    names = f"{wrong} of {len(wanted)} names are wrong" if wrong else "All names are right"
    beside = "" if one is None else _offset(thing, one)
    return f"{names}; the least overlap is {ious[worst]:.2f}, of {thing.name}{beside}."


def _offset(thing: LabelledObject, one: Detection) -> str:
    """Returns the distance between the centres of two boxes, in words."""
    if thing.box3d is not None and one.box3d is not None:
        return f" ({np.linalg.norm(thing.box3d.centre - one.box3d.centre):.2f} m beside it)"
    if thing.box2d is None or one.box2d is None:
        return ""
    centres = [np.asarray(each).reshape(2, 2).mean(axis=0) for each in (thing.box2d, one.box2d)]
    return f" ({np.linalg.norm(centres[0] - centres[1]):.0f} pixels beside it)"
