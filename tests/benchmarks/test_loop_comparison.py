"""The comparison of both ways on the same seeds, as JSON and as text."""

from importlib import import_module

import pytest

from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.statistics.paired import Pairs, difference_interval, mcnemar

summary = import_module("loop_comparison").summary


def results(successes: str) -> list[EpisodeResult]:
    return [
        EpisodeResult(seed, one == "1", 0, "start", 1.0, 1, 1.0, 0.0)
        for seed, one in enumerate(successes)
    ]


def test_a_small_difference_on_many_seeds_is_inside_and_on_few_it_is_not() -> None:
    direct = results("1" * 96 + "0011")
    wire = results("1" * 95 + "01011")
    found, lines = summary(direct, wire)
    low, high = difference_interval(Pairs(97, 1, 1, 1))
    assert (found["low"], found["high"], found["inside"]) == (low, high, True)
    assert found["pairs"] == {"both": 97, "only_first": 1, "only_second": 1, "neither": 1}
    assert (found["direct"]["successes"], found["wire"]["successes"], found["difference"]) == (
        98,
        98,
        0.0,
    )
    assert found["p"] == mcnemar(Pairs(97, 1, 1, 1)) == 1.0
    assert lines[2].startswith("difference        +0 points [")
    assert lines[2].endswith("]: inside +-10")
    assert (
        lines[3]
        == "only direct 1, only protocol 1, both 97, neither 1; McNemar's exact test: p = 1"
    )
    found, lines = summary(direct[-10:], wire[-10:])
    assert not found["inside"]
    assert lines[2].endswith("]: NOT inside +-10")


def test_both_ways_need_the_same_seeds() -> None:
    with pytest.raises(ValueError, match="the numbers must be equal"):
        summary(results("11"), results("1"))
