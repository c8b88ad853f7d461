"""Power and sample size of McNemar's exact test for paired comparisons of policies."""

import math

import numpy as np
from numpy.typing import NDArray

from stringline.sim.statistics.paired import Pairs

MOST_SEEDS = 10_000
# Considered standard deviations of the number of discordant pairs; the omitted tails have 1e-9.
_REACH = 6.0


def paired_power(seeds: int, only_first: float, only_second: float, level: float = 0.05) -> float:
    """Returns the probability that McNemar's exact test rejects equal rates.

    The sum of the probabilities of rejection over the numbers of discordant pairs; exact except for
    tails beyond six standard deviations.

    Args:
        seeds: Number of seeds, at least 1.
        only_first: Probability that only the first policy succeeds on a seed.
        only_second: Probability that only the second policy succeeds on a seed.
        level: Level of the test, between 0 and 1.
    """
    if (
        seeds < 1
        or min(only_first, only_second) < 0
        or only_first + only_second > 1
        or not 0 < level < 1
    ):
        raise ValueError(
            f"seeds is {seeds}, the probabilities {only_first} and {only_second}, the level "
            f"{level}; allowed: at least 1 seed, probabilities of at least 0 with a sum of at most "
            f"1, and a level between 0 and 1."
        )
    discordant = only_first + only_second
    if discordant == 0:
        return 0.0
    spread = _REACH * math.sqrt(seeds * discordant * (1 - discordant)) + 1
    low = max(0, math.floor(seeds * discordant - spread))
    high = min(seeds, math.ceil(seeds * discordant + spread))
    counts = np.arange(low, high + 1)
    weights = np.exp(_log_binomial(counts, np.array([[seeds]]), discordant))[0]
    wins = np.arange(high + 1)
    allowed = np.exp(_log_binomial(wins, counts[:, None], 0.5))
    rejected = 2 * np.cumsum(allowed, axis=1) <= level  # Of `wins` or fewer by either policy.
    chance = np.exp(_log_binomial(wins, counts[:, None], only_second / discordant))
    mirrored = np.exp(_log_binomial(wins, counts[:, None], only_first / discordant))
    rejects = ((chance + mirrored) * rejected).sum(axis=1)
    return float(weights @ rejects)


def seeds_needed(pairs: Pairs, power: float = 0.8, level: float = 0.05) -> int | None:
    """Returns the number of seeds that McNemar's exact test needs at the observed rates.

    By bisection on `paired_power`; the normal approximation (R. J. Connor, "Sample size for testing
    differences in proportions for the paired-sample design", Biometrics 43, 1987, p. 207-211) gives
    a somewhat smaller number. The power is not monotonic in the number of seeds, and the observed
    rates are uncertain, so the result is an order of magnitude.

    Returns:
        The number of seeds; None if both policies won equally many seeds, or if more than
        `MOST_SEEDS` are needed.
    """
    if pairs.only_first == pairs.only_second:
        return None
    first = pairs.only_first / pairs.count
    second = pairs.only_second / pairs.count
    low = 0
    high = 8
    while paired_power(high, first, second, level) < power:
        if high == MOST_SEEDS:
            return None
        low = high
        high = min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if paired_power(middle, first, second, level) >= power else (middle, high)
        )
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
