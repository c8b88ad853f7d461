"""Intervals of measures, and differences of two recipes on the same images, by resampling.

The variance of a value is that over groups of images, such as rooms. From it follow the interval
of a measure between 0 and 1, such as an accuracy, tests and intervals of differences, and the data
for a verdict. It requires scipy, see the extra `perception`.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stringline.datasets.contract.argument_checks import Range
from stringline.encoders.perception.perception_network import Statistic

Array = NDArray[np.float64]

_DRAWS = Range(least=100, whole=True)
_CONFIDENCE = Range(above=0, below=1)


@dataclass(frozen=True)
class Variance:
    """A variance with its degrees of freedom."""

    value: float
    freedom: int


def drawn_variance(
    statistic: Callable[[NDArray[np.intp]], float],
    groups: Sequence[Hashable],
    draws: int,
    confidence: float,
    seed: int,
) -> tuple[float, float, int]:
    """Returns the statistic of all images, its variance over groups, and their number."""
    index = group_numbers(groups)
    members = [np.flatnonzero(index == group) for group in range(index.max() + 1)]
    random = random_draws(draws, confidence, seed)
    value = float(statistic(np.arange(len(groups))))
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
    return value, variance_of_draws(drawn, len(members)), len(members)


def variance_of_draws(drawn: Array, groups: int) -> float:
    """Returns the variance over groups, from draws of as many groups with replacement."""
    return float(drawn.var()) * groups / (groups - 1)


def group_numbers(groups: Sequence[Hashable]) -> NDArray[np.intp]:
    """Returns the number of the group of each, in the order of first appearance."""
    numbers: dict[Hashable, int] = {}
    index = [numbers.setdefault(group, len(numbers)) for group in groups]
    if len(numbers) < 2:
        raise ValueError(
            f"There are {len(numbers)} groups; allowed: 2 or more, since an interval over rooms or "
            f"images needs several."
        )
    return np.array(index, np.intp)


def random_draws(draws: int, confidence: float, seed: int) -> np.random.Generator:
    """Returns the generator of draws, after a check of the settings."""
    _DRAWS.check(draws=draws)
    _CONFIDENCE.check(confidence=confidence)
    return np.random.default_rng(seed)


def student_interval(
    value: float, parts: Sequence[Variance], confidence: float
) -> tuple[float, float, float]:
    """Returns the ends of the interval and the p value of 0, for independent variances."""
    variance = sum(part.value for part in parts)
    if not variance:
        return value, value, 0.0 if value else 1.0
    freedom = variance**2 / sum(part.value**2 / part.freedom for part in parts)
    half = student_quantile(freedom, confidence) * math.sqrt(variance)
    return value - half, value + half, _p(value / math.sqrt(variance), freedom)


def student_quantile(freedom: float, confidence: float) -> float:
    """Returns the two-sided quantile of Student's distribution."""
    from scipy.special import stdtrit  # Optional: of the extra `perception`.

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _p(t: float, freedom: float) -> float:
    """Returns the two-sided p value of Student's distribution."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def share_interval(
    statistic: Callable[[NDArray[np.intp]], float],
    groups: Sequence[Hashable],
    *,
    draws: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Returns the interval of a statistic between 0 and 1, such as an accuracy.

    Wilson's interval with the effective number of independent outcomes, p (1 - p) over the variance
    over groups, and a quantile of Student's distribution (N. Dean and M. Pagano, "Evaluating
    confidence interval methods for binomial proportions in clustered surveys", Journal of Survey
    Statistics and Methodology 3, 2015, p. 484-503). If all draws are equal, as at 0 and 1, each
    group is one outcome.

    Args:
        statistic: See `resampled`.
        groups: The group of each image, such as its room.
        draws: Number of draws, 100 or more.
        confidence: Coverage of the interval, between 0 and 1.
        seed: Seed of the draws.

    Raises:
        ValueError: The statistic of a draw is not finite, or there are fewer than two groups.
    """
    value, variance, size = drawn_variance(statistic, groups, draws, confidence, seed)
    spread = value * (1 - value)
    count = spread / variance if variance and spread > 0 else float(size)
    t2 = student_quantile(size - 1, confidence) ** 2
    centre = (value + t2 / (2 * count)) / (1 + t2 / count)
    half = math.sqrt(t2 * (spread / count + t2 / (4 * count**2))) / (1 + t2 / count)
    return max(0.0, centre - half), min(1.0, centre + half)


POWER = 0.8
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """A value with its interval over groups and trainings.

    The interval is the value plus or minus the standard error times a quantile of Student's
    distribution, whose degrees of freedom are those of Welch and Satterthwaite (F. Satterthwaite,
    Biometrics Bulletin 2, 1946, p. 110-114). The variance over groups is that of the bootstrap.

    Attributes:
        value: The value of the data themselves.
        low: Lower end of the interval.
        high: Upper end of the interval.
        p: Two-sided p value of the hypothesis that the value is 0, by the same distribution; at
            least 2^(1 - groups), that of a sign test in which all groups agree.
        groups: Number of groups, such as rooms or images.
        seeds: Smallest number of trainings of a recipe. With 1 the interval does not contain the
            variance of the trainings of this recipe.
        needed_groups: Number of groups at which a difference of this size would be told from 0
            with a power of 80 % at the level 5 %, with as many seeds; None if no number suffices.
        needed_seeds: The same for trainings of each recipe, with as many groups; None also if each
            recipe has a single one. A recipe with a single one is taken to vary as the other.
    """

    value: float
    low: float
    high: float
    p: float
    groups: int
    seeds: int = 1
    needed_groups: int | None = None
    needed_seeds: int | None = None


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
    """Returns the difference of the means of two recipes, second less first.

    The variance over groups is that of draws of groups with replacement, the same for both recipes
    (B. Efron and R. Tibshirani, "An introduction to the bootstrap", 1993, chapter 6), times
    G / (G - 1) for G groups. The variance over trainings is that of their means, for each recipe.

    Args:
        first: (S, N) values of S trainings on N objects or images, such as an IoU or 0 and 1; (N,)
            for one training.
        second: (S', N), on the same objects.
        groups: (N,) the group of each, such as its room: objects of a room are not independent.
        counts: (N,) number of objects of each, where the values are sums over the objects of an
            image; the mean is then over objects. If None, each value is that of one object.
        draws: Number of draws, 100 or more.
        confidence: Coverage of the interval, between 0 and 1.
        seed: Seed of the draws.

    Raises:
        ValueError: The shapes differ, a value is not finite, or there are fewer than two groups.
    """
    tables = _tables(first, second, groups)
    index = group_numbers(groups)
    counted = np.ones(len(index)) if counts is None else np.asarray(counts, np.float64)
    if counted.shape != index.shape or not (counted >= 0).all() or not counted.sum():
        raise ValueError(f"counts are {counted.tolist()}; allowed: 0 or more for each value.")
    size = int(index.max()) + 1
    random = random_draws(draws, confidence, seed)
    taken = random.multinomial(size, np.full(size, 1 / size), draws)
    objects = taken @ np.bincount(index, counted)
    if not objects.all():
        raise ValueError("Some draws are without objects; leave out groups without any.")
    each = [taken @ _sums(index, table) / objects[:, None] for table in tables]
    means = [table.sum(axis=1) / counted.sum() for table in tables]  # Per training.
    difference = each[1].mean(axis=1) - each[0].mean(axis=1)
    return _difference(means, variance_of_draws(difference, size), size, confidence)


def statistic_difference(
    first: Sequence[Statistic],
    second: Sequence[Statistic],
    groups: Sequence[Hashable],
    *,
    draws: int = 500,
    confidence: float = 0.95,
    seed: int = 0,
) -> Resampled:
    """Returns the difference of a measure that is not a mean, second less first.

    Such as the average precision. The variances are those of `paired_difference`.

    Args:
        first: The measure of each training of a recipe, as a function of indices of images, of
            which repeated ones count again.
        second: The same for the other recipe.
        groups: The group of each image, such as its room.
        draws: Number of draws, 100 or more.
        confidence: Coverage of the interval, between 0 and 1.
        seed: Seed of the draws.

    Raises:
        ValueError: The measure of a draw is not finite, or there are fewer than two groups.
    """

    def difference(images: NDArray[np.intp]) -> float:
        return fmean(one(images) for one in second) - fmean(one(images) for one in first)

    _, variance, size = drawn_variance(difference, groups, draws, confidence, seed)
    every = np.arange(len(groups))
    means = [np.array([one(every) for one in trainings]) for trainings in (first, second)]
    return _difference(means, variance, size, confidence)


def _difference(
    means: Sequence[Array], over_groups: float, groups: int, confidence: float
) -> Resampled:
    """Returns the difference of two recipes, second less first.

    Args:
        means: The measure of each training, for both recipes.
        over_groups: Variance of the difference over groups.
        groups: Number of groups.
        confidence: Coverage of the interval.
    """
    value = float(means[1].mean() - means[0].mean())
    trainings = _of_trainings(means)
    over = Variance(over_groups, groups - 1)
    low, high, p = student_interval(value, [over, *trainings], confidence)
    by_seeds = sum(one.value for one in trainings)
    return Resampled(
        value=value,
        low=low,
        high=high,
        p=max(p, 2.0 ** (1 - groups)),
        groups=groups,
        seeds=min(len(mean) for mean in means),
        needed_groups=_needed(value, groups, over_groups, by_seeds),
        needed_seeds=_needed_seeds(value, trainings, over_groups),
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


def _of_trainings(means: Sequence[Array]) -> list[Variance]:
    """Returns the variance of the mean over trainings of each recipe with several ones."""
    return [
        Variance(float(mean.var(ddof=1)) / len(mean), len(mean) - 1)
        for mean in means
        if len(mean) > 1
    ]


def _needed_seeds(value: float, trainings: Sequence[Variance], other: float) -> int | None:
    """Returns the number of trainings of each recipe for a verdict; see `Resampled`."""
    if not trainings:
        return None
    single = [each.value * (each.freedom + 1) for each in trainings]
    return _needed(value, 1, 2 * float(np.mean(single)), other)


def _needed(value: float, count: int, own: float, other: float) -> int | None:
    """Returns the number of units for a verdict; their variance `own` falls with their number."""
    z = NormalDist().inv_cdf(1 - LEVEL / 2) + NormalDist().inv_cdf(POWER)
    rest = (value / z) ** 2 - other
    return max(math.ceil(count * own / rest), 2) if rest > 0 else None
