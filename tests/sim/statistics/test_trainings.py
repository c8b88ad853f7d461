"""Intervals over trainings contain the truth as often as they state, where pooled ones do not."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from stringline.sim.statistics.intervals import Interval, Rate
from stringline.sim.statistics.trainings import recipe_difference, recipe_rate

STARTS = 50
Table = NDArray[np.float64]


def recipe(
    rng: np.random.Generator, starts: NDArray[np.float64], trainings: int, sigma: float
) -> Table:
    """Outcomes of new trainings of a recipe on starts of given difficulty."""
    chances = np.clip(starts + rng.normal(0, sigma, (trainings, 1)), 0, 1)
    return (rng.random(chances.shape) < chances).astype(np.float64)


def counted(*successes: int) -> Table:
    """Trainings that succeed on their first starts."""
    return np.array([[float(start < count) for start in range(STARTS)] for count in successes])


def has(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def coverage(trainings: int, sigma: float, times: int, spread: float = 0.15) -> list[float]:
    """Shares of intervals with the truth: of rates, of differences, and of pooled episodes."""
    rng = np.random.default_rng(2)
    held = np.zeros(3)
    for _ in range(times):
        starts = 0.6 + spread * rng.choice([-1.0, 1.0], STARTS)  # Far from 0 and 1: no clipping.
        first, second = (recipe(rng, starts, trainings, sigma) for _ in range(2))
        pooled = Rate(int(first.sum()), first.size)
        held += [
            has(recipe_rate([first]).interval, 0.6),
            has(recipe_difference([first], [second]).interval, 0.0),
            pooled.low <= 0.6 <= pooled.high,
        ]
    return [float(share) for share in held / times]


@pytest.mark.parametrize(("trainings", "sigma"), [(3, 0.05), (3, 0.08), (5, 0.08)])
def test_three_to_five_trainings_cover_as_stated(trainings: int, sigma: float) -> None:
    rate, difference, pooled = coverage(trainings, sigma, times=250)
    assert 0.92 < rate < 0.985
    assert 0.92 < difference < 0.985
    assert pooled < 0.91


@pytest.mark.stress
@pytest.mark.parametrize("trainings", [3, 4, 5])
def test_coverage_is_within_two_points(trainings: int) -> None:
    """On average over trainings that differ by 5 and by 8 points and two kinds of starts."""
    shares = np.mean(
        [
            coverage(trainings, sigma, times=2000, spread=spread)
            for sigma in (0.05, 0.08)
            for spread in (0.0, 0.25)
        ],
        axis=0,
    )
    assert shares[0] == pytest.approx(0.95, abs=0.02)
    assert shares[1] == pytest.approx(0.95, abs=0.02)


def test_of_many_trainings_the_interval_is_that_of_students_t() -> None:
    """With starts of equal difficulty, and within a few per cent of its width."""
    rng = np.random.default_rng(0)
    outcomes = recipe(rng, np.full(400, 0.5), 40, 0.1)
    means = outcomes.mean(axis=1)
    found = recipe_rate([outcomes])
    half = stats.t.ppf(0.975, 39) * means.std(ddof=1) / math.sqrt(40)
    assert found.value == pytest.approx(means.mean())
    assert found.interval.high - found.interval.low == pytest.approx(2 * half, rel=0.08)


def test_equal_outcomes_are_not_certain() -> None:
    """At the ends, the interval is at least as wide as Wilson's of all episodes."""
    for successes, value in ((STARTS, 1.0), (0, 0.0)):
        estimate = recipe_rate([counted(*[successes] * 3)])
        pooled = Rate(successes * 3, STARTS * 3)
        assert estimate.value == value
        assert estimate.interval.low <= pooled.low
        assert estimate.interval.high >= pooled.high
        assert value in estimate.interval
    alike = recipe_difference([counted(40, 40)], [counted(40, 40)])
    assert alike.value == 0
    assert alike.posterior == pytest.approx(1.0)
    assert alike.interval.low == -alike.interval.high < -0.02


def test_trainings_that_differ_make_the_interval_wide() -> None:
    alike, apart = recipe_rate([counted(40, 40, 40)]), recipe_rate([counted(30, 40, 50)])
    pooled = Rate(120, 150)
    assert apart.interval.low < alike.interval.low < pooled.low
    assert alike.value == pytest.approx(0.8)
    assert apart.value == pytest.approx(0.8)


def test_a_difference_has_a_sign_an_order_and_a_test() -> None:
    """The p value is below 0.05 exactly if the interval is without 0."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        starts = rng.uniform(0.2, 0.9, STARTS)
        first, second = (recipe(rng, starts - 0.1 * i, 3, 0.05) for i in range(2))
        found = recipe_difference([first], [second])
        turned = recipe_difference([second[::-1]], [first])
        assert found.value == pytest.approx(-turned.value)
        assert found.interval.low == pytest.approx(-turned.interval.high)
        assert found.posterior == pytest.approx(turned.posterior)
        assert found.posterior is not None
        assert (found.posterior < 0.05) != has(found.interval, 0.0)


def test_starts_are_paired() -> None:
    """Difficulty that both recipes share leaves their difference."""
    easy = np.tile([1.0] * 30 + [0.0] * 20, (3, 1))
    turned = easy[:, ::-1]
    paired = recipe_difference([easy], [easy]).interval
    crossed = recipe_difference([easy], [turned]).interval
    assert paired.high - paired.low < 0.6 * (crossed.high - crossed.low)


def test_tasks_count_equally() -> None:
    """Also with different numbers of starts; the interval of more tasks is narrower."""
    short, long = counted(5, 6, 5)[:, :10], counted(40, 41, 39)
    both = recipe_rate([short, long])
    assert both.value == pytest.approx((short.mean() + long.mean()) / 2)
    alone = recipe_rate([short])
    assert both.interval.high - both.interval.low < alone.interval.high - alone.interval.low


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"shapes \(1, 50\); allowed: \(trainings, starts\)"):
        recipe_rate([counted(3)])
    with pytest.raises(ValueError, match="shapes none"):
        recipe_rate([])
    with pytest.raises(ValueError, match=r"shapes \(2, 50\), \(3, 50\)"):
        recipe_rate([counted(3, 4), counted(3, 4, 5)])
    with pytest.raises(ValueError, match="Outcomes are 0 and 1"):
        recipe_rate([counted(3, 4) / 2])
    with pytest.raises(ValueError, match="different numbers of tasks or starts"):
        recipe_difference([counted(3, 4)], [counted(3, 4)[:, :10]])
    with pytest.raises(ValueError, match="confidence is 1; allowed: between 0 and 1"):
        recipe_rate([counted(3, 4)], confidence=1)
