"""Average precision of detections in the image (COCO) and in space (Omni3D), with their overlap.

Predictions are matched to the objects of a name by their overlap, once. The average precision of
any draw of images, and of subsets of the objects, follows from the matches.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.images.labelled_image import CORNER_SIGNS, TOLERANCE, Box3d, LabelledObject

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
        quantity: "size_2d" (pixels), "size_3d" (metres), "distance" (metres) or "visibility"; if
            None, names only.
        least: Closed lower bound.
        below: Open upper bound.
        names: The names, such as those known from training; if None, all.
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


def _box2d(item: Item) -> NDArray[np.floating]:
    if item.box2d is None:
        raise ValueError(f"An object {item.name!r} has no box in the image; leave it out.")
    return item.box2d


def _box3d(item: Item) -> Box3d:
    if item.box3d is None:
        raise ValueError(f"An object {item.name!r} has no 3D box; leave it out.")
    return item.box3d


_RECALLS = np.linspace(0, 1, 101)

Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Matches:
    """The predictions of one name in one image against its objects.

    Attributes:
        scores: (N,), descending.
        hits: (T, N), whether a prediction is matched to an object, per threshold.
        ignored: (T, N), whether it counts neither as right nor as wrong.
        objects: Number of objects to be found.
    """

    scores: Array
    hits: Flags
    ignored: Flags
    objects: int


class MatchedDetections:
    """The matches of all names and images, as `AveragePrecision` makes them.

    Attributes:
        matches: By name and image.
        thresholds: (T,) of the IoU.
        images: Number of images.
    """

    def __init__(
        self,
        matches: Mapping[str, Mapping[int, Matches]],
        thresholds: Sequence[float] | Array,
        images: int,
    ) -> None:
        self.matches = matches
        self.thresholds = np.asarray(thresholds, np.float64)
        self.images = images

    def by_name(self, images: Iterable[int] | None = None) -> dict[str, Array]:
        """Returns the average precision of each name with objects, (T,) per threshold.

        Args:
            images: Indices of images, repeated ones count again; if None, all.
        """
        drawn = list(range(self.images)) if images is None else [int(image) for image in images]
        found = {}
        for name, matches in sorted(self.matches.items()):
            chosen = [matches[image] for image in drawn if image in matches]
            if sum(each.objects for each in chosen):
                found[name] = _average_precision(chosen)
        return found

    def value(self, images: Iterable[int] | None = None) -> float:
        """Returns the mean over names and thresholds, 0 to 1; NaN without objects."""
        return _mean(list(self.by_name(images).values()))

    def at(self, threshold: float, images: Iterable[int] | None = None) -> float:
        """Returns the mean over names at one threshold; NaN without objects.

        Args:
            threshold: One of the thresholds.
            images: See `by_name`.

        Raises:
            ValueError: It is none of the thresholds.
        """
        (index,) = np.nonzero(np.isclose(self.thresholds, threshold))
        if not len(index):
            raise ValueError(
                f"There is no threshold {threshold}; allowed: {self.thresholds.tolist()}."
            )
        return _mean([values[index] for values in self.by_name(images).values()])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the matches as arrays, for `from_arrays`.

        With P pairs of a name and an image that have N predictions in total:

        - `thresholds` (T,), `images` (), `names` (K,).
        - `name`, `image`, `objects`, `predictions` (P,): which name and image, and how many objects
          and predictions they have.
        - `scores` (N,), `hits` and `ignored` (T, N): those of all pairs in their order.
        """
        names = sorted(self.matches)
        pairs = [
            (number, image, each)
            for number, name in enumerate(names)
            for image, each in sorted(self.matches[name].items())
        ]
        none = np.zeros((len(self.thresholds), 0), bool)
        return {
            "thresholds": self.thresholds,
            "images": np.array(self.images),
            "names": np.array(names, np.str_),
            "name": np.array([number for number, _, _ in pairs], np.int64),
            "image": np.array([image for _, image, _ in pairs], np.int64),
            "objects": np.array([each.objects for *_, each in pairs], np.int64),
            "predictions": np.array([len(each.scores) for *_, each in pairs], np.int64),
            "scores": np.concatenate([np.zeros(0), *(each.scores for *_, each in pairs)]),
            "hits": np.concatenate([none, *(each.hits for *_, each in pairs)], axis=1),
            "ignored": np.concatenate([none, *(each.ignored for *_, each in pairs)], axis=1),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "MatchedDetections":
        """Returns the matches of arrays, see `to_arrays`.

        Raises:
            ValueError: The arrays do not fit each other.
            KeyError: One is missing.
        """
        lengths = arrays["predictions"]
        parts = zip(
            arrays["name"].tolist(),
            arrays["image"].tolist(),
            arrays["objects"].tolist(),
            _split(arrays["scores"], lengths),
            _split(arrays["hits"], lengths),
            _split(arrays["ignored"], lengths),
            strict=True,
        )
        matches: dict[str, dict[int, Matches]] = {str(name): {} for name in arrays["names"]}
        names = list(matches)
        for name, image, objects, scores, hits, ignored in parts:
            matches[names[name]][image] = Matches(
                scores=scores, hits=hits, ignored=ignored, objects=objects
            )
        return cls(matches, arrays["thresholds"], int(arrays["images"]))


def _split(array: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Splits the last axis into parts of these lengths."""
    if array.shape[-1] != lengths.sum():
        raise ValueError(f"An array of {array.shape[-1]} predictions; allowed: {lengths.sum()}.")
    return np.split(array, np.cumsum(lengths), axis=-1)[:-1]


def _mean(values: Sequence[Array]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _average_precision(matches: Sequence[Matches]) -> Array:
    """Returns the average precision (T,) of the predictions of one name."""
    order = np.argsort(-np.concatenate([each.scores for each in matches]), kind="stable")
    hits = np.concatenate([each.hits for each in matches], axis=1)[:, order]
    counts = ~np.concatenate([each.ignored for each in matches], axis=1)[:, order]
    right = np.cumsum(hits & counts, axis=1)
    wrong = np.cumsum(~hits & counts, axis=1)
    recall = right / sum(each.objects for each in matches)
    precision = right / np.maximum(right + wrong, 1)
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    # A recall that is never reached has the precision 0.
    padded = np.concatenate([precision, np.zeros((len(precision), 1))], axis=1)
    return np.array(
        [
            values[np.searchsorted(reached, _RECALLS, side="left")].mean()
            for values, reached in zip(padded, recall, strict=True)
        ]
    )


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
            thresholds: Of the IoU; if None, those of COCO or Omni3D.
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


Indices = NDArray[np.intp]

# Corners of the faces in the order of CORNER_SIGNS, anticlockwise as seen from outside.
_FACES = np.array(
    [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
)
_CHUNK = 4096
"""Pairs that are clipped at once; they take some 30 MB."""


def exact_iou(a: Box3d, b: Box3d) -> float:
    """Returns the volume of the intersection over that of the union, 0 to 1.

    The frame does not matter, if it is the same for both. Equal boxes have 1, touching ones 0, each
    within some 1e-15 of the distance of the boxes from each other over the shortest side.
    """
    return float(iou_matrix([a], [b])[0, 0])


def iou_matrix(first: Sequence[Box3d], second: Sequence[Box3d]) -> Array:
    """Returns `exact_iou` of each of the first boxes with each of the second, (N, M)."""
    found = np.zeros((len(first), len(second)))
    if not found.size:
        return found
    a = _Stack(first)
    b = _Stack(second)
    # Subtracted first, so that the distance to the origin costs no precision.
    apart = np.linalg.norm(a.centres[:, None] - b.centres, axis=-1)
    near = np.argwhere(apart < a.reaches[:, None] + b.reaches)
    for start in range(0, len(near), _CHUNK):
        rows, columns = near[start : start + _CHUNK].T
        limit = np.minimum(a.volumes[rows], b.volumes[columns])
        # Rounding may leave 1e-16 outside of the possible volumes.
        shared = np.clip(_shared_volumes(a, rows, b, columns), 0.0, limit)
        found[rows, columns] = shared / (a.volumes[rows] + b.volumes[columns] - shared)
    return found


def sampled_iou(predicted: Box3d, target: Box3d, *, points: int = 100_000, seed: int = 0) -> float:
    """Returns the IoU by random points, as published (STRING, Schenck et al., 2025, F.2.3).

    r, the share of points uniform in the predicted box that lie inside the target, gives
    r V_p / (V_t + (1 - r) V_p). `sampled_standard_error` is its standard error.
    """
    COUNT.check(points=points)
    # A point c of the cube is R_t^-1 (p - t + R_p S_p c) in the frame of the target.
    arms = np.linalg.solve(target.rotation, predicted.rotation * predicted.size)
    offset = np.linalg.solve(target.rotation, predicted.centre - target.centre)
    local = arms @ _cube(points, seed)
    local += offset[:, None]
    np.abs(local, out=local)
    share = float((local <= target.size[:, None] / 2).all(axis=0).mean())
    volume = _volume(predicted)
    return share * volume / (_volume(target) + (1 - share) * volume)


@lru_cache(maxsize=4)
def _cube(points: int, seed: int) -> Array:
    """Returns points (3, points) that are uniform in the cube of side 1 about 0."""
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (3, points))


def sampled_standard_error(predicted: Box3d, target: Box3d, points: int = 100_000) -> float:
    """Returns the standard error of `sampled_iou`, by the exact IoU.

    With V the volume of the prediction and T that of the target, the derivative of
    r V / (T + (1 - r) V) by r is V (T + V) / (T + (1 - r) V)^2.
    """
    COUNT.check(points=points)
    iou = exact_iou(predicted, target)
    volume = _volume(predicted)
    wanted = _volume(target)
    share = iou * (volume + wanted) / (1 + iou) / volume
    slope = volume * (wanted + volume) / (wanted + (1 - share) * volume) ** 2
    return float(slope * np.sqrt(max(share * (1 - share), 0.0) / points))


class _Stack:
    """Boxes as arrays; each of length N."""

    def __init__(self, boxes: Sequence[Box3d]) -> None:
        self.centres = np.stack([box.centre for box in boxes])
        self.rotations = np.stack([box.rotation for box in boxes])
        self.sizes = np.stack([box.size for box in boxes])
        self.volumes = np.array([_volume(box) for box in boxes])
        # Axes within the tolerance lengthen a diagonal by this factor at most.
        self.reaches = (1 + 3 * TOLERANCE) * np.linalg.norm(self.sizes, axis=-1) / 2


def _volume(box: Box3d) -> float:
    # Axes from a file are orthogonal within a tolerance only: the determinant is not quite 1.
    return float(box.size.prod() * np.linalg.det(box.rotation))


def _shared_volumes(
    a: _Stack, rows: NDArray[np.intp], b: _Stack, columns: NDArray[np.intp]
) -> Array:
    """Returns the volumes of intersection of pairs of boxes.

    In the frame of b, whose faces are x = +-X, y = +-Y, z = +-Z, a vertical line at (x, y) enters a
    at z_0 and leaves it at z_1, and shares the length c(z_1) - c(z_0) with b, where
    c(z) = max(z + Z, 0) - max(z - Z, 0) is the height over the floor of b, at most 2 Z. So the
    volume is the sum over the faces of a, clipped at +-X and +-Y, of the integral of c over their
    projection, which is negative for faces that look down. Of each summand the integral is a sum
    of signed prisms after one more clip. The faces of b do not occur, so faces of both boxes that
    coincide are not counted twice or missed, and each step is continuous.
    """
    offsets = a.centres[rows] - b.centres[columns]
    arms = CORNER_SIGNS / 2 * a.sizes[rows][:, None]
    corners = offsets[:, None] + arms @ a.rotations[rows].swapaxes(1, 2)
    frames = b.rotations[columns]
    local = np.linalg.solve(frames, corners.swapaxes(1, 2)).swapaxes(1, 2)
    polygons: NDArray[Any] = local[:, _FACES].reshape(-1, 4, 3)
    half = np.repeat(b.sizes[columns] / 2, len(_FACES), axis=0)[:, None]
    for axis in (0, 1):
        for sign in (1.0, -1.0):
            polygons = _clipped(polygons, half[..., axis] - sign * polygons[..., axis])
    total = np.zeros(len(polygons))
    for sign in (1.0, -1.0):
        above = polygons - sign * np.array([0.0, 0.0, -1.0]) * half
        total += sign * _prisms(_clipped(above, above[..., 2]))
    found: Array = total.reshape(len(rows), -1).sum(axis=1) * np.linalg.det(frames)
    return found


def _clipped(polygons: Array, distances: Array) -> Array:
    """Returns the parts of convex polygons (K, V, 3) at distances (K, V) of 0 and above.

    The polygons get as many vertices as the largest needs; the others repeat one of theirs
    (I. E. Sutherland and G. W. Hodgman, "Reentrant polygon clipping", Communications of the ACM 17,
    1974, p. 32-42).
    """
    after = np.roll(distances, -1, axis=1)
    inside = distances >= 0
    crosses = inside != (after >= 0)
    shares = distances / np.where(crosses, distances - after, 1.0)
    cuts = polygons + shares[..., None] * (np.roll(polygons, -1, axis=1) - polygons)
    points = np.stack((polygons, cuts), axis=2).reshape(len(polygons), -1, 3)
    keeps = np.stack((inside, crosses), axis=2).reshape(len(polygons), -1)
    width = max(int(keeps.sum(axis=1).max()), 1)
    order = np.argsort(~keeps, axis=1, kind="stable")[:, :width]
    points = np.take_along_axis(points, order[..., None], axis=1)
    kept = np.take_along_axis(keeps, order, axis=1)
    return np.where(kept[..., None], points, points[:, :1])


def _prisms(polygons: Array) -> Array:
    """Returns the signed volumes between polygons (K, V, 3) and the plane z = 0."""
    first = polygons[:, :1]
    second = polygons[:, 1:-1]
    third = polygons[:, 2:]
    one = second - first
    two = third - first
    areas = (one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0]) / 2
    found: Array = (areas * (first + second + third)[..., 2]).sum(axis=1) / 3
    return found
