"""Paired comparison of two policies, on one task and over several: differences, intervals, tests.

The seed decides the difficulty of an episode, so two policies tend to fail on the same seeds, and
only the seeds with different outcomes are evidence.

McNemar's test has its level for one number of seeds, chosen in advance. A test by betting has it
at all numbers at once, however often it is examined (G. Shafer, "Testing by betting", Journal of
the Royal Statistical Society A 184 (2021), p. 407-431; P. Grünwald, R. de Heide, W. Koolen, "Safe
testing", JRSS B 86 (2024), p. 1091-1128). Between equally good policies each seed with different
outcomes favours either with probability 1/2, so a capital that is bet on them does not grow on
average, and exceeds 1 / level at any time with at most the probability `level` (J. Ville, 1939).

The bets are those of a uniform prior over the probability that the second policy is favoured:
they need no guess of the difference, and the capital is 2^m / ((m + 1) (m choose k)) after m seeds
with different outcomes, of which k favour the second policy.

In a mean over tasks each task counts equally, whatever the number of its starts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from statistics import NormalDist, fmean
from typing import Self

import numpy as np
from numpy.typing import NDArray

from stringline.sim.statistics.intervals import Interval, Rate, score_interval

MOST_PAIRS = 10_000
# Considered standard deviations of the number of discordant pairs; the omitted tails have 1e-9.
_REACH = 6.0


def exact_mcnemar(only_first: int, only_second: int) -> float:
    """Returns the two-sided p value of the exact test that both rates are equal.

    Q. McNemar, "Note on the sampling error of the difference between correlated proportions or
    percentages", Psychometrika 12 (1947), p. 153-157, with the binomial distribution itself: with
    equal rates, each wins a discordant pair with probability 1/2. The test is conservative; without
    discordant pairs p is 1.

    Args:
        only_first: Number of pairs in which only the first succeeds.
        only_second: Number of pairs in which only the second succeeds.
    """
    fewer = min(only_first, only_second)
    discordant = only_first + only_second
    tail = sum(math.comb(discordant, wins) for wins in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << discordant))


def mcnemar_power(count: int, only_first: float, only_second: float, level: float = 0.05) -> float:
    """Returns the probability that McNemar's exact test rejects equal rates.

    The sum of the probabilities of rejection over the numbers of discordant pairs; exact except for
    tails beyond six standard deviations.

    Args:
        count: Number of pairs, at least 1.
        only_first: Probability that only the first succeeds.
        only_second: Probability that only the second succeeds.
        level: Level of the test, between 0 and 1.
    """
    if (
        count < 1
        or min(only_first, only_second) < 0
        or only_first + only_second > 1
        or not 0 < level < 1
    ):
        raise ValueError(
            f"count is {count}, the probabilities {only_first} and {only_second}, the level "
            f"{level}; allowed: at least 1 pair, probabilities of at least 0 with a sum of at most "
            f"1, and a level between 0 and 1."
        )
    discordant = only_first + only_second
    if discordant == 0:
        return 0.0
    spread = _REACH * math.sqrt(count * discordant * (1 - discordant)) + 1
    low = max(0, math.floor(count * discordant - spread))
    high = min(count, math.ceil(count * discordant + spread))
    counts = np.arange(low, high + 1)
    weights = np.exp(_log_binomial(counts, np.array([[count]]), discordant))[0]
    wins = np.arange(high + 1)
    allowed = np.exp(_log_binomial(wins, counts[:, None], 0.5))
    rejected = 2 * np.cumsum(allowed, axis=1) <= level  # Of `wins` or fewer by either policy.
    chance = np.exp(_log_binomial(wins, counts[:, None], only_second / discordant))
    mirrored = np.exp(_log_binomial(wins, counts[:, None], only_first / discordant))
    rejects = ((chance + mirrored) * rejected).sum(axis=1)
    return float(weights @ rejects)


def pairs_needed(
    only_first: int, only_second: int, count: int, power: float = 0.8, level: float = 0.05
) -> int | None:
    """Returns the number of pairs that McNemar's exact test needs at the observed rates.

    By bisection on `mcnemar_power`; the normal approximation (R. J. Connor, "Sample size for
    testing differences in proportions for the paired-sample design", Biometrics 43, 1987, p.
    207-211) gives a somewhat smaller number. The power is not monotonic in the number of pairs, and
    the observed rates are uncertain, so the result is an order of magnitude.

    Args:
        only_first: Number of pairs in which only the first succeeds.
        only_second: Number of pairs in which only the second succeeds.
        count: Number of all pairs.
        power: Probability of a verdict, between 0 and 1.
        level: Level of the test, between 0 and 1.

    Returns:
        The number of pairs; None if both won equally many, or if more than `MOST_PAIRS` are needed.
    """
    if only_first == only_second:
        return None
    first = only_first / count
    second = only_second / count
    low = 0
    high = 8
    while mcnemar_power(high, first, second, level) < power:
        if high == MOST_PAIRS:
            return None
        low = high
        high = min(2 * high, MOST_PAIRS)
    while high - low > 1:
        middle = (low + high) // 2
        decided = mcnemar_power(middle, first, second, level) >= power
        low, high = (low, middle) if decided else (middle, high)
    return high


def _log_binomial(
    successes: NDArray[np.int64], trials: NDArray[np.int64], chance: float
) -> NDArray[np.float64]:
    """Returns binomial log probabilities; minus infinity if successes exceed trials."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(trials.max()) + 1)))])  # log k!
    failures = trials - successes
    ways = logs[trials] - logs[np.minimum(successes, trials)] - logs[np.maximum(failures, 0)]
    # 1e-300 replaces 0, because 0 times the logarithm of 0 is NaN.
    outcomes = successes * math.log(max(chance, 1e-300)) + failures * math.log(
        max(1 - chance, 1e-300)
    )
    return np.where(failures >= 0, ways + outcomes, -np.inf)


_ROOT_STEPS = 60  # Each halves the bracket of length 1, down to the precision of a float.


@dataclass(frozen=True)
class Pairs:
    """Outcomes of two policies on the same seeds.

    Each field is the number of seeds on which both policies succeed, only one of them, or neither.
    """

    both: int
    only_first: int
    only_second: int
    neither: int

    def __post_init__(self) -> None:
        if min(self.both, self.only_first, self.only_second, self.neither) < 0:
            raise ValueError(f"{self}: counts are 0 or more.")

    @classmethod
    def of(cls, first: Sequence[bool], second: Sequence[bool]) -> Self:
        """Counts outcomes in the same order of seeds."""
        if len(first) != len(second):
            raise ValueError(
                f"There are {len(first)} outcomes of the first policy and {len(second)} of the "
                f"second; the numbers must be equal."
            )
        pairs = [(bool(a), bool(b)) for a, b in zip(first, second, strict=True)]
        return cls(*map(pairs.count, product((True, False), (True, False))))

    def __add__(self, other: "Pairs") -> "Pairs":
        """Returns the sum, such as of two tasks."""
        return Pairs(
            self.both + other.both,
            self.only_first + other.only_first,
            self.only_second + other.only_second,
            self.neither + other.neither,
        )

    @property
    def count(self) -> int:
        """Number of seeds."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def first(self) -> Rate:
        """Success rate of the first policy."""
        return Rate(self.both + self.only_first, self.count)

    @property
    def second(self) -> Rate:
        """Success rate of the second policy."""
        return Rate(self.both + self.only_second, self.count)

    @property
    def difference(self) -> float:
        """Rate of the second less that of the first policy, -1 to 1; NaN without seeds."""
        return (self.only_second - self.only_first) / self.count if self.count else math.nan


def difference_interval(pairs: Pairs, confidence: float = 0.95) -> Interval:
    """Returns the interval of the difference of paired rates, second less first.

    T. Tango, "Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design", Statistics in Medicine 17 (1998), p. 891-908: all differences that a
    score test does not reject, with the nuisance parameter, the probability q that only the first
    policy succeeds, at its maximum likelihood. Newcombe's method 10 (the same year and volume, p.
    2635-2650) needs no search, but covers too often at high and correlated rates: of 100,000
    samples of 50 at rates 0.95 and correlation 0.5 it contained the truth in 99.5 %, Tango's in
    98.0 %; at 200 seeds in 97.1 and 95.6 % (`benchmarks/paired_intervals.py`). Tango's interval
    also agrees with McNemar's test: without continuity correction the test rejects exactly when 0
    is outside.
    Without seeds the interval is [-1, 1].
    """
    if not 0 < confidence < 1:
        raise ValueError(f"The confidence is {confidence}; allowed: between 0 and 1.")
    if not pairs.count:
        return Interval(-1.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)

    def within(difference: float) -> bool:
        return abs(_score(pairs, difference)) <= z

    return Interval(last(within, pairs.difference, -1.0), last(within, pairs.difference, 1.0))


def _score(pairs: Pairs, difference: float) -> float:
    """Returns Tango's score (equation 6) of the observed counts for a true difference."""
    n = pairs.count
    gained = pairs.only_second
    lost = pairs.only_first
    q = only_first_chance(pairs, difference)
    deviation = gained - lost - n * difference
    variance = n * (2 * q + difference * (1 - difference))
    if variance <= 1e-12 * n:
        return 0.0 if abs(deviation) < 1e-9 * n else math.copysign(math.inf, deviation)
    return deviation / math.sqrt(variance)


def only_first_chance(pairs: Pairs, difference: float) -> float:
    """Returns the probability that only the first policy succeeds, at its maximum likelihood.

    It is that for a true difference, second less first, -1 to 1 (Tango 1998, equation 7).
    """
    n = pairs.count
    gained = pairs.only_second
    lost = pairs.only_first
    linear = (2 * n - gained + lost) * difference - gained - lost
    constant = -lost * difference * (1 - difference)
    return (math.sqrt(max(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)


def last(holds: Callable[[float], bool], start: float, end: float) -> float:
    """Returns the last value between `start` and `end` for which `holds`, by bisection."""
    if holds(end):
        return end
    for _ in range(_ROOT_STEPS):
        middle = (start + end) / 2
        start, end = (middle, end) if holds(middle) else (start, middle)
    return start


def mcnemar(pairs: Pairs) -> float:
    """Returns the two-sided p value of McNemar's exact test that both rates are equal."""
    return exact_mcnemar(pairs.only_first, pairs.only_second)


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns corrected p values, in their order.

    S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6 (1979), p. 65-70: if values of at most 0.05 are rejected, the probability of any
    wrong rejection in the family is at most 5 %, for any dependence of the tests.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"p values are {list(p_values)}; allowed: 0 to 1.")
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


MOST_SEEDS = MOST_PAIRS


def seeds_needed(pairs: Pairs, power: float = 0.8, level: float = 0.05) -> int | None:
    """Returns the number of seeds that McNemar's exact test needs at the observed rates.

    Returns:
        The number of seeds, of which `pairs_needed` says how exact it is; None if both policies won
        equally many seeds, or if more than `MOST_SEEDS` are needed.
    """
    return pairs_needed(pairs.only_first, pairs.only_second, pairs.count, power, level)


def anytime_p(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Returns the two-sided p value that both rates are equal, valid at any number of seeds.

    It is 1 divided by the largest capital so far: if episodes are collected until it is at most
    `level`, the probability to find a difference between equally good policies is at most `level`.

    Args:
        first: Outcomes of the first policy in the order in which seeds are collected.
        second: Outcomes of the second policy on the same seeds.

    Raises:
        ValueError: The numbers of outcomes differ.
    """
    Pairs.of(first, second)
    gained = accumulate(int(b and not a) for a, b in zip(first, second, strict=True))
    lost = accumulate(int(a and not b) for a, b in zip(first, second, strict=True))
    return min(map(_inverse_capital, lost, gained), default=1.0)


def anytime_interval(pairs: Pairs, confidence: float = 0.95) -> Interval:
    """Returns an interval of the difference, second less first, that holds at all numbers of seeds.

    With the probability `confidence` the true difference is in the intervals of all numbers of
    seeds (a confidence sequence). Each difference is bet against by Jeffreys' prior over the
    probabilities of the outcomes (only the first succeeds, only the second, both or neither), and
    is in the interval while the capital against its most likely probabilities is below
    1 / (1 - confidence) (H. Robbins, "Statistical methods related to the law of the iterated
    logarithm", Annals of Mathematical Statistics 41 (1970), p. 1397-1409). Without seeds the
    interval is [-1, 1]. Soon after a decision it may still contain 0, since the test need not bet
    on the seeds with equal outcomes.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"The confidence is {confidence}; allowed: between 0 and 1.")
    if not pairs.count:
        return Interval(-1.0, 1.0)
    rest = pairs.both + pairs.neither
    counts = (pairs.only_first, pairs.only_second, rest)
    mixture = sum(math.lgamma(k + 0.5) - math.lgamma(0.5) for k in counts)
    mixture += math.lgamma(1.5) - math.lgamma(pairs.count + 1.5)

    def within(difference: float) -> bool:
        q = only_first_chance(pairs, difference)
        chances = (q, q + difference, 1 - 2 * q - difference)
        # Rounding leaves 1e-17 in place of 0.
        if any(k and chance < 1e-15 for k, chance in zip(counts, chances, strict=True)):
            return False
        likelihood = sum(k * math.log(c) for k, c in zip(counts, chances, strict=True) if k)
        return mixture - likelihood <= -math.log(1 - confidence)

    return Interval(last(within, pairs.difference, -1.0), last(within, pairs.difference, 1.0))


def _inverse_capital(lost: int, gained: int) -> float:
    discordant = lost + gained
    return min(1.0, (discordant + 1) * math.comb(discordant, gained) / (1 << discordant))


@dataclass(frozen=True)
class Decision:
    """How a sequential comparison ends.

    Attributes:
        share: Probability of a decision.
        expected_seeds: Mean number of seeds; all seeds without a decision.
    """

    share: float
    expected_seeds: float


def decision(
    most_seeds: int, only_first: float, only_second: float, level: float = 0.05
) -> Decision:
    """Returns how a comparison that stops at p <= `level` ends; exact, by all possible outcomes.

    Args:
        most_seeds: Number of seeds without a decision, at least 1.
        only_first: Probability that only the first policy succeeds on a seed.
        only_second: Probability that only the second policy succeeds on a seed.
        level: Level of the test, between 0 and 1.

    Raises:
        ValueError: An argument is out of range.
    """
    if most_seeds < 1 or min(only_first, only_second, 1 - only_first - only_second) < 0:
        raise ValueError(
            f"The number of most seeds is {most_seeds}, the probabilities {only_first} and "
            f"{only_second}; allowed: at least 1 seed, probabilities with a sum of at most 1."
        )
    size = most_seeds + 1
    stops = np.array(
        [
            [_inverse_capital(lost, gained) <= level for gained in range(size)]
            for lost in range(size)
        ]
    )
    running = np.zeros((size, size))  # Probability of each (lost, gained) without a decision.
    running[0, 0] = 1.0
    expected = 0.0
    for _ in range(most_seeds):
        expected += float(running.sum())
        after = running * (1 - only_first - only_second)
        after[1:] += only_first * running[:-1]
        after[:, 1:] += only_second * running[:, :-1]
        running = np.where(stops, 0.0, after)
    return Decision(1 - float(running.sum()), expected)


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
