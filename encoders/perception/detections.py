"""Predicted objects, subsets of objects, and the overlap of predicted with true boxes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.images.boxes import Box3d
from stringline.datasets.images.labelled_image import LabelledObject
from stringline.encoders.perception.overlap import iou_matrix

Array = NDArray[np.float64]
Space = Literal["2d", "3d"]
SPACES: tuple[Space, ...] = ("2d", "3d")


@dataclass(frozen=True, kw_only=True, eq=False)
class Detection:
    """One predicted object.

    Attributes:
        name: The name, of the vocabulary that the detector was asked for.
        score: The larger, the more certain.
        box2d: (4,) x0, y0, x1, y1 in pixels; None where only `box3d` is predicted.
        box3d: The box in the camera frame; None where only `box2d` is predicted.
    """

    name: str
    score: float
    box2d: NDArray[np.floating] | None = None
    box3d: Box3d | None = None

    def __post_init__(self) -> None:
        if not np.isfinite(self.score):
            raise ValueError(f"The score of {self.name!r} is {self.score}; allowed: finite.")
        if self.box2d is None:
            return
        box = np.asarray(self.box2d, np.float64)
        if box.shape != (4,) or not np.isfinite(box).all() or (box[:2] > box[2:]).any():
            raise ValueError(
                f"The box of {self.name!r} is {box.tolist()}; allowed: finite, x0 <= x1, y0 <= y1."
            )


Item = LabelledObject | Detection


def size_2d(item: Item) -> float | None:
    """Returns the square root of the area of the box in the image, in pixels."""
    if item.box2d is None:
        return None
    x0, y0, x1, y1 = item.box2d
    return float(np.sqrt(max(x1 - x0, 0) * max(y1 - y0, 0)))


def size_3d(item: Item) -> float | None:
    """Returns the longest side in metres."""
    return None if item.box3d is None else float(item.box3d.size.max())


def distance(item: Item) -> float | None:
    """Returns the distance of the centre from the camera, in metres."""
    return None if item.box3d is None else float(np.linalg.norm(item.box3d.centre))


def visibility(item: Item) -> float | None:
    """Returns the share of the pixels that other objects do not hide; predictions have none."""
    return item.visibility if isinstance(item, LabelledObject) else None


Quantity = Literal["size_2d", "size_3d", "distance", "visibility"]
QUANTITIES: dict[str, Callable[[Item], float | None]] = {
    "size_2d": size_2d,
    "size_3d": size_3d,
    "distance": distance,
    "visibility": visibility,
}


@dataclass(frozen=True, kw_only=True)
class Subset:
    """A part of the objects, by a range of a quantity, by names, or by both.

    Attributes:
        title: The name of the subset, such as "near".
        quantity: "size_2d" (pixels), "size_3d" (metres), "distance" (metres) or "visibility"; None:
            names only.
        least: Closed lower bound.
        below: Open upper bound.
        names: The names, such as those known from training; None: all.
    """

    title: str
    quantity: Quantity | None = None
    least: float = -np.inf
    below: float = np.inf
    names: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.quantity is not None and self.quantity not in QUANTITIES:
            raise unknown_name("quantity", self.quantity, QUANTITIES)
        if not self.least < self.below:
            raise ValueError(
                f"Subset {self.title!r} is from {self.least:g} to below {self.below:g}; allowed: "
                f"a range with values."
            )

    def holds(self, item: Item) -> bool:
        """Returns whether an object belongs to the subset; not if its quantity is unknown."""
        return self.names_hold(item.name) and self._in_range(item, unknown=False)

    def counts_if_wrong(self, detection: Detection) -> bool:
        """Returns whether an unmatched prediction counts as wrong.

        As in COCO those out of the range do not; those whose quantity is unknown do.
        """
        return self._in_range(detection, unknown=True)

    def names_hold(self, name: str) -> bool:
        """Returns whether objects of a name may belong to the subset."""
        return self.names is None or name in self.names

    def _in_range(self, item: Item, *, unknown: bool) -> bool:
        if self.quantity is None:
            return True
        value = QUANTITIES[self.quantity](item)
        return unknown if value is None else self.least <= value < self.below


EVERYTHING = Subset(title="all")


def overlaps(found: Sequence[Item], true: Sequence[Item], space: Space) -> Array:
    """Returns the IoU (N, M) of boxes in the image or of 3D boxes.

    Raises:
        ValueError: A box is unknown, or the space does not exist.
    """
    if space == "3d":
        return iou_matrix([_box3d(item) for item in found], [_box3d(item) for item in true])
    if space != "2d":
        raise unknown_name("space", space, SPACES)
    first = np.array([_box2d(item) for item in found], np.float64).reshape(-1, 1, 4)
    second = np.array([_box2d(item) for item in true], np.float64).reshape(1, -1, 4)
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., 2:], second[..., 2:])
    shared = np.clip(high - low, 0, None).prod(axis=-1)
    union = (first[..., 2:] - first[..., :2]).prod(axis=-1)
    union = union + (second[..., 2:] - second[..., :2]).prod(axis=-1) - shared
    found_iou: Array = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return found_iou


def matched_ious(
    predicted: Sequence[Box3d], target: Sequence[Box3d], pairs: tuple[Sequence[int], Sequence[int]]
) -> Array:
    """Returns the IoU of each target with the prediction that is matched to it, (M,).

    STRING (Schenck et al., 2025) reports the mean of these over objects and does not say how they
    are matched. Here it is the matching of training over all objects; unmatched objects have 0.

    Args:
        predicted: N boxes.
        target: M boxes.
        pairs: Predictions and targets of the pairs, as `match` returns them.
    """
    found = np.zeros(len(target))
    for row, column in zip(*pairs, strict=True):
        found[column] = iou_matrix([predicted[row]], [target[column]])[0, 0]
    return found


def _box2d(item: Item) -> NDArray[np.floating]:
    if item.box2d is None:
        raise ValueError(f"An object {item.name!r} has no box in the image; leave it out.")
    return item.box2d


def _box3d(item: Item) -> Box3d:
    if item.box3d is None:
        raise ValueError(f"An object {item.name!r} has no 3D box; leave it out.")
    return item.box3d
