"""Means over tasks weigh tasks equally, and their intervals contain the truth."""

from functools import cache

import numpy as np
import pytest

from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.macro import MacroMean, points
from stringline.sim.statistics.paired import Pairs, difference_interval


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
