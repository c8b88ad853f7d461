"""McNemar's exact test and its power; tests/sim/statistics compare them with simulations."""

import pytest
from statsmodels.stats.contingency_tables import mcnemar

from stringline.encoders.statistics.paired_outcomes import (
    exact_mcnemar,
    mcnemar_power,
    pairs_needed,
)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 9), (40, 22), (5, 5), (0, 6)])
def test_the_test_agrees_with_statsmodels(first: int, second: int) -> None:
    expected = mcnemar([[10, first], [second, 10]], exact=True).pvalue
    assert exact_mcnemar(first, second) == pytest.approx(float(expected), abs=1e-12)


def test_the_needed_pairs_reach_the_power() -> None:
    needed = pairs_needed(10, 25, 200)
    assert needed is not None
    assert mcnemar_power(needed, 0.05, 0.125) >= 0.8
    assert mcnemar_power(needed // 2, 0.05, 0.125) < 0.8
    assert pairs_needed(5, 5, 200) is None
    assert pairs_needed(0, 0, 0) is None
