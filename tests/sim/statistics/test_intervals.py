"""Wilson's interval agrees with statsmodels and covers what it promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from stringline.sim.statistics.intervals import Rate, wilson


@given(
    st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.floats(0.5, 0.999),
)
def test_agrees_with_statsmodels(counts: tuple[int, int], confidence: float) -> None:
    """For any counts and confidence."""
    low, high = wilson(*counts, confidence)
    np.testing.assert_allclose(
        (low, high), proportion_confint(*counts, alpha=1 - confidence, method="wilson"), atol=1e-9
    )
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1


def test_covers() -> None:
    """Near a rate of 0.9 the interval holds the truth in about 95 % of samples of 50."""
    draws = np.random.default_rng(0).binomial(50, 0.9, 4000)
    held = [wilson(int(k), 50).low <= 0.9 <= wilson(int(k), 50).high for k in draws]
    assert 0.93 < np.mean(held) < 0.98


def test_ends_and_text() -> None:
    """Rates of 0 and 1, and the text of a rate."""
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 10).low == 0.0
    assert wilson(10, 10).high == 1.0
    assert str(Rate(47, 50)) == "47/50 = 94 % [84, 98]"
    assert str(Rate(0, 0)) == "0/0"
    assert math.isnan(Rate(0, 0).value)
    assert Rate(1, 2).to_dict() == {
        "successes": 1,
        "trials": 2,
        "low": Rate(1, 2).low,
        "high": Rate(1, 2).high,
    }


@pytest.mark.parametrize("wrong", [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0), (1, 2, 0.0)])
def test_impossible_counts(wrong: tuple[int, int, float]) -> None:
    """Counts and confidences out of range are refused."""
    with pytest.raises(ValueError, match="allowed are"):
        wilson(*wrong)
