"""Detections that are matched to objects, and their average precision over any draw of images."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.encoders.perception.detections import Array

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
            images: Indices of images, repeated ones count again; None: all.
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
