"""Measures of retrieval: recall of texts by images and of images by texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import COUNT

RECALLS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True, eq=False)
class Retrieval:
    """The result of one direction.

    Attributes:
        ranks: (Q,) number of wrong entries that are ranked before the first right one, per query.
            Wrong entries of the same similarity come first, so a constant network finds nothing.
        right: (Q,) number of right entries in the pool, at least 1.
        pool: Number of entries that each query is ranked against.
    """

    ranks: NDArray[np.intp]
    right: NDArray[np.intp]
    pool: int

    def hits(self, k: int) -> NDArray[np.bool_]:
        """Returns whether a right entry is among the first k, (Q,)."""
        COUNT.check(k=k)
        return self.ranks < k

    def recall(self, k: int) -> float:
        """Returns R@k, the share of queries with a right entry among the first k."""
        return float(self.hits(k).mean())

    def chance(self, k: int) -> float:
        """Returns the expected R@k of a random order: k / pool with one right entry."""
        COUNT.check(k=k)
        missed = np.ones(len(self.right))
        for drawn in range(min(k, self.pool)):
            missed *= np.maximum(self.pool - self.right - drawn, 0) / (self.pool - drawn)
        return float(1 - missed.mean())

    def to_dict(self) -> dict[str, float]:
        """Returns pool, recalls and chances as plain JSON."""
        found: dict[str, float] = {"queries": len(self.ranks), "pool": self.pool}
        for k in RECALLS:
            found[f"recall_at_{k}"] = self.recall(k)
            found[f"chance_at_{k}"] = self.chance(k)
        return found


def image_to_text(
    similarities: ArrayLike, captions: Sequence[Sequence[str]], texts: Sequence[str]
) -> Retrieval:
    """Ranks the texts for each image; every text that is equal to one of its captions is right.

    Args:
        similarities: (N, M) of images and texts, such as cosines.
        captions: The captions of each image.
        texts: The pool.

    Raises:
        ValueError: The shapes differ, a similarity is not finite, or no text is right for an image.
    """
    table, right = _right(similarities, captions, texts)
    return _ranked(table, right, "image", [", ".join(each) for each in captions])


def text_to_image(
    similarities: ArrayLike, captions: Sequence[Sequence[str]], texts: Sequence[str]
) -> Retrieval:
    """Ranks the images for each text; every image with an equal caption is right.

    Args:
        similarities: (N, M) of images and texts, such as cosines.
        captions: The captions of each image; the images are the pool.
        texts: The queries.

    Raises:
        ValueError: The shapes differ, a similarity is not finite, or no image is right for a text.
    """
    table, right = _right(similarities, captions, texts)
    return _ranked(table.T, right.T, "text", texts)


def _right(
    similarities: ArrayLike, captions: Sequence[Sequence[str]], texts: Sequence[str]
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    table = np.asarray(similarities)
    if table.shape != (len(captions), len(texts)) or not table.size:
        raise ValueError(
            f"The similarities have the shape {table.shape} for {len(captions)} images and "
            f"{len(texts)} texts; allowed: (images, texts), at least one of both."
        )
    if not np.isfinite(table).all():
        raise ValueError("A similarity is not finite.")
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    kind = np.array([numbers[text] for text in texts])
    holds = np.zeros((len(captions), len(numbers)), bool)
    for row, each in zip(holds, captions, strict=True):
        row[[numbers[caption] for caption in each if caption in numbers]] = True
    return table, holds[:, kind]


def _ranked(
    table: NDArray[np.floating], right: NDArray[np.bool_], query: str, names: Sequence[str]
) -> Retrieval:
    without = np.flatnonzero(~right.any(axis=1))
    if len(without):
        raise ValueError(
            f"{len(without)} of {len(right)} queries have no right entry in the pool, the first is "
            f"the {query} {names[without[0]]!r}; leave them out."
        )
    best = np.where(right, table, -np.inf).max(axis=1, keepdims=True)
    ranks = (~right & (table >= best)).sum(axis=1)
    return Retrieval(ranks=ranks, right=right.sum(axis=1), pool=right.shape[1])
