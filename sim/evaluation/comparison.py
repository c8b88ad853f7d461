"""Comparison of policies on the same seeds: differences with intervals, tests and verdicts.

A row compares two policies on one task, or on all tasks. In the rounds of a sequential comparison,
tasks whose verdict is open get more seeds.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, reduce
from itertools import combinations
from operator import add
from statistics import fmean
from typing import Any

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.files.pages import Card, CellContent, Column, Section, Svg, Table, Text
from stringline.datasets.files.pages import Row as TableRow
from stringline.sim.evaluation.results import text_table
from stringline.sim.evaluation.stored_evaluations import (
    StoredEvaluation,
    StoredTask,
    common_tasks,
    condition_name,
    condition_notes,
)
from stringline.sim.evaluation.suites import Suite, SuiteEntry
from stringline.sim.statistics.intervals import Interval
from stringline.sim.statistics.paired import (
    MOST_SEEDS,
    MacroMean,
    Pairs,
    anytime_interval,
    anytime_p,
    difference_interval,
    holm,
    mcnemar,
    points,
    seeds_needed,
    stratified_mcnemar,
)

LEVEL = 0.05
POWER = 0.8
ALL_TASKS = "all tasks"


@dataclass(frozen=True)
class Row:
    """Two policies on one task, or on all tasks together.

    Attributes:
        task: Name and options of the task.
        pairs: Outcomes on the same seeds.
        p: p value of McNemar's exact test, of the stratified one for all tasks, or of the
            sequential test.
        corrected: p value after Holm's correction for the family of rows.
        family: Number of rows of the family.
        sequential: Whether p and the interval hold however often they are examined.
        tasks: Of the row of all tasks, the pairs of each task, which count equally; else empty.
        stages: Pairs of having reached each stage below success, by name.
    """

    task: str
    first: str
    second: str
    pairs: Pairs
    p: float
    corrected: float
    family: int
    sequential: bool = False
    tasks: tuple[Pairs, ...] = ()
    stages: Mapping[str, Pairs] = field(default_factory=dict)

    @property
    def difference(self) -> float:
        """Rate of the second less that of the first policy; of all tasks, the mean over tasks."""
        if self.tasks:
            return MacroMean.of_differences(self.tasks).value
        return self.pairs.difference

    @property
    def rates(self) -> tuple[float, float]:
        """Success rates of both policies; of all tasks, the means over tasks."""
        parts = self.tasks or (self.pairs,)
        return fmean(p.first.value for p in parts), fmean(p.second.value for p in parts)

    @cached_property
    def interval(self) -> Interval:
        """95 % interval of the difference, second less first, without correction for the family."""
        if self.tasks:
            return MacroMean.of_differences(self.tasks).interval
        return self.interval_of(self.pairs)

    def interval_of(self, pairs: Pairs) -> Interval:
        """Returns the 95 % interval of the difference of outcomes, by the method of this row."""
        return (anytime_interval if self.sequential else difference_interval)(pairs)

    @property
    def better(self) -> str | None:
        """The better policy, if the corrected test rejects equality."""
        if self.corrected > LEVEL or self.difference == 0:
            return None
        return self.second if self.difference > 0 else self.first

    @cached_property
    def needed(self) -> int | None:
        """Number of seeds for a verdict with 80 % power at the observed rates; None if unknown.

        The level is 5 % divided by the number of rows of the family, Holm's hardest case. The
        sequential test needs no such number, and tasks with different numbers of seeds have none.
        """
        if self.sequential or self._unequal:
            return None
        return seeds_needed(self.pairs, POWER, LEVEL / self.family)

    @property
    def _unequal(self) -> bool:
        """Whether tasks have different numbers of seeds."""
        return len({pairs.count for pairs in self.tasks}) > 1

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.better:
            return f"{self.better} is better"
        if self.pairs.only_first + self.pairs.only_second == 0:
            return "they never differ"
        if self.difference == 0:
            return "no sign of a difference"
        return self._undecided

    @property
    def _undecided(self) -> str:
        """The words for policies that differ on some seeds, without a verdict."""
        if self.sequential:
            return "undecided; a larger seeds= continues"
        if self._unequal:
            return "no evidence"
        if self.needed is None:
            return f"no evidence; over {MOST_SEEDS} seeds would be needed"
        more = max(self.needed - self.pairs.count, 1)
        return f"no evidence; about {float(f'{more:.2g}'):.0f} more seeds for a verdict"

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as plain JSON."""
        pairs = self.pairs
        return {
            "task": self.task,
            "first": self.first,
            "second": self.second,
            "seeds": pairs.count,
            "both": pairs.both,
            "only_first": pairs.only_first,
            "only_second": pairs.only_second,
            "neither": pairs.neither,
            "rate_first": pairs.first.to_dict(),
            "rate_second": pairs.second.to_dict(),
            "difference": self.difference,
            "low": self.interval.low,
            "high": self.interval.high,
            "stages": {name: asdict(reached) for name, reached in self.stages.items()},
            "p": self.p,
            "p_corrected": self.corrected,
            "compared": self.family,
            "seeds_needed": self.needed,
            "better": self.better,
            "verdict": self.verdict,
            "test": "sequential" if self.sequential else "mcnemar" + "_stratified" * self._unequal,
        }


def difference_text(row: Row) -> str:
    """Returns a difference in percentage points with its interval: `+16 [+4, +29]`."""
    return points(row.difference, row.interval)


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
            seeds: Number of the smallest seeds to compare of each task; if None, all.
            baseline: The evaluation to compare each other one with; if None, each with each.
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

    def section(self, chart: str = "") -> Section:
        """Returns the section of a page; `chart` is an SVG, which is placed below the table."""
        several = any(row.family > 1 for row in self.rows)
        numbers = ("seeds", "first", "second", "only first", "only second")
        columns = [
            *(Column(name) for name in ("task", "first", "second")),
            *(Column(name, kind="number") for name in numbers),
            Column("difference", "points [95 %]", "number"),
            Column("p", kind="number", form=".2g"),
            *([Column("p, Holm", kind="number", form=".2g")] if several else []),
            Column("verdict", kind="wrap"),
        ]
        table = Table(columns, [line for row in self.rows for line in _lines(row, several)])
        notes = [_note(several, any(row.sequential for row in self.rows)), *self.notes]
        return Section(
            "comparison",
            "Comparison",
            [Card([table, Svg(chart)]), *(Text(note, "quiet") for note in notes)],
        )


def _lines(row: Row, several: bool) -> list[TableRow]:
    """Returns the lines of a page's table: the task, and below it the stages."""
    lines = [
        TableRow(
            [
                row.task.replace("_", " "),
                row.first,
                row.second,
                row.pairs.count,
                *(f"{rate * 100:.0f} %" for rate in row.rates),
                row.pairs.only_first,
                row.pairs.only_second,
                difference_text(row),
                row.p,
                *([row.corrected if row.family > 1 else None] if several else []),
                row.verdict,
            ]
        )
    ]
    for name, reached in row.stages.items():
        cells: list[CellContent] = [
            name.replace("_", " "),
            *("", "", ""),
            *(f"{rate.value * 100:.0f} %" for rate in (reached.first, reached.second)),
            reached.only_first,
            reached.only_second,
            points(reached.difference, row.interval_of(reached)),
            *("" for _ in range(2 + several)),
        ]
        lines.append(TableRow(cells, below=True))
    return lines


def _note(several: bool, sequential: bool) -> str:
    """Returns how the table of a page is to be read."""
    if sequential:
        family = " (for all rows together, with Holm's correction)" * several
        test = (
            f"Seeds were collected in rounds until the sequential test decided, by bets on the "
            f"seeds with different outcomes: however often it is examined, the probability to call "
            f"one of two equally good policies better is at most 5 %{family}. The intervals hold "
            f"at all numbers of seeds, too."
        )
    else:
        family = ", corrected by Holm for the number of rows" * several
        test = (
            f"The difference is second less first, with Tango's interval for paired rates; p is "
            f"that of McNemar's exact test{family}; the row of all tasks is the mean over tasks."
        )
    return (
        f"Both policies were run on the same seeds. {test} Below each task are the stages: who "
        f"reached them."
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


logger = logging.getLogger(__name__)

Seeds = Mapping[str, Sequence[int]]


def entry_seeds(suite: Suite) -> Seeds:
    """Returns the seeds of a suite's entries in ascending order, by the task's name.

    Raises:
        ValueError: Two entries are the same task under the same options.
    """
    seeds = {_name(entry): sorted(entry.seeds) for entry in suite.entries}
    if len(seeds) < len(suite.entries):
        raise ValueError(
            f"The suite {suite.name} has entries of the same task with the same options, which a "
            f"sequential comparison cannot tell apart."
        )
    return seeds


def with_entry_seeds(suite: Suite, seeds: Seeds) -> Suite:
    """Returns a suite with other seeds, by the task's name."""
    entries = (replace(entry, seeds=tuple(seeds[_name(entry)])) for entry in suite.entries)
    return replace(suite, entries=tuple(entries))


def _name(entry: SuiteEntry) -> str:
    return condition_name(entry.task, entry.settings().options)


def until_decided(
    available: Seeds, round_seeds: int, compare: Callable[[Seeds], Comparison]
) -> Comparison:
    """Compares policies on more and more seeds, until each task is decided or has no more seeds.

    A task gets seeds for all policies until each pair of them has a verdict. So the rounds depend
    on the outcomes alone: a continued comparison repeats the decisions of an interrupted one.

    Args:
        available: All seeds of each task in ascending order, by the task's name in comparisons.
        round_seeds: Number of seeds that an undecided task gets in each round.
        compare: Evaluates all policies on the given seeds of each task, and returns the sequential
            comparison.

    Raises:
        ValueError: `round_seeds` is out of range.
    """
    COUNT.check(round_seeds=round_seeds)
    taken = {name: seeds[:round_seeds] for name, seeds in available.items()}
    while True:
        comparison = compare(taken)
        more = {
            name: available[name][: len(seeds) + round_seeds]
            for name, seeds in taken.items()
            if name in comparison.undecided and len(seeds) < len(available[name])
        }
        if not more:
            return comparison
        logger.info("%d of %d tasks are undecided and get more starts.", len(more), len(taken))
        taken |= more
