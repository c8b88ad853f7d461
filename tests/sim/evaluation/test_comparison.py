"""Evaluations under the same conditions are compared, others are refused."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stringline.sim.evaluation.comparison import Comparison
from stringline.sim.evaluation.results import EpisodeResult, ResultsFile
from stringline.sim.evaluation.stored_evaluations import (
    StoredEvaluation,
    is_evaluation,
    read_evaluation,
    requested_results,
)
from stringline.sim.experiments.experiment_plan import Cell
from stringline.sim.experiments.experiment_results import ExperimentResults
from stringline.sim.statistics.intervals import Rate
from stringline.sim.statistics.paired import (
    MacroMean,
    Pairs,
    difference_interval,
    mcnemar,
    seeds_needed,
)
from stringline.sim.worlds.world_versions import VERSIONS

REACH: Mapping[str, Any] = {
    "task": "reach",
    "options": {},
    "execute_steps": 24,
    "time_limit_s": 20.0,
    "frame_hz": 12.5,
}


def write(
    file: Path,
    successes: Sequence[bool],
    first_seed: int = 1_000_000,
    error: str = "",
    **about: Any,
) -> Path:
    """Writes the results of an evaluation; returns its file."""
    stored = ResultsFile(file, {**REACH, "checkpoint": str(file), **about})
    results = [
        EpisodeResult(s, done, int(done), "reached", 3.0, 4, 20.0, 0.5, error)
        for s, done in enumerate(successes, first_seed)
    ]
    for result in results:
        stored.add(result)
    return file


def run_of(path: Path) -> StoredEvaluation:
    """The evaluation of that path, named by its folder or file."""
    return read_evaluation(path.stem, path)


def bits(text: str) -> list[bool]:
    """Outcomes written as 0 and 1."""
    return [letter == "1" for letter in text]


A, B, C = bits("1111100000" * 3), bits("1111111110" * 3), bits("0111100000" * 3)


def test_two_policies(tmp_path: Path) -> None:
    """Counts, interval, test and power are those of the pairs."""
    write(tmp_path / "a" / "results.jsonl", A)
    write(tmp_path / "b" / "results.jsonl", B)
    comparison = Comparison.of([run_of(tmp_path / "a"), run_of(tmp_path / "b")])
    (row,) = comparison.rows
    pairs = Pairs(both=15, only_first=0, only_second=12, neither=3)
    assert (row.task, row.first, row.second, row.pairs, row.family) == ("reach", "a", "b", pairs, 1)
    assert (row.p, row.corrected, row.interval) == (
        mcnemar(pairs),
        mcnemar(pairs),
        difference_interval(pairs),
    )
    assert (row.better, row.verdict, row.needed) == ("b", "b is better", seeds_needed(pairs))
    assert "+40 [+24, +58]" in comparison.table()
    plain = json.loads(json.dumps(comparison.to_dict()))
    assert plain["rows"][0]["rate_second"] == Rate(27, 30).to_dict()
    assert plain["rows"][0]["better"] == "b"
    turned = Comparison.of([run_of(tmp_path / "b"), run_of(tmp_path / "a")]).rows[0]
    assert (turned.better, turned.pairs.difference) == ("b", -0.4)


def test_verdicts(tmp_path: Path) -> None:
    """The texts without evidence."""
    runs = {
        "a": A,
        "same": A,
        "lucky": [*A[:9], True, *A[10:]],
        "swapped": [*A[:4], False, True, *A[6:]],
    }
    for name, outcomes in runs.items():
        write(tmp_path / f"{name}.jsonl", outcomes)

    def verdict(other: str) -> str:
        return (
            Comparison.of([run_of(tmp_path / "a.jsonl"), run_of(tmp_path / f"{other}.jsonl")])
            .rows[0]
            .verdict
        )

    assert verdict("same") == "they never differ"
    assert verdict("swapped") == "no sign of a difference"
    needed = seeds_needed(Pairs(15, 0, 1, 14))
    assert needed is not None
    assert (
        verdict("lucky")
        == f"no evidence; about {float(f'{needed - 30:.2g}'):.0f} more seeds for a verdict"
    )


def test_several_policies_and_tasks(tmp_path: Path) -> None:
    """All pairs form one family and their totals another; with a baseline there are fewer pairs."""
    for name, outcomes in (("a", A), ("b", B), ("c", C)):
        write(tmp_path / name / "reach" / "results.jsonl", outcomes)
        write(
            tmp_path / name / "raised" / "results.jsonl",
            outcomes[:10],
            options={"table_height": 0.02},
        )
    runs = [run_of(tmp_path / name) for name in "abc"]
    comparison = Comparison.of(runs)
    single = [row for row in comparison.rows if row.task != "all tasks"]
    assert {(row.first, row.second) for row in single} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert {row.task for row in single} == {"reach", "reach table_height=0.02"}
    assert [row.family for row in comparison.rows] == [6] * 6 + [3] * 3
    assert min(row.corrected for row in single) == pytest.approx(6 * min(row.p for row in single))
    total = comparison.rows[6]
    assert total.pairs == single[0].pairs + single[1].pairs
    assert "a -> b" in comparison.table()
    rows = Comparison.of(runs, baseline="b").rows
    assert [(row.first, row.second) for row in rows[-2:]] == [("b", "a"), ("b", "c")]
    assert rows[0].family == 4
    with pytest.raises(ValueError, match=r"There is no compared evaluation 'd'\. Allowed: a, b, c"):
        Comparison.of(runs, baseline="d")


def test_tasks_count_equally_in_their_total(tmp_path: Path) -> None:
    """The difference of all tasks is the mean over tasks, not that of the pooled episodes."""
    for name, push in (("a", [False] * 10), ("b", [True] * 10)):
        write(tmp_path / name / "reach" / "results.jsonl", A)
        write(tmp_path / name / "push" / "results.jsonl", push, task="push")
    total = Comparison.of([run_of(tmp_path / name) for name in "ab"]).rows[-1]
    assert total.pairs.difference == 0.25
    assert total.difference == 0.5
    assert total.rates == (0.25, 0.75)
    assert total.interval == MacroMean.of_differences(total.tasks).interval
    table = Comparison.of([run_of(tmp_path / name) for name in "ab"]).table()
    assert "25 % of 40   75 % of 40" in table


def test_all_tasks_have_the_verdict_of_their_mean(tmp_path: Path) -> None:
    """A task with many seeds, where b is better, does not decide against one with few."""
    for name, reach, push in (
        ("a", [True] * 160 + [False] * 40, [True] * 10 + [False] * 10),
        ("b", [True] * 200, [False] * 20),
    ):
        write(tmp_path / name / "reach" / "results.jsonl", reach)
        write(tmp_path / name / "push" / "results.jsonl", push, task="push")
    *_, total = Comparison.of([run_of(tmp_path / name) for name in "ab"]).rows
    assert total.difference == pytest.approx((40 / 200 - 10 / 20) / 2)
    # 10 signs of 1/20 and 40 of 1/200 have the standard deviation 0.161; their sum is 0.3.
    assert total.p == pytest.approx(0.07, abs=0.01)
    assert (total.better, total.verdict) == (None, "no evidence")
    assert total.to_dict()["test"] == "mcnemar_stratified"
    for name, push in (("a", [True] * 4 + [False] * 16), ("b", [False] * 20)):
        write(tmp_path / f"{name}2" / "push" / "results.jsonl", push, task="push")
        (tmp_path / name / "reach").rename(tmp_path / f"{name}2" / "reach")
    *_, total = Comparison.of([run_of(tmp_path / f"{name}2") for name in "ab"]).rows
    assert total.difference == 0
    assert total.p == pytest.approx(1)
    assert (total.better, total.verdict) == (None, "no sign of a difference")


def test_entries_that_differ_in_their_time_limit_alone_are_told_apart(tmp_path: Path) -> None:
    """Also by an experiment, which finds the results of recipes by the names of tasks."""
    cells = [
        Cell(recipe, seed, tmp_path / f"{recipe}{seed}") for recipe in "ab" for seed in range(2)
    ]
    for cell in cells:
        folder = cell.evaluation
        write(folder / "reach" / "results.jsonl", [False] * 10)
        write(folder / "reach.long" / "results.jsonl", [True] * 10, time_limit_s=60.0)
    found = ExperimentResults.of(cells)
    rates = {row.task: row.mean for row in found.rows if row.recipe == "a"}
    assert rates == {"reach (reach)": 0, "reach (reach.long)": 1, "all tasks": 0.5}
    runs = [read_evaluation(cell.name, cell.evaluation) for cell in cells[:2]]
    assert [row.task for row in Comparison.of(runs).rows[:2]] == list(rates)[:2]


def test_stages_are_beside_success(tmp_path: Path) -> None:
    """Two policies without any success differ by how far they come."""
    for name, lifted in (("a", 2), ("b", 8)):
        stored = ResultsFile(tmp_path / f"{name}.jsonl", {**REACH, "checkpoint": name})
        for seed in range(10):
            stage, text = (1, "lifted") if seed < lifted else (0, "start")
            stored.add(EpisodeResult(seed, False, stage, text, 3.0, 4, 20.0, 0.5))
    comparison = Comparison.of([run_of(tmp_path / f"{name}.jsonl") for name in "ab"])
    (row,) = comparison.rows
    assert row.stages == {"lifted": Pairs(2, 0, 6, 2)}
    assert "  lifted  20 % of 10  80 % of 10" in comparison.table()
    assert row.to_dict()["stages"]["lifted"]["only_second"] == 6
    assert '<tr class="below"><td>lifted</td>' in comparison.section().__html__()


@pytest.mark.parametrize(
    ("about", "answer"),
    [
        ({"time_limit_s": 15.0}, r"time_limit_s is 20\.0 in .*a\.jsonl and 15\.0 in .*b\.jsonl"),
        (
            {"options": {"table_height": 0.02}},
            r"options is \{\} in .*a\.jsonl and \{'table_height': 0\.02\} in .*b\.jsonl",
        ),
        ({"frame_hz": 25.0}, r"frame_hz is 12\.5 in .* and 25\.0 in"),
        (
            {"robot_model": "menagerie"},
            r"robot_model is 'primitives' in .*a\.jsonl and 'menagerie' in .*b\.jsonl",
        ),
        (
            {"task": "push"},
            (
                r"a and b have no common task\. reach: b has no results\. "
                r"push: a has none"
            ),
        ),
        (
            {"first_seed": 5},
            (
                r"different seeds: 30 from 1000000 to 1000029 in .*a\.jsonl, 30 from 5 to 34 in "
                r".*b\.jsonl\.$"
            ),
        ),
    ],
)
def test_different_conditions_are_refused(
    tmp_path: Path, about: dict[str, Any], answer: str
) -> None:
    """Both values are named."""
    runs = [run_of(write(tmp_path / "a.jsonl", A)), run_of(write(tmp_path / "b.jsonl", A, **about))]
    with pytest.raises(ValueError, match=answer.replace("a has none", "a has no results")):
        Comparison.of(runs)


@pytest.mark.parametrize("key", VERSIONS)
def test_results_of_different_versions_are_refused_in_one_line(tmp_path: Path, key: str) -> None:
    versions: dict[str, dict[str, Any]] = {name: {key: name.upper()} for name in ("a", "b")}
    a, b = (
        run_of(write(tmp_path / f"{name}.jsonl", A, **about)) for name, about in versions.items()
    )
    with pytest.raises(ValueError, match=rf"{key} is 'A' in .* and 'B' in") as error:
        Comparison.of([a, b])
    assert "\n" not in str(error.value)


def test_results_of_earlier_code_are_noted(tmp_path: Path) -> None:
    versions: dict[str, Any] = {"physics": "0a", "torch": "2.0"}
    a = run_of(write(tmp_path / "a.jsonl", A, **versions))
    b = run_of(write(tmp_path / "b.jsonl", B))
    (note,) = (note for note in Comparison.of([a, b]).notes if "version" in note)
    assert note.endswith("b.jsonl does not tell its version of physics, torch.")


def test_requested_results_are_those_of_the_seeds(tmp_path: Path) -> None:
    write(tmp_path / "a" / "results.jsonl", A)
    write(tmp_path / "b" / "results.jsonl", B, task="push")
    asked = {tmp_path / "b": [1_000_007, 1_000_003]}
    (task,) = requested_results("x", asked).tasks
    assert (task.name, list(task.results)) == ("push", [1_000_007, 1_000_003])
    assert not requested_results("x", {}).tasks


def test_fewer_seeds(tmp_path: Path) -> None:
    """A shorter evaluation can be compared with the beginning of a longer one on request."""
    runs = [run_of(write(tmp_path / "a.jsonl", A)), run_of(write(tmp_path / "b.jsonl", B[:10]))]
    with pytest.raises(ValueError, match="The first 10 are the same: seeds=10 compares those"):
        Comparison.of(runs)
    assert Comparison.of(runs, seeds=10).rows[0].pairs == Pairs(5, 0, 4, 1)
    with pytest.raises(ValueError, match="has results of 10 seeds; 11 are requested"):
        Comparison.of(runs, seeds=11)
    with pytest.raises(ValueError, match=r"seeds must be an integer of at least 1 \(got -1\)"):
        Comparison.of(runs, seeds=-1)


def test_notes(tmp_path: Path) -> None:
    """Missing tasks, incomplete episodes, and other executions of the same checkpoint are noted."""
    for name in "ab":
        write(
            tmp_path / name / "reach" / "results.jsonl",
            A,
            checkpoint="x",
            execute_steps=8 if name == "a" else 24,
        )
    write(tmp_path / "a" / "push" / "results.jsonl", A, task="push")
    write(tmp_path / "b" / "pull" / "results.jsonl", A, task="pull", error="lost")
    write(tmp_path / "b" / "failed" / "results.jsonl", [], task="push")
    notes = " ".join(Comparison.of([run_of(tmp_path / "a"), run_of(tmp_path / "b")]).notes)
    assert "push: b has no results." in notes
    assert "pull: a has no results." in notes
    assert "Actions between two plans: a 8, b 24." in notes
    assert "the same checkpoint" in notes
    late = {"name": "real_time_chunking", "delay_s": 0.1}
    executed = [
        run_of(write(tmp_path / "e.jsonl", A)),
        run_of(write(tmp_path / "f.jsonl", A, execution=late)),
    ]
    assert (
        "Execution: e receding_horizon, f real_time_chunking 0.1." in Comparison.of(executed).notes
    )
    incomplete = [
        run_of(write(tmp_path / "c.jsonl", A)),
        run_of(write(tmp_path / "d.jsonl", A[:30], error="lost")),
    ]
    assert "30 episodes of d were not completed" in Comparison.of(incomplete).notes[0]


def test_other_folders_are_refused(tmp_path: Path) -> None:
    """An empty folder, one run twice, one alone."""
    assert not is_evaluation(tmp_path)
    with pytest.raises(ValueError, match="holds no results of an evaluation"):
        read_evaluation("x", tmp_path)
    write(tmp_path / "single" / "results.jsonl", A)
    write(tmp_path / "single" / "other" / "results.jsonl", A, task="push")
    assert [task.name for task in run_of(tmp_path / "single").tasks] == ["reach"]
    run = run_of(write(tmp_path / "a.jsonl", A))
    assert is_evaluation(tmp_path / "a.jsonl")
    for runs in ([run], [run, run]):
        with pytest.raises(ValueError, match="between two or more different evaluations"):
            Comparison.of(runs)


def test_section_of_a_report(tmp_path: Path) -> None:
    """All rows are present, and texts of the user are escaped."""
    runs = [
        read_evaluation(name, write(tmp_path / f"{name[:1]}.jsonl", outcomes))
        for name, outcomes in (("a<b>", A), ("b", B))
    ]
    section = Comparison.of(runs).section().__html__()
    assert section.startswith('<section id="comparison">')
    assert section.rstrip().endswith("</section>")
    assert "a&lt;b&gt;" in section
    assert "+40 [+24, +58]" in section
    assert "b is better" in section
