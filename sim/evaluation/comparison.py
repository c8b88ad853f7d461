"""Comparison of policies on the same seeds: differences with intervals, tests and verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from operator import add
from pathlib import Path
from typing import Any

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.files.templates import template_environment
from stringline.sim.evaluation.comparison_row import ALL_TASKS, Row, difference_text
from stringline.sim.evaluation.stored_evaluations import (
    StoredEvaluation,
    StoredTask,
    common_tasks,
    condition_notes,
)
from stringline.sim.evaluation.text_tables import text_table
from stringline.sim.statistics.macro import points
from stringline.sim.statistics.paired import Pairs, holm, mcnemar
from stringline.sim.statistics.sequential import anytime_p
from stringline.sim.statistics.stratified import stratified_mcnemar


@dataclass(frozen=True)
class Comparison:
    """A comparison of two or more policies.

    Attributes:
        names: Names of the policies.
        rows: Each task of each pair, and the total of several tasks.
        notes: Sentences on conditions that differ.
        evaluations: The compared results: the common tasks of all policies, on the same seeds.
    """

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    evaluations: tuple[StoredEvaluation, ...] = ()

    @classmethod
    def of(
        cls,
        runs: Sequence[StoredEvaluation],
        *,
        seeds: int | None = None,
        baseline: str | None = None,
        sequential: bool = False,
    ) -> "Comparison":
        """Compares stored evaluations.

        Args:
            runs: At least two, with distinct names.
            seeds: Number of the smallest seeds to compare of each task; None: all.
            baseline: The evaluation to compare each other one with; None: each with each.
            sequential: Whether the seeds were collected until a decision; their order is ascending.
                Then tasks may have different numbers of seeds, and all tasks have no common row.

        Raises:
            ValueError: Seeds, options or limits differ.
        """
        names = [run.name for run in runs]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(
                f"A comparison is between two or more different evaluations; got "
                f"{', '.join(names) or 'none'}."
            )
        if baseline is not None and baseline not in names:
            raise unknown_name("compared evaluation", baseline, names)
        if seeds is not None:
            COUNT.check(seeds=seeds)
            runs = [
                replace(run, tasks=tuple(task.first_seeds(seeds) for task in run.tasks))
                for run in runs
            ]
        tasks, omitted = common_tasks(runs)
        rows: list[Row] = []
        totals: list[Row] = []
        for a, b in _index_pairs(names, baseline):
            found = [
                _task_row((names[a], names[b]), task[a], task[b], sequential) for task in tasks
            ]
            rows += found
            if len(tasks) > 1 and not sequential:
                totals.append(_total(found))
        return cls(
            tuple(names),
            (*_corrected(rows), *_corrected(totals)),
            (*omitted, *condition_notes(names, tasks)),
            tuple(map(StoredEvaluation, names, zip(*tasks, strict=True))),
        )

    @property
    def undecided(self) -> set[str]:
        """Names of the tasks on which two policies have no verdict."""
        return {row.task for row in self.rows if row.better is None}

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison as plain JSON."""
        return {
            "names": list(self.names),
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """Returns a table and the notes for a terminal; with several pairs, a column names them."""
        rows = [HEAD, *(line for row in self.rows for line in (_cells(row), *_stage_cells(row)))]
        if len({(row.first, row.second) for row in self.rows}) > 1:
            return "\n".join([text_table(rows[0], rows[1:], words=(0, 1, 9)), *self.notes])
        title = f"first: {self.rows[0].first}, second: {self.rows[0].second}"
        rows = [(row[0], *row[2:]) for row in rows]
        return "\n".join([title, text_table(rows[0], rows[1:], words=(0, 8)), *self.notes])

    def section(self, chart: str = "") -> str:
        """Returns HTML without styles for a report, `<section id="comparison">`.

        `chart` is an SVG, which is placed below the table.
        """
        environment = template_environment(Path(__file__).parent / "assets")
        template = environment.get_template("comparison.html.jinja")
        return template.render(
            comparison=self,
            chart=chart,
            difference_text=difference_text,
            points=points,
            several=any(row.family > 1 for row in self.rows),
            sequential=any(row.sequential for row in self.rows),
        )


HEAD = (
    "task",
    "compared",
    "first",
    "second",
    "only 1st",
    "only 2nd",
    "difference",
    "p",
    "Holm",
    "verdict",
)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.task,
        f"{row.first} -> {row.second}",
        *(_share(rate, row.pairs.count) for rate in row.rates),
        str(row.pairs.only_first),
        str(row.pairs.only_second),
        difference_text(row),
        f"{row.p:.2g}",
        f"{row.corrected:.2g}" if row.family > 1 else "-",
        row.verdict,
    )


def _stage_cells(row: Row) -> list[tuple[str, ...]]:
    """Returns a line for each stage: its rates and their paired difference."""
    return [
        (
            f"  {name}",
            "",
            *(_share(rate.value, reached.count) for rate in (reached.first, reached.second)),
            str(reached.only_first),
            str(reached.only_second),
            points(reached.difference, row.interval_of(reached)),
            *("", "", ""),
        )
        for name, reached in row.stages.items()
    ]


def _share(rate: float, count: int) -> str:
    return f"{rate:.0%} of {count}".replace("%", " %")


def _index_pairs(names: Sequence[str], baseline: str | None) -> list[tuple[int, int]]:
    if baseline is None:
        return list(combinations(range(len(names)), 2))
    reference = names.index(baseline)
    return [(reference, other) for other in range(len(names)) if other != reference]


def _task_row(
    names: tuple[str, str], first: StoredTask, second: StoredTask, sequential: bool
) -> Row:
    """Returns the row of one task, with McNemar's test or the sequential one."""
    outcomes = _outcomes(first, second)
    pairs = Pairs.of(*outcomes)
    p = anytime_p(*outcomes) if sequential else mcnemar(pairs)
    stages = _stages(first, second)
    return Row(first.name, *names, pairs, p, p, 1, sequential=sequential, stages=stages)


def _total(rows: Sequence[Row]) -> Row:
    """Returns the row of all tasks of two policies."""
    pairs = reduce(add, (row.pairs for row in rows))
    tasks = tuple(row.pairs for row in rows)
    p = stratified_mcnemar(tasks)
    return Row(ALL_TASKS, rows[0].first, rows[0].second, pairs, p, p, 1, tasks=tasks)


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of one family with corrected p values."""
    corrected = holm([row.p for row in rows])
    return [
        replace(row, corrected=p, family=len(rows)) for row, p in zip(rows, corrected, strict=True)
    ]


def _stages(first: StoredTask, second: StoredTask) -> dict[str, Pairs]:
    """Returns who reached each stage between the start and success, as far as any episode did."""
    results = [result for task in (first, second) for result in task.results.values()]
    names = {result.stage: result.stage_name for result in results if not result.success}
    return {
        names[stage]: Pairs.of(
            [first.results[seed].stage >= stage for seed in sorted(first.results)],
            [second.results[seed].stage >= stage for seed in sorted(second.results)],
        )
        for stage in sorted(names)
        if stage > 0
    }


def _outcomes(first: StoredTask, second: StoredTask) -> tuple[list[bool], list[bool]]:
    """Returns the outcomes of both policies in the ascending order of the seeds."""
    seeds = sorted(first.results)
    return (
        [first.results[seed].success for seed in seeds],
        [second.results[seed].success for seed in seeds],
    )
