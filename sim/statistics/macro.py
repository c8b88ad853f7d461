"""Means over tasks with intervals and an exact test: each task counts equally.

The number of its starts does not matter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Self

import numpy as np

from stringline.sim.statistics.intervals import Interval, Rate, score_interval
from stringline.sim.statistics.paired import Pairs, difference_interval


@dataclass(frozen=True)
class MacroMean:
    """A mean over tasks with its 95 % interval.

    The tasks are fixed: the interval is for the mean over these very tasks, and covers the starts.

    Attributes:
        value: Mean of rates, or of differences of rates.
        interval: Unlike the normal interval of the mean, it holds for rates near 0 and 1.
        tasks: Number of tasks.
    """

    value: float
    interval: Interval
    tasks: int

    @classmethod
    def of_rates(cls, rates: Sequence[Rate]) -> Self:
        """Returns the mean of success rates, each with at least one trial.

        The interval is Wilson's at the effective number of episodes (C. Franco et al., "Comparative
        study of confidence intervals for proportions in complex sample surveys", Journal of Survey
        Statistics and Methodology 7 (2019), p. 334-364). The variances within the tasks are those
        of rates with one more success and one more failure.

        Raises:
            ValueError: There are none.
        """
        mean = _mean([rate.value for rate in rates])
        count = len(rates)
        smoothed = [(rate.successes + 1) / (rate.trials + 2) for rate in rates]
        variance = sum(s * (1 - s) / r.trials for s, r in zip(smoothed, rates, strict=True))
        likely = fmean(smoothed)
        inverse = variance / count**2 / (likely * (1 - likely))
        return cls(mean, score_interval(mean, inverse, NormalDist().inv_cdf(0.975)), count)

    @classmethod
    def of_differences(cls, pairs: Sequence[Pairs]) -> Self:
        """Returns the mean of paired differences, second less first, each with seeds.

        The interval combines Tango's of the tasks, whose estimates are independent (G. Y. Zou and
        A. Donner, "Construction of confidence limits about effect measures: a general approach",
        Statistics in Medicine 27 (2008), p. 1693-1702, for a mean in place of a sum).

        Raises:
            ValueError: There are none.
        """
        values = [each.difference for each in pairs]
        intervals = [difference_interval(each) for each in pairs]
        mean = _mean(values)
        count = len(values)
        below = math.hypot(*(v - i.low for v, i in zip(values, intervals, strict=True))) / count
        above = math.hypot(*(i.high - v for v, i in zip(values, intervals, strict=True))) / count
        return cls(mean, Interval(mean - below, mean + above), count)

    def to_dict(self) -> dict[str, float]:
        """Returns mean and interval as plain JSON."""
        return {
            "value": self.value,
            "low": self.interval.low,
            "high": self.interval.high,
            "tasks": self.tasks,
        }

    def __str__(self) -> str:
        """Returns the mean of rates as text such as `84 % [79, 88]`."""
        low, high = self.interval
        return f"{self.value * 100:.0f} % [{low * 100:.0f}, {high * 100:.0f}]"


def _mean(values: Sequence[float]) -> float:
    if not values or not all(map(math.isfinite, values)):
        raise ValueError("A mean over tasks needs results of at least one task, and of each.")
    return fmean(values)


def points(value: float, interval: Interval) -> str:
    """Returns a difference in percentage points with its interval: `+16 [+4, +29]`."""
    return f"{value * 100:+.0f} [{interval.low * 100:+.0f}, {interval.high * 100:+.0f}]"


# Steps between success rates of 0 and 1 at most; finer ones are rounded.
_MOST_STEPS = 100_000


def stratified_mcnemar(tasks: Sequence[Pairs]) -> float:
    """Returns the two-sided p value of the mean over tasks of the differences of paired rates.

    With equal rates on each task, each discordant pair favours either policy with probability 1/2,
    independently. The p value is the probability that this gives a mean at least as far from 0 as
    the observed one, summed exactly over all signs of the pairs (sign flips within strata). With
    equal numbers of seeds it is McNemar's exact test of the pooled pairs; with others that test
    would weight tasks by their seeds, and the mean does not.

    Args:
        tasks: The pairs of each task; tasks without seeds are left out.
    """
    counted = [pairs for pairs in tasks if pairs.count]
    steps = math.lcm(*(pairs.count for pairs in counted))
    exact = steps <= _MOST_STEPS
    steps = min(steps, _MOST_STEPS)
    weights = [round(steps / pairs.count) for pairs in counted]
    discordant = [pairs.only_first + pairs.only_second for pairs in counted]
    observed = abs(
        sum(
            weight * (pairs.only_second - pairs.only_first)
            for weight, pairs in zip(weights, counted, strict=True)
        )
    )
    # Each task's sum is `weight` times 2 wins less its discordant pairs.
    total = sum(weight * count for weight, count in zip(weights, discordant, strict=True))
    chances = np.ones(1)
    for weight, count in zip(weights, discordant, strict=True):
        chances = _after(chances, weight, count)
    sums = np.abs(2 * np.arange(len(chances)) - total)
    slack = 0 if exact else sum(discordant)  # Of rounded weights, half a step per pair and side.
    return min(1.0, float(chances[sums >= observed - slack].sum()))


def _after(chances: np.ndarray, weight: int, count: int) -> np.ndarray:
    """Returns the chances of sums after `count` fair pairs that add `weight` or nothing."""
    found = np.zeros(len(chances) + weight * count)
    for wins in range(count + 1):
        # Through logarithms, since 1 / 2^count is 0 for a float from 1075 pairs on.
        log = math.lgamma(count + 1) - math.lgamma(wins + 1) - math.lgamma(count - wins + 1)
        chance = math.exp(log - count * math.log(2))
        found[weight * wins : weight * wins + len(chances)] += chance * chances
    return found
