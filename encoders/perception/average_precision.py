"""Average precision of detections in the image (COCO) and in space (Omni3D)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np

from stringline.datasets.images.labelled_image import LabelledObject
from stringline.encoders.perception.detections import (
    EVERYTHING,
    Array,
    Detection,
    Space,
    Subset,
    overlaps,
)
from stringline.encoders.perception.matched_detections import MatchedDetections, Matches

COCO_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).round(2).tolist())
OMNI3D_THRESHOLDS = tuple(np.linspace(0.05, 0.5, 10).round(2).tolist())
MOST_DETECTIONS = 100
"""Predictions per image and name that count, those with the largest scores."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    """The predictions of one name in one image, and its objects.

    Attributes:
        found: N predictions, descending by score.
        wanted: M objects.
        iou: (N, M).
    """

    found: Sequence[Detection]
    wanted: Sequence[LabelledObject]
    iou: Array


class AveragePrecision(MatchedDetections):
    """Average precision over images, also of any draw of them.

    COCO's protocol (T.-Y. Lin et al., 2014; `pycocotools.cocoeval`): predictions in the order of
    their scores take the object of their name with the largest IoU that is free, precision is made
    monotonic and averaged over 101 recalls, and then over thresholds and names. Names without an
    object to be found are left out. Omni3D (Brazil et al., CVPR 2023, arXiv 2207.10660) does the
    same with the IoU of 3D boxes and `OMNI3D_THRESHOLDS`. The IoU of 3D boxes is exact here.

    Attributes are those of `MatchedDetections`.
    """

    def __init__(
        self,
        truth: Sequence[Sequence[LabelledObject]],
        detections: Sequence[Sequence[Detection]],
        *,
        space: Space,
        thresholds: Sequence[float] | None = None,
        subset: Subset = EVERYTHING,
        most: int = MOST_DETECTIONS,
    ) -> None:
        """Matches predictions with objects, once.

        Args:
            truth: The objects of each image, with boxes of the space.
            detections: The predictions for each image, in any order.
            space: "2d" or "3d".
            thresholds: Of the IoU; None: those of COCO or Omni3D.
            subset: The objects to be found. Others may be found without being right or wrong, and
                unmatched predictions out of the range of the subset are not wrong.
            most: Predictions per image and name that count.

        Raises:
            ValueError: The numbers of images differ, or a box is unknown.
        """
        if len(truth) != len(detections):
            raise ValueError(
                f"There are objects of {len(truth)} images and predictions for {len(detections)}; "
                f"the numbers must be equal."
            )
        if thresholds is None:
            thresholds = COCO_THRESHOLDS if space == "2d" else OMNI3D_THRESHOLDS
        self._pairs = _pairs(truth, detections, space, most)
        super().__init__(
            _matched(self._pairs, np.asarray(thresholds, np.float64), subset),
            thresholds,
            len(truth),
        )

    def of(self, subset: Subset) -> Self:
        """Returns the average precision of a subset of the same objects and predictions."""
        other = copy(self)
        other.matches = _matched(self._pairs, self.thresholds, subset)
        return other


def _pairs(
    truth: Sequence[Sequence[LabelledObject]],
    detections: Sequence[Sequence[Detection]],
    space: Space,
    most: int,
) -> Mapping[str, Mapping[int, _Pairs]]:
    """Returns predictions and objects by name and image, of the names that an image has."""
    pairs: dict[str, dict[int, _Pairs]] = defaultdict(dict)
    for image, (objects, predictions) in enumerate(zip(truth, detections, strict=True)):
        names = {each.name for each in objects} | {each.name for each in predictions}
        for name in names:
            found = [each for each in predictions if each.name == name]
            found = sorted(found, key=lambda each: -each.score)[:most]
            wanted = [each for each in objects if each.name == name]
            iou = overlaps(found, wanted, space)
            pairs[name][image] = _Pairs(found=found, wanted=wanted, iou=iou)
    return pairs


def _matched(
    pairs: Mapping[str, Mapping[int, _Pairs]], thresholds: Array, subset: Subset
) -> dict[str, dict[int, Matches]]:
    return {
        name: {image: _matches(pair, thresholds, subset) for image, pair in of_images.items()}
        for name, of_images in pairs.items()
        if subset.names_hold(name)
    }


def _matches(pair: _Pairs, thresholds: Array, subset: Subset) -> Matches:
    found = pair.found
    wanted = pair.wanted
    iou = pair.iou
    extra = np.array([not subset.holds(each) for each in wanted], bool)
    free = np.ones((len(thresholds), len(wanted)), bool)
    hits = np.zeros((len(thresholds), len(found)), bool)
    ignored = np.zeros_like(hits)
    least = np.minimum(thresholds, 1 - 1e-10)  # So that equal boxes match at 1.
    rows = np.arange(len(thresholds))
    for index, row in enumerate(iou if len(wanted) else ()):
        reaches = free & (row >= least[:, None])
        first = reaches & ~extra  # Objects to be found come before others.
        candidates = np.where(first.any(axis=1, keepdims=True), first, reaches)
        # Of equal ones COCO takes the last.
        best = len(wanted) - 1 - np.where(candidates, row, -1.0)[:, ::-1].argmax(axis=1)
        hits[:, index] = candidates.any(axis=1)
        ignored[:, index] = hits[:, index] & extra[best]
        free[rows, best] &= ~hits[:, index]
    outside = np.array([not subset.counts_if_wrong(each) for each in found], bool)
    ignored |= ~hits & outside
    scores = np.array([each.score for each in found], np.float64)
    return Matches(scores=scores, hits=hits, ignored=ignored, objects=int((~extra).sum()))
