"""A paired test that holds however often it is examined: when to stop collecting episodes.

McNemar's test has its level for one number of seeds, chosen in advance. A test by betting has it at
all numbers at once (G. Shafer, "Testing by betting", Journal of the Royal Statistical Society A 184
(2021), p. 407-431; P. Grünwald, R. de Heide, W. Koolen, "Safe testing", JRSS B 86 (2024), p.
1091-1128). Between equally good policies each seed with different outcomes favours either with
probability 1/2, so a capital that is bet on them does not grow on average, and exceeds 1 / level
at any time with at most the probability `level` (J. Ville, 1939).

The bets are those of a uniform prior over the probability that the second policy is favoured: they
need no guess of the difference, and the capital is 2^m / ((m + 1) (m choose k)) after m seeds with
different outcomes, of which k favour the second policy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from stringline.sim.statistics.intervals import Interval
from stringline.sim.statistics.paired import Pairs, last, only_first_chance


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
