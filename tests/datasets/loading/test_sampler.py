"""Sampling depends on seed and step only, and follows the weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stringline.datasets.loading.sampler import (
    BatchSampler,
    equal_shares,
    order,
    oversampling_weights,
)


@given(st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 300))
def test_order_is_a_permutation(seed: int, epoch: int, count: int) -> None:
    """Every number occurs once, and the same arguments give the same order."""
    first = order(seed, epoch, count)
    assert sorted(first) == list(range(count))
    np.testing.assert_array_equal(first, order(seed, epoch, count))


def test_the_order_is_fixed() -> None:
    """Runs that are resumed under another numpy must continue in the same order."""
    assert order(1, 2, 10).tolist() == [5, 6, 9, 3, 2, 1, 0, 8, 4, 7]
    assert order(1, 2, 100).tolist() != order(1, 3, 100).tolist() != order(2, 2, 100).tolist()


@given(st.integers(1, 40), st.integers(1, 90), st.integers(0, 5))
def test_epochs_are_complete(count: int, batch_size: int, seed: int) -> None:
    """Laid end to end, batches contain every window once per epoch, for any sizes."""
    sampler = BatchSampler(count, batch_size, seed)
    steps = -(-3 * count // batch_size)
    drawn = np.concatenate([sampler.batch(step) for step in range(steps)])
    for epoch in range(3):
        assert sorted(drawn[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(st.lists(st.integers(0, 200), min_size=1, max_size=20), st.booleans())
def test_batches_do_not_depend_on_history(steps: list[int], weighted: bool) -> None:
    """A used sampler returns the same batches as a new one."""
    weights = np.arange(1, 24) if weighted else None
    old = BatchSampler(23, 5, 7, weights=weights)
    for step in steps:
        np.testing.assert_array_equal(
            old.batch(step), BatchSampler(23, 5, 7, weights=weights).batch(step)
        )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30).filter(any), st.integers(0, 3))
def test_weights_are_met_within_one(weights: list[float], seed: int) -> None:
    """In every epoch the count of a window is its share, rounded up or down; 0 for weight 0."""
    count = len(weights)
    counts = np.bincount(
        BatchSampler(count, count, seed, weights=weights).batch(seed), minlength=count
    )
    share = np.array(weights) / sum(weights) * count
    assert counts.sum() == count
    assert (np.abs(counts - share) < 1 + 1e-6).all()
    assert not counts[np.array(weights) == 0].any()


def test_weighted_draws_are_unbiased() -> None:
    """Over many epochs the counts approach the shares."""
    weights = np.array([1.0, 2.0, 3.5, 0.5, 3.0])
    sampler = BatchSampler(5, 5, 0, weights=weights)
    counts = np.bincount(np.concatenate([sampler.batch(step) for step in range(4000)]), minlength=5)
    np.testing.assert_allclose(counts / counts.sum(), weights / weights.sum(), atol=0.005)


def test_equal_weights_change_nothing() -> None:
    """Equal weights give the same order as no weights."""
    for step in range(10):
        np.testing.assert_array_equal(
            BatchSampler(9, 4, 3, weights=np.ones(9)).batch(step), BatchSampler(9, 4, 3).batch(step)
        )


def test_early_windows_are_favoured() -> None:
    """Windows before the limit weigh `factor`, the rest one."""
    assert oversampling_weights([0.0, 0.99, 1.0, 7.0], 1.0, 3.0).tolist() == [3.0, 3.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="factor is 0"):
        oversampling_weights([0.0], 1.0, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"batch_size": 0},
        {"seed": -1},
        {"weights": [1, -1]},
        {"weights": [0, 0]},
        {"weights": [1]},
    ],
)
def test_invalid_arguments(wrong: dict[str, object]) -> None:
    """Sizes, seeds and weights out of range are refused."""
    arguments = {"count": 2, "batch_size": 1, "seed": 0} | wrong
    with pytest.raises(ValueError, match="allowed: 1 and above|0 or above"):
        BatchSampler(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="step is -1"):
        BatchSampler(2, 1, 0).batch(-1)


def test_groups_have_equal_shares() -> None:
    """Weights keep their ratios within a group; draws are exact to one window per epoch."""
    tasks = np.array(["mug"] * 90 + ["bowl"] * 9 + ["pen"])
    own = np.linspace(1, 3, 100)
    weights = equal_shares(own, tasks)
    for task in ("mug", "bowl", "pen"):
        inside = tasks == task
        np.testing.assert_allclose(weights[inside].sum(), 1)
        ratio = weights[inside] / own[inside]
        np.testing.assert_allclose(ratio, ratio[0])
    drawn = np.concatenate([BatchSampler(100, 20, 3, weights=weights).batch(n) for n in range(5)])
    counts = [np.count_nonzero(tasks[drawn] == task) for task in ("mug", "bowl", "pen")]
    assert all(33 <= count <= 34 for count in counts)
