"""Differences of two recipes on the same images: tests, intervals, and the data for a verdict."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import Range
from stringline.encoders.statistics.paired_outcomes import exact_mcnemar, pairs_needed

Array = NDArray[np.float64]

POWER = 0.8
LEVEL = 0.05
_DRAWS = Range(least=100, whole=True)
_CONFIDENCE = Range(above=0, below=1)


@dataclass(frozen=True, kw_only=True)
class OutcomeComparison:
    """Two recipes on the same images, each right or wrong.

    Attributes:
        count: Number of images.
        value: Share right of the second less that of the first.
        p: Two-sided p value of McNemar's exact test.
        needed: Number of images at which the test would decide with a power of 80 % at these rates;
            None if the rates are equal or more than 10,000 are needed.
    """

    count: int
    value: float
    p: float
    needed: int | None


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """A value with its bootstrap interval over groups and seeds.

    Attributes:
        value: The value of the data themselves.
        low: Lower end of the interval.
        high: Upper end of the interval.
        p: Two-sided p value of the hypothesis that the value is 0.
        groups: Number of groups, such as rooms or images.
        seeds: Smallest number of trainings of a recipe. With 1 the interval holds for these very
            trainings.
        needed_groups: Number of groups at which a difference of this size would be told from 0
            with a power of 80 % at the level 5 %, with as many seeds; None if no number suffices.
        needed_seeds: The same for seeds, with as many groups; None also with a single seed.
    """

    value: float
    low: float
    high: float
    p: float
    groups: int
    seeds: int = 1
    needed_groups: int | None = None
    needed_seeds: int | None = None


def compare_outcomes(first: ArrayLike, second: ArrayLike) -> OutcomeComparison:
    """Compares outcomes (N,) of 0 and 1 on the same images by McNemar's exact test.

    The images must be independent: with several per room use `paired_difference`.

    Raises:
        ValueError: There are none, the numbers differ, or a value is neither 0 nor 1.
    """
    a = np.asarray(first, np.float64)
    b = np.asarray(second, np.float64)
    if a.ndim != 1 or a.shape != b.shape or not a.size:
        raise ValueError(
            f"The outcomes have the shapes {a.shape} and {b.shape}; allowed: the same (N,)."
        )
    if not np.isin([a, b], (0.0, 1.0)).all():
        raise ValueError("Outcomes are 0 and 1.")
    lost = int((a > b).sum())
    gained = int((b > a).sum())
    return OutcomeComparison(
        count=len(a),
        value=(gained - lost) / len(a),
        p=exact_mcnemar(lost, gained),
        needed=pairs_needed(lost, gained, len(a), POWER, LEVEL),
    )


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    groups: Sequence[Hashable],
    *,
    counts: ArrayLike | None = None,
    draws: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Resampled:
    """Returns the difference of the means of two recipes, second less first, by the bootstrap.

    Each draw takes groups with replacement, the same for both recipes, and trainings with
    replacement, independently (B. Efron and R. Tibshirani, "An introduction to the bootstrap",
    1993, chapter 8). The deviation of a draw of S trainings from their mean is enlarged by
    sqrt(S / (S - 1)), without which its variance would be too small by (S - 1) / S.

    Args:
        first: (S, N) values of S trainings on N objects or images, such as an IoU or 0 and 1; (N,)
            for one training.
        second: (S', N), on the same objects.
        groups: (N,) the group of each, such as its room: objects of a room are not independent.
        counts: (N,) number of objects of each, where the values are sums over the objects of an
            image; the mean is then over objects. None: each value is that of one object.
        draws: Number of draws, 100 or more.
        confidence: Coverage of the interval, between 0 and 1.
        seed: Seed of the draws.

    Raises:
        ValueError: The shapes differ, a value is not finite, or there are fewer than two groups.
    """
    tables = _tables(first, second, groups)
    index = _indices(groups)
    counted = np.ones(len(index)) if counts is None else np.asarray(counts, np.float64)
    if counted.shape != index.shape or not (counted >= 0).all() or not counted.sum():
        raise ValueError(f"counts are {counted.tolist()}; allowed: 0 or more for each value.")
    size = int(index.max()) + 1
    random = _random(draws, confidence, seed)
    taken = random.multinomial(size, np.full(size, 1 / size), draws)
    objects = taken @ np.bincount(index, counted)
    if not objects.all():
        raise ValueError("Some draws are without objects; leave out groups without any.")
    each = [taken @ _sums(index, table) / objects[:, None] for table in tables]
    means = [table.sum(axis=1) / counted.sum() for table in tables]  # Per training.
    value = float(means[1].mean() - means[0].mean())
    by_groups = float((each[1].mean(axis=1) - each[0].mean(axis=1)).var())
    by_seeds = float(sum(mean.var(ddof=1) / len(mean) for mean in means if len(mean) > 1))
    drawn = [_with_seeds(one, random) for one in each]
    low, high, p = _interval(drawn[1] - drawn[0], confidence)
    seeds = min(len(mean) for mean in means)
    return Resampled(
        value=value,
        low=low,
        high=high,
        p=p,
        groups=size,
        seeds=seeds,
        needed_groups=_needed(value, size, by_groups, by_seeds),
        needed_seeds=_needed(value, seeds, by_seeds, by_groups) if seeds > 1 else None,
    )


def resampled(
    statistic: Callable[[NDArray[np.intp]], float],
    groups: Sequence[Hashable],
    *,
    draws: int = 500,
    confidence: float = 0.95,
    seed: int = 0,
    centred: bool = False,
) -> Resampled:
    """Returns any statistic of images with its bootstrap interval over groups.

    For a measure that is not a mean, such as the average precision of one recipe less that of
    another: `lambda images: second.value(images) - first.value(images)`.

    Args:
        statistic: Its value for indices of images, of which repeated ones count again.
        groups: The group of each image, such as its room.
        draws: Number of draws, 100 or more.
        confidence: Coverage of the interval, between 0 and 1.
        seed: Seed of the draws.
        centred: Draws are moved so that their mean is the value. The average precision needs it:
            an image that is drawn twice has its right predictions twice, so draws are larger than
            the value (Efron and Tibshirani, 1993, chapter 10).

    Raises:
        ValueError: The statistic of a draw is not finite, or there are fewer than two groups.
    """
    index = _indices(groups)
    members = [np.flatnonzero(index == group) for group in range(index.max() + 1)]
    random = _random(draws, confidence, seed)
    value = statistic(np.arange(len(groups)))
    drawn = np.array(
        [
            statistic(np.concatenate([members[g] for g in random.integers(len(members), size=n)]))
            for n in [len(members)] * draws
        ]
    )
    if not np.isfinite([value, *drawn]).all():
        raise ValueError(
            f"The statistic is {value} of all images and not finite in "
            f"{int((~np.isfinite(drawn)).sum())} of {draws} draws; allowed: finite."
        )
    if centred:
        drawn = drawn + (value - drawn.mean())
    low, high, p = _interval(drawn, confidence)
    return Resampled(
        value=float(value),
        low=low,
        high=high,
        p=p,
        groups=len(members),
        needed_groups=_needed(float(value), len(members), float(drawn.var()), 0.0),
    )


def _tables(first: ArrayLike, second: ArrayLike, groups: Sequence[Hashable]) -> list[Array]:
    """Returns the values of both recipes as (S, N)."""
    values = [np.atleast_2d(np.asarray(each, np.float64)) for each in (first, second)]
    if any(each.ndim != 2 or each.shape[1] != len(groups) for each in values):
        raise ValueError(
            f"The values have the shapes {values[0].shape} and {values[1].shape} for "
            f"{len(groups)} groups; allowed: (S, N) with a group for each of the N."
        )
    if not all(np.isfinite(each).all() for each in values):
        raise ValueError("A value is not finite; objects without a match count 0.")
    return values


def _sums(index: NDArray[np.intp], table: Array) -> Array:
    """Returns the sums over groups (G, S) of values (S, N)."""
    sums: Array = np.stack([np.bincount(index, row) for row in table], axis=1, dtype=np.float64)
    return sums


def _indices(groups: Sequence[Hashable]) -> NDArray[np.intp]:
    """Returns the number of the group of each, in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    index = [numbers.setdefault(group, len(numbers)) for group in groups]
    if len(numbers) < 2:
        raise ValueError(
            f"There are {len(numbers)} groups; allowed: 2 or more, since an interval over rooms or "
            f"images needs several."
        )
    return np.array(index, np.intp)


def _random(draws: int, confidence: float, seed: int) -> np.random.Generator:
    _DRAWS.check(draws=draws)
    _CONFIDENCE.check(confidence=confidence)
    return np.random.default_rng(seed)


def _with_seeds(values: Array, random: np.random.Generator) -> Array:
    """Returns the mean of drawn trainings (draws,), for values (draws, S)."""
    mean: Array = values.mean(axis=1)
    trainings = values.shape[1]
    if trainings == 1:
        return mean
    picks = random.integers(trainings, size=values.shape)
    other = np.take_along_axis(values, picks, axis=1).mean(axis=1)
    found: Array = mean + math.sqrt(trainings / (trainings - 1)) * (other - mean)
    return found


def _interval(drawn: Array, confidence: float) -> tuple[float, float, float]:
    """Returns the ends of the interval and the p value of 0."""
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (beyond + 1) / (len(drawn) + 1))
    return float(low), float(high), p


def _needed(value: float, count: int, own: float, other: float) -> int | None:
    """Returns the number of units for a verdict; their variance `own` falls with their number."""
    z = NormalDist().inv_cdf(1 - LEVEL / 2) + NormalDist().inv_cdf(POWER)
    rest = (value / z) ** 2 - other
    return max(math.ceil(count * own / rest), 2) if rest > 0 else None
