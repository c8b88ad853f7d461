"""How many seeds a paired comparison needs before McNemar's exact test is likely to tell two policies apart."""

import math

import numpy as np
from numpy.typing import NDArray

from stringline.sim.statistics.paired import Pairs

MOST_SEEDS = 10_000
# Standard deviations of the number of discordant pairs that are looked at; beyond lies 1e-9.
_REACH = 6.0


def paired_power(seeds: int, only_first: float, only_second: float, level: float = 0.05) -> float:
    """Returns the chance that McNemar's exact test rejects equal rates.

    The sum over the number of discordant pairs of the chance that the test rejects given that
    number; exact but for tails beyond six standard deviations.

    Args:
        seeds: How many are compared.
        only_first: Chance that only the first policy succeeds on a seed.
        only_second: Chance that only the second one does.
        level: Of the test.

    Raises:
        ValueError: A number is out of its range.
    """
    if (
        seeds < 1
        or min(only_first, only_second) < 0
        or only_first + only_second > 1
        or not 0 < level < 1
    ):
        raise ValueError(
            f"seeds is {seeds}, the chances {only_first} and {only_second}, the level {level}; "
            f"allowed: at least 1 seed, "
            "chances of 0 and above with a sum of at most 1, a level between 0 and 1."
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
    """Returns how many seeds McNemar's exact test would need if the discordant pairs went on at the observed rates.

    By bisection on `paired_power`; the normal approximation (R. J. Connor, "Sample size for testing
    differences in proportions for the paired-sample design", Biometrics 43, 1987, p. 207-211) gives
    somewhat fewer than the exact test needs. The power is a saw in the number of seeds, and the
    observed rates are themselves uncertain: an order of magnitude, not a promise.

    Args:
        pairs: What was observed.
        power: Chance of a verdict.
        level: Of the test.

    Returns:
        Their number; None where the two won equally many seeds, or where more than `MOST_SEEDS`
        would be needed.
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
    """Returns log probabilities of the binomial distribution, broadcast; minus infinity where successes exceed trials."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, int(trials.max()) + 1)))])  # log k!
    failures = trials - successes
    ways = logs[trials] - logs[np.minimum(successes, trials)] - logs[np.maximum(failures, 0)]
    # The smallest number stands for zero, whose logarithm times none would be no number.
    outcomes = successes * math.log(max(chance, 1e-300)) + failures * math.log(
        max(1 - chance, 1e-300)
    )
    return np.where(failures >= 0, ways + outcomes, -np.inf)
