"""The sequential test keeps its level however often it is examined, and needs few seeds."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stringline.sim.statistics.paired import (
    Pairs,
    anytime_interval,
    anytime_p,
    decision,
    difference_interval,
    mcnemar,
    mcnemar_power,
)

OUTCOMES = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60)


@pytest.mark.parametrize("level", [0.05, 0.01, 0.05 / 12])
@pytest.mark.parametrize("discordant", [0.1, 0.5, 1.0])
def test_level_under_optional_stopping(level: float, discordant: float) -> None:
    """Exactly, by the distribution of all outcomes: stopped at the first p at most the level."""
    stops = decision(150, discordant / 2, discordant / 2, level)
    assert 0 < stops.share <= level


def test_mcnemars_test_loses_its_level_under_optional_stopping() -> None:
    """The test by bets is needed: the fixed one, examined after each seed, errs three times."""
    rng = np.random.default_rng(0)
    favoured = rng.integers(0, 2, (2000, 100)).cumsum(axis=1)
    p = {
        (n, k): mcnemar(Pairs(0, n - k, k, 0)) <= 0.05 for n in range(1, 101) for k in range(n + 1)
    }
    wrong = [any(p[n, int(k)] for n, k in enumerate(row, 1)) for row in favoured]
    assert np.mean(wrong) > 0.15


@pytest.mark.parametrize("rates", [(0.05, 0.25), (0.1, 0.3), (0.02, 0.12)])
def test_power_beside_the_fixed_test(rates: tuple[float, float]) -> None:
    """With twice the seeds at most, fewer errors of the second kind for about as many episodes."""
    first, second = rates
    fixed = next(n for n in range(8, 500) if mcnemar_power(n, first, second) >= 0.8)
    stops = decision(2 * fixed, first, second)
    assert stops.share > 0.9
    assert stops.expected_seeds < 1.02 * fixed
    clear = decision(2 * fixed, 0.0, 0.5)
    assert clear.share > 0.999
    assert clear.expected_seeds < 0.5 * fixed


def test_exact_distribution_agrees_with_simulated_collections() -> None:
    rng = np.random.default_rng(1)
    stops = decision(60, 0.05, 0.35)
    ends = []
    for _ in range(800):
        kinds = rng.choice(3, 60, p=[0.05, 0.35, 0.6])
        first, second = kinds == 0, kinds == 1
        p = partial(_p, first, second)
        ends.append(bisect_left(range(60), True, key=lambda n: p(n) <= 0.05))  # p never grows.
    error = 3 * float(np.std(ends)) / np.sqrt(800)
    assert np.mean(ends) == pytest.approx(stops.expected_seeds, abs=error)


def _p(first: Sequence[bool], second: Sequence[bool], seeds: int) -> float:
    return anytime_p(first[:seeds], second[:seeds])


@given(OUTCOMES)
def test_p_never_grows_and_treats_both_alike(outcomes: list[tuple[bool, bool]]) -> None:
    first, second = [a for a, _ in outcomes], [b for _, b in outcomes]
    p = [_p(first, second, n) for n in range(len(outcomes) + 1)]
    assert p[0] == 1.0
    assert all(0 < after <= before <= 1 for before, after in pairwise(p))
    assert anytime_p(second, first) == p[-1]


def test_seeds_with_equal_outcomes_are_no_evidence() -> None:
    assert anytime_p([True, False] * 40, [True, False] * 40) == 1.0
    assert anytime_p([False] * 8, [True] * 8) == 9 / 256
    assert anytime_p([False] * 5000, [True] * 5000) < 1e-300


@pytest.mark.parametrize("chances", [(0.1, 0.1), (0.0, 0.1), (0.05, 0.3)])
def test_interval_holds_at_all_numbers_of_seeds(chances: tuple[float, float]) -> None:
    """At most 5 % of 150 collections leave it at any of 40 seeds, to three standard errors."""
    rng = np.random.default_rng(2)
    steps = rng.multinomial(1, [*chances, 1 - sum(chances)], (150, 40)).cumsum(axis=1)
    known: dict[tuple[int, ...], bool] = {}
    truth = chances[1] - chances[0]

    def leaves(counts: tuple[int, ...]) -> bool:
        if counts not in known:
            low, high = anytime_interval(Pairs(0, *counts))
            known[counts] = not low - 1e-9 <= truth <= high + 1e-9
        return known[counts]

    left = [any(leaves(tuple(map(int, counts))) for counts in row) for row in steps]
    assert np.mean(left) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)


@given(st.builds(Pairs, *[st.integers(0, 60)] * 4))
def test_interval_is_sound(pairs: Pairs) -> None:
    """It contains the estimate and Tango's interval, and flips with the order."""
    low, high = anytime_interval(pairs)
    assert -1 <= low <= high <= 1
    turned = anytime_interval(Pairs(pairs.both, pairs.only_second, pairs.only_first, pairs.neither))
    np.testing.assert_allclose((-turned.high, -turned.low), (low, high), atol=1e-9)
    if pairs.count:
        assert low <= pairs.difference <= high
        fixed = difference_interval(pairs, 0.8)
        assert low <= fixed.low
        assert fixed.high <= high


def test_errors_name_the_wrong_value() -> None:
    with pytest.raises(ValueError, match="1 outcomes of the first policy and 2 of the second"):
        anytime_p([True], [True, False])
    with pytest.raises(ValueError, match=r"confidence is 1\.0; allowed: between 0 and 1"):
        anytime_interval(Pairs(1, 1, 1, 1), 1.0)
    with pytest.raises(ValueError, match="most seeds is 0"):
        decision(0, 0.1, 0.1)
