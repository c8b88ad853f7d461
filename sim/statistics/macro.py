"""Means over tasks with intervals: each task counts equally, whatever its number of starts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Self

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
