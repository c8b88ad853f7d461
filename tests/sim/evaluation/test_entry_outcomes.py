"""A suite's statistics: the mean over its tasks, and the changes under its variations."""

from collections.abc import Sequence

import pytest

from stringline.sim.evaluation.checkpoint_evaluation import EntryOutcome, SuiteStatistics
from stringline.sim.evaluation.results import EpisodeResult, Summary, summaries_table
from stringline.sim.evaluation.suites import Suite
from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import MacroMean, Pairs, difference_interval

RAISED = {"variation": "raised", "options": {"table_height": 0.02}}


def outcomes(**successes: Sequence[bool]) -> list[EntryOutcome]:
    """Outcomes of entries `task` or `task_raised` on seeds from 0; without any, a failure."""
    found = []
    for name, done in successes.items():
        task = name.removesuffix("_raised")
        plain = {"task": task, **(RAISED if task != name else {})}
        (entry,) = Suite.parse("mine", {"entries": [plain]}).entries
        results = [
            EpisodeResult(seed, each, int(each), "success" if each else "start", 3.0, 4, 20.0, 0.5)
            for seed, each in enumerate(done)
        ]
        found.append(EntryOutcome(entry, results, "" if done else "lost"))
    return found


def test_means_and_changes() -> None:
    found = outcomes(
        fmb_1=[True, True, False, False],
        fmb_2=[True] * 8,
        bowl_on_rack=[],
        fmb_1_raised=[True, False, False, False, True],
        fmb_2_raised=[False, False],
        mug_on_plate_raised=[True],
    )
    statistics = SuiteStatistics.of(found)
    assert statistics.mean == MacroMean.of_rates([Rate(2, 4), Rate(8, 8)])
    first, second = statistics.changes
    assert (first.entry, first.pairs) == ("fmb_1.raised", Pairs(1, 1, 0, 2))  # Seeds of both.
    assert first.interval == difference_interval(first.pairs)
    assert second.pairs == Pairs(0, 2, 0, 0)
    mean = statistics.mean_changes["raised"]
    assert mean == MacroMean.of_differences([first.pairs, second.pairs])
    assert mean.value == pytest.approx(-0.625)
    texts = statistics.texts()
    assert texts["mean of 2 tasks"].startswith("75 % [")
    assert texts["fmb_1.raised less fmb_1"].startswith("-25 [")
    assert texts["fmb_1.raised less fmb_1"].endswith("on 4 starts")
    assert texts["mean of raised less plain"].startswith("-62 [")
    assert "mug_on_plate.raised less mug_on_plate" not in texts
    table = summaries_table({each.entry.name: each.summary or "lost" for each in found}, texts)
    assert all(f"{name}" in table and text in table for name, text in texts.items())
    plain = statistics.to_dict()
    assert plain["changes"]["fmb_1.raised"]["difference"] == -0.25
    assert plain["mean"]["tasks"] == 2


def test_a_single_task_has_no_mean() -> None:
    statistics = SuiteStatistics.of(outcomes(fmb_1=[True, False]))
    assert statistics.texts() == {}
    assert statistics.to_dict() == {"mean": None, "changes": {}, "mean_changes": {}}
    assert Summary.of(outcomes(fmb_1=[True])[0].results).rate == Rate(1, 1)
