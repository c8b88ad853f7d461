"""Paired comparisons agree with independent references and have their nominal error rates.

Means over tasks weigh tasks equally, and their intervals contain the truth.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from statsmodels.stats.contingency_tables import mcnemar as mcnemar_of_statsmodels
from statsmodels.stats.multitest import multipletests

from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import (
    MacroMean,
    Pairs,
    difference_interval,
    holm,
    mcnemar,
    points,
)

COUNT = st.integers(0, 60)
PAIRS = st.builds(Pairs, COUNT, COUNT, COUNT, COUNT)


def score(pairs: Pairs, difference: float) -> float:
    """The score test by definition: slope of the profile likelihood over its standard error."""
    rest = pairs.both + pairs.neither

    def log_likelihood(q: float) -> float:
        chances = (q, q + difference, 1 - 2 * q - difference)
        counts = (pairs.only_first, pairs.only_second, rest)
        return sum(
            count * math.log(max(chance, 1e-300))
            for count, chance in zip(counts, chances, strict=True)
            if count
        )

    low, high = max(0.0, -difference), (1 - difference) / 2
    q = minimize_scalar(
        lambda q: -log_likelihood(q), bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    ).x
    chances = np.array([q, q + difference, 1 - 2 * q - difference])
    gradients = np.array(
        [[0, 1], [1, 1], [-1, -2]]
    )  # Of the three chances by the difference and by the nuisance.
    slope = pairs.only_second / chances[1] - rest / chances[2]
    information = pairs.count * np.einsum("ci,cj,c->ij", gradients, gradients, 1 / chances)
    return float(slope / math.sqrt(information[0, 0] - information[0, 1] ** 2 / information[1, 1]))


@pytest.mark.parametrize(
    "counts", [(30, 3, 9, 8), (1, 1, 7, 12), (36, 12, 2, 0), (10, 20, 20, 5), (100, 4, 1, 95)]
)
def test_interval_inverts_the_score_test(counts: tuple[int, int, int, int]) -> None:
    """Agrees with a numerical search without Tango's formulas."""
    pairs = Pairs(*counts)
    interval = difference_interval(pairs)
    for end, outwards in ((interval.low, -1.0), (interval.high, 1.0)):
        found = brentq(
            lambda d: abs(score(pairs, d)) - 1.959963984540054,
            pairs.difference,
            outwards * 0.9,
            xtol=1e-9,
        )
        assert end == pytest.approx(found, abs=1e-4)


def test_interval_of_a_published_example() -> None:
    """Airway hyper-responsiveness of 21 children before and after transplantation.

    M. W. Fagerland, S. Lydersen, P. Laake, "Recommended tests and confidence intervals for paired
    binomial proportions", Statistics in Medicine 33 (2014), p. 2850-2875, where the first less the
    second is counted.
    """
    interval = difference_interval(Pairs(both=1, only_first=7, only_second=1, neither=12))
    assert (round(interval.low, 3), round(interval.high, 3)) == (-0.517, -0.026)


@given(PAIRS, st.floats(0.5, 0.99))
def test_interval_is_sound(pairs: Pairs, confidence: float) -> None:
    """It contains the estimate, stays in -1 to 1, flips with the order, grows with confidence."""
    interval = difference_interval(pairs, confidence)
    assert -1 <= interval.low <= interval.high <= 1
    turned = difference_interval(
        Pairs(pairs.both, pairs.only_second, pairs.only_first, pairs.neither), confidence
    )
    np.testing.assert_allclose((-turned.high, -turned.low), interval, atol=1e-9)
    wider = difference_interval(pairs, 0.995)
    assert wider.low <= interval.low + 1e-9 <= interval.high + 1e-9 <= wider.high + 2e-9
    if pairs.count:
        assert interval.low <= pairs.difference <= interval.high


@given(PAIRS)
def test_interval_agrees_with_mcnemars_score_test(pairs: Pairs) -> None:
    """Zero is outside just when |b - c| / sqrt(b + c) exceeds 1.96."""
    discordant = pairs.only_first + pairs.only_second
    statistic = (
        abs(pairs.only_first - pairs.only_second) / math.sqrt(discordant) if discordant else 0.0
    )
    interval = difference_interval(pairs)
    assert (interval.low > 1e-9 or interval.high < -1e-9) == (statistic > 1.959963984540054)


@given(PAIRS)
def test_mcnemar_agrees_with_statsmodels(pairs: Pairs) -> None:
    table = [[pairs.both, pairs.only_first], [pairs.only_second, pairs.neither]]
    assert mcnemar(pairs) == pytest.approx(
        float(mcnemar_of_statsmodels(table, exact=True).pvalue), abs=1e-12
    )


def test_mcnemar_of_many_pairs() -> None:
    """Beyond the range of floats: 2^2000."""
    assert mcnemar(Pairs(0, 1000, 1000, 0)) == 1.0
    assert 0 < mcnemar(Pairs(0, 900, 1100, 0)) < 1e-4


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_holm_agrees_with_statsmodels(count: int) -> None:
    p_values = np.random.default_rng(count).uniform(0, 1, count) ** 4
    np.testing.assert_allclose(
        holm(list(p_values)), multipletests(p_values, method="holm")[1], atol=1e-12
    )
    assert holm([]) == []


def outcomes(
    rng: np.random.Generator, rates: tuple[float, float], correlation: float, seeds: int, times: int
) -> list[Pairs]:
    """Draws experiments of two policies of known rates whose outcomes on a seed are correlated."""
    first, second = rates
    both = first * second + correlation * math.sqrt(first * (1 - first) * second * (1 - second))
    drawn = rng.multinomial(
        seeds, [both, first - both, second - both, 1 - first - second + both], times
    )
    return [Pairs(*(int(count) for count in row)) for row in drawn]


@pytest.mark.parametrize(
    ("rates", "correlation", "seeds"),
    [
        ((0.9, 0.7), 0.3, 50),
        ((0.5, 0.5), 0.5, 50),
        ((0.95, 0.95), 0.5, 200),
        ((0.8, 0.75), 0.7, 100),
        ((0.3, 0.6), 0.0, 30),
    ],
)
def test_covers(rates: tuple[float, float], correlation: float, seeds: int) -> None:
    """95 % of 4000 intervals contain the true difference, to three standard errors."""
    interval = cache(difference_interval)
    experiments = outcomes(np.random.default_rng(0), rates, correlation, seeds, 4000)
    held = [
        interval(pairs).low <= rates[1] - rates[0] <= interval(pairs).high for pairs in experiments
    ]
    assert 0.95 - 3 * 0.00345 - 0.003 < np.mean(held) < 0.95 + 3 * 0.00345 + 0.006


def test_error_rates_are_nominal() -> None:
    """For equal policies the exact test, and Holm's family of ten tests, reject at most 5 %."""
    test = cache(mcnemar)
    p = np.array(
        [test(pairs) for pairs in outcomes(np.random.default_rng(1), (0.7, 0.7), 0.4, 50, 20_000)]
    )
    assert (p <= 0.05).mean() < 0.05
    families = [min(holm(list(row))) <= 0.05 for row in p.reshape(-1, 10)]
    assert 0.0 < np.mean(families) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_counting() -> None:
    """Outcomes become counts, counts become rates, and tasks add up."""
    pairs = Pairs.of([True, True, False, False, True], [True, False, True, False, True])
    assert pairs == Pairs(2, 1, 1, 1)
    assert pairs.count == 5
    assert pairs.first == Rate(3, 5)
    assert pairs.second == Rate(3, 5)
    assert pairs.difference == 0.0
    assert pairs + Pairs(1, 0, 4, 0) == Pairs(3, 1, 5, 1)
    assert math.isnan(Pairs(0, 0, 0, 0).difference)
    assert difference_interval(Pairs(0, 0, 0, 0)) == (-1.0, 1.0)
    assert difference_interval(Pairs(0, 0, 10, 0)).high == 1.0


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        (lambda: Pairs(1, -1, 0, 0), "counts are 0 or more"),
        (
            lambda: Pairs.of([True], [True, False]),
            "1 outcomes of the first policy and 2 of the second",
        ),
        (
            lambda: difference_interval(Pairs(1, 1, 1, 1), 1.0),
            "confidence is 1.0; allowed: between 0 and 1",
        ),
        (lambda: holm([0.5, 1.5]), "allowed: 0 to 1"),
    ],
)
def test_errors_name_the_wrong_value(wrong: Callable[[], object], answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        wrong()


def test_tasks_count_equally() -> None:
    mean = MacroMean.of_rates([Rate(10, 10), Rate(0, 90)])
    assert (mean.value, mean.tasks) == (0.5, 2)
    assert str(mean) == "50 % [41, 59]"
    one = MacroMean.of_rates([Rate(7, 10)])
    assert one.value == 0.7
    assert one.interval == pytest.approx((Rate(7, 10).low, Rate(7, 10).high))
    pairs = Pairs(3, 2, 5, 10)
    assert MacroMean.of_differences([pairs]).interval == pytest.approx(difference_interval(pairs))
    assert points(-0.4, difference_interval(Pairs(2, 4, 0, 4))) == "-40 [-69, -1]"


@pytest.mark.parametrize(
    ("rates", "starts"),
    [
        (np.linspace(0.3, 0.95, 12), 25),
        (np.array([0.5, 0.9, 0.99]), 10),
        (np.array([0.02, 0.98]), 50),
        (np.full(12, 0.99), 25),
    ],
)
def test_intervals_cover(rates: np.ndarray, starts: int) -> None:
    """Of 2000 at least 95 %, to three standard errors; more where rates are near 0 and 1."""
    rate = cache(Rate)
    drawn = np.random.default_rng(0).binomial(starts, rates, (2000, len(rates)))
    means = [MacroMean.of_rates([rate(int(k), starts) for k in row]) for row in drawn]
    truth = float(rates.mean())
    held = [mean.interval.low <= truth <= mean.interval.high for mean in means]
    assert np.mean(held) > 0.95 - 3 * 0.0049
    assert np.mean([mean.interval.high - mean.interval.low for mean in means]) < 2 / np.sqrt(
        starts * len(rates)
    )


@pytest.mark.parametrize(
    "chances",
    [
        [(0.5, 0.3, 0.05, 0.15), (0.1, 0.02, 0.2, 0.68), (0.9, 0.05, 0.05, 0.0)],
        [(0.98, 0.01, 0.01, 0.0)] * 12,
    ],
)
def test_intervals_of_differences_cover(chances: list[tuple[float, ...]]) -> None:
    rng = np.random.default_rng(1)
    truth = float(np.mean([c[2] - c[1] for c in chances]))
    held = 0
    for _ in range(300):
        pairs = [Pairs(*map(int, rng.multinomial(30, c))) for c in chances]
        low, high = MacroMean.of_differences(pairs).interval
        held += low <= truth <= high
    assert held / 300 > 0.95 - 3 * 0.0126


def test_a_mean_needs_results_of_every_task() -> None:
    for rates in ([], [Rate(1, 2), Rate(0, 0)]):
        with pytest.raises(ValueError, match="needs results of at least one task"):
            MacroMean.of_rates(rates)
