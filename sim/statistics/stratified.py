"""An exact test that two policies are equally good on each of several tasks."""

import math
from collections.abc import Sequence

import numpy as np

from stringline.sim.statistics.paired import Pairs

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
