"""The test of all tasks is about their mean difference, with any numbers of seeds."""

from itertools import product
from math import comb

import numpy as np
import pytest

from stringline.sim.statistics.paired import Pairs, mcnemar, stratified_mcnemar


def enumerated(tasks: list[Pairs]) -> float:
    """Returns the p value by all numbers of wins of each task."""
    discordant = [pairs.only_first + pairs.only_second for pairs in tasks]
    observed = abs(sum(pairs.difference for pairs in tasks))
    p = 0.0
    for wins in product(*(range(count + 1) for count in discordant)):
        value = sum(
            (2 * won - count) / pairs.count
            for won, count, pairs in zip(wins, discordant, tasks, strict=True)
        )
        chance = np.prod(
            [comb(count, won) / 2**count for won, count in zip(wins, discordant, strict=True)]
        )
        p += chance * (abs(value) >= observed - 1e-12)
    return p


@pytest.mark.parametrize(
    "tasks",
    [
        [Pairs(3, 2, 5, 0), Pairs(1, 4, 0, 2), Pairs(0, 1, 1, 9)],
        [Pairs(30, 2, 9, 0), Pairs(1, 4, 0, 2)],
        [Pairs(1, 0, 0, 5), Pairs(0, 3, 8, 0)],
    ],
)
def test_p_is_the_share_of_all_signs(tasks: list[Pairs]) -> None:
    assert stratified_mcnemar(tasks) == pytest.approx(enumerated(tasks), rel=1e-9)


def test_with_equal_numbers_of_seeds_it_is_mcnemars() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        tasks = [Pairs(*random.multinomial(25, (0.3, 0.3, 0.3, 0.1)).tolist()) for _ in range(12)]
        pooled = sum(tasks[1:], tasks[0])
        assert stratified_mcnemar(tasks) == pytest.approx(mcnemar(pooled), rel=1e-9)


def test_rounded_weights_and_many_pairs() -> None:
    """With numbers of seeds that have no small common multiple, p is at least the exact one."""
    tasks = [Pairs(80, 3, 9, 5), Pairs(70, 5, 3, 5), Pairs(60, 2, 6, 11), Pairs(50, 2, 4, 17)]
    assert enumerated(tasks) <= stratified_mcnemar(tasks) < enumerated(tasks) + 0.01
    many = Pairs(0, 900, 1100, 0)
    assert stratified_mcnemar([many, Pairs(0, 0, 0, 0)]) == pytest.approx(mcnemar(many), rel=1e-6)
    assert stratified_mcnemar([Pairs(1, 0, 0, 0)]) == 1


def test_equal_policies_are_rarely_told_apart() -> None:
    random = np.random.default_rng(1)
    found = []
    for _ in range(300):
        tasks = [
            Pairs(*random.multinomial(count, (0.4, 0.2, 0.2, 0.2)).tolist())
            for count in (200, 20, 50)
        ]
        found.append(stratified_mcnemar(tasks) <= 0.05)
    assert np.mean(found) < 0.075
