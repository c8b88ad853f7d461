"""The variance of a value over groups of images, and intervals by Student's distribution.

They require scipy, see the extra `perception`.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import Range

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
