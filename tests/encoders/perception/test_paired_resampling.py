"""Intervals of paired differences cover, and the needed data give the stated power."""

import numpy as np
import pytest

from stringline.encoders.perception.paired_resampling import (
    paired_difference,
    share_interval,
    statistic_difference,
)
from stringline.encoders.perception.perception_network import mean_over_images

ROOMS = 40
OBJECTS = 5
GROUPS = [f"room {n}" for n in range(ROOMS) for _ in range(OBJECTS)]


def drawn(
    random: np.random.Generator,
    difference: float,
    *,
    seeds: int = 1,
    rooms: int = ROOMS,
    spread: float = 0.05,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns values of two recipes: shared difficulty, effects of rooms and trainings, noise."""
    shared = np.repeat(random.normal(0, 0.3, rooms), OBJECTS)

    def values(mean: float) -> np.ndarray:
        by_room = np.repeat(random.normal(0, 0.1, (seeds, rooms)), OBJECTS, axis=1)
        by_training = random.normal(0, spread, (seeds, 1)) if seeds > 1 else 0
        noise = random.normal(0, 0.2, (seeds, rooms * OBJECTS))
        return mean + shared + by_room + by_training + noise

    return values(0), values(difference)


@pytest.mark.parametrize(
    ("seeds", "rooms", "spread"),
    [(1, 40, 0.0), (3, 40, 0.05), (1, 3, 0.0), (1, 10, 0.0), (2, 40, 0.3), (3, 40, 0.3)],
)
def test_the_interval_covers_the_true_difference(seeds: int, rooms: int, spread: float) -> None:
    """Also with few rooms, and with few trainings that differ more than rooms do."""
    random = np.random.default_rng(10 * rooms + seeds)
    groups = np.repeat(np.arange(rooms), OBJECTS).tolist()
    inside = []
    for trial in range(400):
        values = drawn(random, 0.1, seeds=seeds, rooms=rooms, spread=spread)
        found = paired_difference(*values, groups, draws=200, seed=trial)
        inside.append(found.low <= 0.1 <= found.high)
    assert 0.92 < np.mean(inside) < 0.995


def test_two_rooms_decide_nothing() -> None:
    found = paired_difference(np.zeros(2), np.array([0.1, 0.3]), ["a", "b"])
    assert found.p >= 0.5
    assert found.low < 0 < found.high
    assert paired_difference(np.zeros(3), np.ones(3), ["a", "b", "c"]).p == 0.25


def test_a_share_has_an_interval_between_0_and_1() -> None:
    def interval(outcomes: np.ndarray, groups: list[int]) -> tuple[float, float]:
        return share_interval(lambda images: float(outcomes[images].mean()), groups)

    right = np.ones(40)
    right[0] = 0
    low, high = interval(right, list(range(40)))
    # Wilson's interval for 39 of 40 is .871 to .996; the quantile is 2.02 in place of 1.96.
    assert (low, high) == pytest.approx((0.87, 0.996), abs=0.015)
    low, high = interval(np.ones(12), list(range(12)))
    assert (low, high) == pytest.approx((0.71, 1), abs=0.01)
    low, high = interval(np.array([1.0, 0.0]), [0, 1])
    assert 0 <= low < 0.1
    assert 0.9 < high <= 1
    grouped = interval(np.repeat(right, 5), np.repeat(np.arange(40), 5).tolist())
    assert grouped == pytest.approx(interval(right, list(range(40))), abs=0.01)


def test_the_interval_of_a_share_covers() -> None:
    random = np.random.default_rng(0)
    inside = []
    for _ in range(300):
        rates = random.beta(1.6, 0.4, 25)  # Of rooms; their mean is 0.8.
        outcomes = (random.uniform(size=(25, 4)) < rates[:, None]).ravel().astype(float)
        low, high = share_interval(
            lambda images, outcomes=outcomes: float(outcomes[images].mean()),
            np.repeat(np.arange(25), 4).tolist(),
            draws=100,
        )
        inside.append(low <= 0.8 <= high)
    assert 0.92 < np.mean(inside) < 0.99


def test_the_shared_difficulty_of_rooms_cancels_out() -> None:
    first, second = drawn(np.random.default_rng(0), 0.1)
    paired = paired_difference(first, second, GROUPS)
    order = np.random.default_rng(1).permutation(ROOMS)
    shuffled = second.reshape(1, ROOMS, OBJECTS)[:, order].reshape(1, -1)
    unpaired = paired_difference(first, shuffled, GROUPS)
    assert paired.high - paired.low < 0.6 * (unpaired.high - unpaired.low)
    assert paired.value == pytest.approx(unpaired.value)


def test_objects_of_a_room_are_not_independent() -> None:
    random = np.random.default_rng(0)
    first = np.repeat(random.normal(size=ROOMS), OBJECTS)
    second = np.repeat(random.normal(size=ROOMS), OBJECTS)
    by_room = paired_difference(first, second, GROUPS)
    by_object = paired_difference(first, second, range(ROOMS * OBJECTS))
    ratio = (by_room.high - by_room.low) / (by_object.high - by_object.low)
    assert ratio == pytest.approx(np.sqrt(OBJECTS), rel=0.15)


def test_rooms_with_more_objects_weigh_more() -> None:
    groups = ["a"] * 3 + ["b"]
    found = paired_difference(np.zeros(4), np.array([1, 1, 1, 5.0]), groups, draws=4000)
    assert found.value == 2
    # The draws are aa, ab and bb, with 1, (3 + 5) / 4 and 5; their variance is 2.25.
    half = 12.706 * np.sqrt(2 * 2.25)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), rel=0.05)


def test_sums_over_the_objects_of_images_give_the_same_as_the_objects() -> None:
    first, second = drawn(np.random.default_rng(3), 0.1, seeds=2)
    by_object = paired_difference(first, second, GROUPS)
    sums, others = (each.reshape(2, ROOMS, OBJECTS).sum(axis=2) for each in (first, second))
    by_room = paired_difference(sums, others, range(ROOMS), counts=np.full(ROOMS, OBJECTS))
    for name, value in vars(by_object).items():
        assert getattr(by_room, name) == pytest.approx(value), name


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_mean_has_the_same_interval_as_a_statistic(seeds: int) -> None:
    first, second = drawn(np.random.default_rng(3), 0.1, seeds=seeds, spread=0.01)
    special = paired_difference(first, second, GROUPS)
    one, other = ([mean_over_images(row) for row in table] for table in (first, second))
    general = statistic_difference(one, other, GROUPS, draws=2000)
    assert (general.seeds, general.groups) == (seeds, ROOMS)
    assert general.value == pytest.approx(special.value)
    assert general.low == pytest.approx(special.low, abs=0.01)
    assert general.high == pytest.approx(special.high, abs=0.01)
    assert general.needed_groups == pytest.approx(special.needed_groups, rel=0.15)
    if seeds > 1:
        assert general.needed_seeds == pytest.approx(special.needed_seeds, rel=0.15)


def test_the_needed_rooms_decide_most_experiments() -> None:
    random = np.random.default_rng(0)
    # The variance of a room's mean difference is 2 (0.1^2 + 0.2^2 / 5).
    expected = 2.8**2 * 2 * (0.1**2 + 0.2**2 / OBJECTS) / 0.05**2
    needed = [paired_difference(*drawn(random, 0.15), GROUPS).needed_groups for _ in range(30)]
    assert np.median([each for each in needed if each]) == pytest.approx(expected / 9, rel=0.3)
    rooms = round(expected)
    groups = [n for n in range(rooms) for _ in range(OBJECTS)]
    decided = [
        paired_difference(*drawn(random, 0.05, rooms=rooms), groups, draws=400, seed=trial).p < 0.05
        for trial in range(150)
    ]
    assert np.mean(decided) == pytest.approx(0.8, abs=0.12)


def test_trainings_that_differ_more_than_the_recipes_need_more_trainings() -> None:
    random = np.random.default_rng(0)
    first = np.array([[0.1], [0.5], [0.3]]) + 0.01 * random.normal(size=(3, len(GROUPS)))
    second = np.array([[0.2], [0.6], [0.4]]) + 0.01 * random.normal(size=(3, len(GROUPS)))
    found = paired_difference(first, second, GROUPS)
    assert found.low < 0 < found.high
    assert found.needed_groups is None
    # Each recipe has the variance 0.04 over trainings.
    assert found.needed_seeds == pytest.approx(2.8**2 * 2 * 0.04 / 0.1**2, rel=0.05)
    assert paired_difference(first[:1], second[:1], GROUPS).needed_seeds is None
    unequal = paired_difference(first[:1] + 0.2, second, GROUPS)
    assert unequal.seeds == 1
    # The single one is taken to vary as the others do.
    assert unequal.needed_seeds == pytest.approx(found.needed_seeds, rel=0.05)


def test_errors_are_named() -> None:
    one = np.zeros(4)
    with pytest.raises(ValueError, match=r"\(1, 4\) and \(1, 4\) for 3 groups; allowed"):
        paired_difference(one, one, ["a", "b", "c"])
    with pytest.raises(ValueError, match="not finite; objects without a match count 0"):
        paired_difference(one, one * np.nan, ["a", "b", "c", "d"])
    with pytest.raises(ValueError, match=r"counts are \[1.0, -1.0, 1.0, 1.0\]; allowed: 0 or more"):
        paired_difference(one, one, ["a", "b", "c", "d"], counts=[1, -1, 1, 1])
    with pytest.raises(ValueError, match="draws are without objects; leave out groups"):
        paired_difference(one, one, ["a", "b", "c", "d"], counts=[1, 0, 0, 0])
    with pytest.raises(ValueError, match="There are 1 groups; allowed: 2 or more"):
        paired_difference(one, one, ["a"] * 4)
    with pytest.raises(ValueError, match=r"draws must be an integer of at least 100 \(got 10\)"):
        paired_difference(one, one, ["a", "b", "c", "d"], draws=10)
    with pytest.raises(ValueError, match="is nan of all images and not finite in 100 of 100 draws"):
        statistic_difference([lambda _: 0.0], [lambda _: float("nan")], ["a", "b"], draws=100)
