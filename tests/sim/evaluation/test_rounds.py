"""A sequential comparison collects no more seeds than it needs, and repeats its decisions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from stringline.sim.evaluation.comparison import (
    Comparison,
    Seeds,
    entry_seeds,
    until_decided,
    with_entry_seeds,
)
from stringline.sim.evaluation.results import EpisodeResult
from stringline.sim.evaluation.stored_evaluations import StoredEvaluation, StoredTask
from stringline.sim.evaluation.suites import Suite
from stringline.sim.statistics.paired import anytime_p

AVAILABLE = {"reach": range(60), "push": range(40)}


def results(rates: Mapping[str, float], seeds: Seeds, policy: int) -> tuple[StoredTask, ...]:
    """Outcomes on seeds, the same whatever the other seeds are."""
    return tuple(
        StoredTask(
            Path(f"{policy}/{task}/results.jsonl"),
            {"task": task, "options": {}},
            {
                seed: EpisodeResult(
                    seed,
                    done := bool(np.random.default_rng([policy, seed]).random() < rate),
                    int(done),
                    "reached",
                    3.0,
                    4,
                    20.0,
                    0.5,
                )
                for seed in seeds[task]
            },
        )
        for task, rate in rates.items()
    )


def compared(
    *policies: Mapping[str, float], round_seeds: int = 10
) -> tuple[Comparison, list[dict[str, int]]]:
    """The comparison of policies with these rates, and the seeds of each round."""
    rounds: list[dict[str, int]] = []

    def compare(seeds: Seeds) -> Comparison:
        rounds.append({task: len(chosen) for task, chosen in seeds.items()})
        return Comparison.of(
            [
                StoredEvaluation(f"policy {number}", results(rates, seeds, number))
                for number, rates in enumerate(policies)
            ],
            sequential=True,
        )

    return until_decided(AVAILABLE, round_seeds, compare), rounds


def test_a_decided_task_gets_no_more_seeds() -> None:
    comparison, rounds = compared({"reach": 0.5, "push": 0.0}, {"reach": 0.5, "push": 1.0})
    assert rounds[0] == {"reach": 10, "push": 10}
    assert rounds[-1] == {"reach": 60, "push": 10}
    reach, push = comparison.rows
    assert push.verdict == "policy 1 is better"
    assert reach.verdict == "undecided; a larger seeds= continues"
    assert reach.needed is None
    assert comparison.undecided == {"reach"}
    assert push.p == pytest.approx(11 / 1024)
    assert push.corrected == pytest.approx(22 / 1024)  # Holm's correction for two tasks.
    assert push.to_dict()["test"] == "sequential"
    assert push.interval.low > 0 > reach.interval.low
    assert "however often it is examined" in comparison.section().__html__()


def test_a_task_goes_on_until_every_pair_is_decided() -> None:
    """Policies 0 and 1 differ at once, 1 and 2 later; all are run on the same seeds."""
    comparison, rounds = compared(*({"reach": rate, "push": rate} for rate in (0.0, 1.0, 0.5)))
    assert len(rounds) > 1
    assert comparison.undecided == set()
    assert len({row.pairs.count for row in comparison.rows if row.task == "push"}) == 1


def test_the_rounds_do_not_change_p() -> None:
    """The p value is that of the seeds in ascending order, however many a round has."""
    rates = ({"reach": 0.3, "push": 0.3}, {"reach": 0.5, "push": 0.5})
    for size in (7, 60):
        comparison, _ = compared(*rates, round_seeds=size)
        for row in comparison.rows:
            seeds = {row.task: range(row.pairs.count)}
            first, second = (
                [
                    each.success
                    for each in results({row.task: policy[row.task]}, seeds, n)[0].results.values()
                ]
                for n, policy in enumerate(rates)
            )
            assert row.p == anytime_p(first, second)


def test_seeds_of_a_suite() -> None:
    plain = {
        "entries": [
            {"task": "fmb_1", "seeds": [5, 3, 4]},
            {"task": "fmb_1", "options": {"table_height": 0.02}, "seeds": 2},
        ]
    }
    suite = Suite.parse("mine", plain)
    seeds = entry_seeds(suite)
    assert seeds == {"fmb_1": [3, 4, 5], "fmb_1 table_height=0.02": [1000000, 1000001]}
    less: dict[str, Sequence[int]] = {name: chosen[:1] for name, chosen in seeds.items()}
    assert [entry.seeds for entry in with_entry_seeds(suite, less).entries] == [(3,), (1000000,)]
    again = {"entries": [*plain["entries"], {"task": "fmb_1", "variation": "b"}]}
    with pytest.raises(ValueError, match="mine has entries of the same task with the same options"):
        entry_seeds(Suite.parse("mine", again))


def test_a_round_has_at_least_one_seed() -> None:
    with pytest.raises(ValueError, match=r"round_seeds must be an integer of at least 1 \(got 0\)"):
        compared({"reach": 0.5, "push": 0.0}, {"reach": 0.5, "push": 1.0}, round_seeds=0)
