"""The power of a paired comparison agrees with simulated experiments."""

import math
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest

from stringline.sim.statistics.paired import MOST_SEEDS, Pairs, mcnemar, mcnemar_power, seeds_needed


def simulated(seeds: int, only_first: float, only_second: float, level: float) -> float:
    """The share of 20,000 experiments that the test decides."""
    drawn = np.random.default_rng(0).multinomial(
        seeds, [1 - only_first - only_second, only_first, only_second], 20_000
    )
    test = cache(lambda first, second: mcnemar(Pairs(0, first, second, 0)) <= level)
    return float(np.mean([test(int(first), int(second)) for _, first, second in drawn]))


@pytest.mark.parametrize(
    ("seeds", "only_first", "only_second", "level"),
    [
        (50, 0.05, 0.2, 0.05),
        (100, 0.1, 0.1, 0.05),
        (30, 0.0, 0.3, 0.05),
        (300, 0.15, 0.25, 0.005),
        (20, 0.4, 0.6, 0.05),
    ],
)
def test_power_agrees_with_simulation(
    seeds: int, only_first: float, only_second: float, level: float
) -> None:
    expected = simulated(seeds, only_first, only_second, level)
    assert mcnemar_power(seeds, only_first, only_second, level) == pytest.approx(
        expected, abs=4 * 0.5 / math.sqrt(20_000)
    )


@pytest.mark.parametrize(
    "pairs", [Pairs(30, 3, 9, 8), Pairs(60, 12, 2, 26), Pairs(5, 0, 1, 14), Pairs(300, 30, 45, 25)]
)
def test_seeds_needed_give_the_power(pairs: Pairs) -> None:
    """The seeds decide 80 % of simulated experiments, fewer seeds less; Connor (1987) is near."""
    needed = seeds_needed(pairs)
    assert needed is not None
    first, second = pairs.only_first / pairs.count, pairs.only_second / pairs.count
    assert simulated(needed, first, second, 0.05) == pytest.approx(0.81, abs=0.03)
    assert mcnemar_power(round(0.85 * needed), first, second) < 0.8
    discordant, difference = first + second, second - first
    z, z_power = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(0.8)
    connor = (
        (z * math.sqrt(discordant) + z_power * math.sqrt(discordant - difference**2)) / difference
    ) ** 2
    assert 0.95 * connor < needed < 1.4 * connor + 8
    assert seeds_needed(pairs, level=0.005) > needed  # type: ignore[operator]


def test_seeds_without_information() -> None:
    """Equal wins have no difference to detect, and a tiny one needs too many seeds."""
    assert seeds_needed(Pairs(10, 0, 0, 10)) is None
    assert seeds_needed(Pairs(10, 3, 3, 10)) is None
    assert seeds_needed(Pairs(0, 0, 0, 0)) is None
    assert seeds_needed(Pairs(900, 50, 51, 0)) is None
    assert mcnemar_power(MOST_SEEDS, 50 / 1001, 51 / 1001) < 0.8
    assert (
        seeds_needed(Pairs(0, 0, 10, 0)) == 6
    )  # All are won: six of six are the fewest that p <= 0.05 can have.
    assert mcnemar_power(10, 0.0, 0.0) == 0.0


@pytest.mark.parametrize(
    "wrong", [(0, 0.1, 0.1, 0.05), (5, -0.1, 0.1, 0.05), (5, 0.6, 0.6, 0.05), (5, 0.1, 0.1, 1.0)]
)
def test_errors_name_the_wrong_value(wrong: tuple[int, float, float, float]) -> None:
    with pytest.raises(ValueError, match="allowed: at least 1 pair"):
        mcnemar_power(*wrong)
