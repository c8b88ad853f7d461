"""Measures of classification: top-1, by class, and within pairs of classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import Range

Labels = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, eq=False)
class Classification:
    """Predicted classes of images or clips.

    Attributes:
        predicted: (N,) the class with the largest logit; of equal ones the first.
        labels: (N,) the true class.
        classes: Number of classes.
    """

    predicted: Labels
    labels: Labels
    classes: int

    @property
    def outcomes(self) -> NDArray[np.bool_]:
        """Whether each prediction is right, (N,)."""
        found: NDArray[np.bool_] = self.predicted == self.labels
        return found

    @property
    def top_1(self) -> float:
        """Share of right predictions."""
        return float(self.outcomes.mean())

    @property
    def chance(self) -> float:
        """Share of the most frequent class, the best that a constant prediction reaches."""
        return float(np.bincount(self.labels).max() / len(self.labels))

    def by_class(self) -> NDArray[np.float64]:
        """Returns the share of right predictions per class, (classes,); NaN without images."""
        counts = np.bincount(self.labels, minlength=self.classes)
        right = np.bincount(self.labels[self.outcomes], minlength=self.classes)
        found: NDArray[np.float64] = np.full(self.classes, np.nan)
        np.divide(right, counts, out=found, where=counts > 0)
        return found

    def confusion(self) -> NDArray[np.intp]:
        """Returns the counts (classes, classes), true class by predicted class."""
        pairs = self.labels * self.classes + self.predicted
        counts = np.bincount(pairs, minlength=self.classes**2)
        return counts.reshape(self.classes, self.classes)


def classified(logits: ArrayLike, labels: ArrayLike) -> Classification:
    """Returns the predictions of logits (N, C) for true classes (N,).

    Raises:
        ValueError: The shapes differ, a logit is not finite, or a label is not one of the classes.
    """
    table, true = _checked(logits, labels)
    return Classification(predicted=table.argmax(axis=1), labels=true, classes=table.shape[1])


def within_pairs(logits: ArrayLike, labels: ArrayLike, partners: ArrayLike) -> NDArray[np.bool_]:
    """Returns whether the true class has a larger logit than its partner, (N,).

    For motions of which each is another's reversal: a single frame is at chance, 50 %. Equal logits
    are wrong.

    Args:
        logits: (N, C).
        labels: (N,) true classes.
        partners: (C,) the other class of each pair.

    Raises:
        ValueError: As for `classified`, or the partner of a partner is another class.
    """
    table, true = _checked(logits, labels)
    other = np.asarray(partners)
    classes = np.arange(table.shape[1])
    if other.shape != classes.shape or not np.isin(other, classes).all():
        raise ValueError(
            f"The partners are {other.tolist()}; allowed: one of {len(classes)} classes for each."
        )
    if (other[other] != classes).any() or (other == classes).any():
        raise ValueError(f"The partners are {other.tolist()}; allowed: pairs of two classes.")
    rows = np.arange(len(true))
    found: NDArray[np.bool_] = table[rows, true] > table[rows, other[true]]
    return found


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.floating], Labels]:
    table = np.asarray(logits)
    true = np.asarray(labels)
    if table.ndim != 2 or true.shape != table.shape[:1] or not table.size:
        raise ValueError(
            f"The logits have the shape {table.shape} and the labels {true.shape}; allowed: (N, C) "
            f"and (N,), at least one of both."
        )
    if not np.isfinite(table).all():
        raise ValueError("A logit is not finite.")
    labels_of = Range(least=0, most=table.shape[1] - 1, whole=True)
    for extreme in (true.min(), true.max()):
        labels_of.check(label=int(extreme))
    return table, true.astype(np.intp)
