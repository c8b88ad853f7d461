"""McNemar's exact test of paired outcomes, its power, and the number of pairs that it needs."""

import math

import numpy as np
from numpy.typing import NDArray

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
