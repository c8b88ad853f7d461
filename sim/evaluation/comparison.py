"""Policies compared on the same seeds: for each task the difference with its interval, a test, and what would tell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import combinations
from operator import add
from pathlib import Path
from typing import Any

import jinja2

from stringline.datasets.contract.arguments import COUNT, unknown_name
from stringline.policies.execution.execution import RECEDING
from stringline.sim.evaluation.stored_evaluations import FinishedRun, FinishedTask, same_tasks
from stringline.sim.evaluation.text_tables import text_table
from stringline.sim.statistics.intervals import Interval
from stringline.sim.statistics.paired import Pairs, difference_interval, holm, mcnemar
from stringline.sim.statistics.power import MOST_SEEDS, seeds_needed

LEVEL = 0.05
POWER = 0.8
EVERYTHING = "all tasks"


@dataclass(frozen=True)
class Row:
    """Two policies on one task, or on all of them together.

    Attributes:
        task: Its name with its options.
        first: What the first one is called.
        second: The same of the second.
        pairs: Outcomes on the same seeds.
        p: Of McNemar's exact test.
        corrected: The same after Holm's correction for the family of rows that it belongs to.
        family: How many rows that family has.
    """

    task: str
    first: str
    second: str
    pairs: Pairs
    p: float
    corrected: float
    family: int

    @cached_property
    def interval(self) -> Interval:
        """95 % interval of the difference, second less first; it is not widened for the number of rows."""
        return difference_interval(self.pairs)

    @property
    def better(self) -> str | None:
        """Who is better, where the corrected test says so."""
        if self.corrected > LEVEL:
            return None
        return self.second if self.pairs.difference > 0 else self.first

    @cached_property
    def needed(self) -> int | None:
        """About how many seeds make a verdict likely, were the differences to go on as observed; None if that says nothing.

        Power 80 %; the level is 5 % divided by the number of rows in the family, which is Holm's
        hardest case.
        """
        return seeds_needed(self.pairs, POWER, LEVEL / self.family)

    @property
    def verdict(self) -> str:
        """The outcome in words."""
        if self.better:
            return f"{self.better} is better"
        if self.pairs.only_first + self.pairs.only_second == 0:
            return "they never differ"
        if self.pairs.difference == 0:
            return "no sign of a difference"
        if self.needed is None:
            return f"no evidence; over {MOST_SEEDS} seeds would be needed"
        more = max(self.needed - self.pairs.count, 1)
        return f"no evidence; about {float(f'{more:.2g}'):.0f} more seeds for a verdict"

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON."""
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
            "difference": pairs.difference,
            "low": self.interval.low,
            "high": self.interval.high,
            "p": self.p,
            "p_corrected": self.corrected,
            "compared": self.family,
            "seeds_needed": self.needed,
            "better": self.better,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Comparison:
    """Two or more policies.

    Attributes:
        names: What they are called, in their order.
        rows: For each pair each task, and all of them together where there are several.
        notes: Sentences that a reader needs.
    """

    names: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, runs: Sequence[FinishedRun], *, seeds: int | None = None, baseline: str | None = None
    ) -> "Comparison":
        """Compares runs.

        Args:
            runs: At least two, with distinct names.
            seeds: Only the smallest so many of each task; None takes all.
            baseline: The run that each other one is compared with; None compares each with each.

        Raises:
            ValueError: They cannot be compared: other seeds, options or limits.
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
        tasks, left_out = same_tasks(runs)
        chosen = [(a, b) for a, b in combinations(range(len(runs)), 2)]
        if baseline is not None:
            reference = names.index(baseline)
            chosen = [(reference, other) for other in range(len(runs)) if other != reference]
        rows = [
            _row(task[a].name, names[a], names[b], _pairs(task[a], task[b]))
            for a, b in chosen
            for task in tasks
        ]
        totals = []
        if len(tasks) > 1:
            for a, b in chosen:
                total = reduce(
                    add,
                    (row.pairs for row in rows if (row.first, row.second) == (names[a], names[b])),
                )
                totals.append(_row(EVERYTHING, names[a], names[b], total))
        return cls(
            tuple(names),
            (*_corrected(rows), *_corrected(totals)),
            (*left_out, *_notes(names, tasks)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON."""
        return {
            "names": list(self.names),
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """Returns a table for a terminal, with the notes below; the column of names is there where there are several pairs."""
        several = len({(row.first, row.second) for row in self.rows}) > 1
        head = (
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
        rows = [head, *(_cells(row) for row in self.rows)]
        if not several:
            rows = [(row[0], *row[2:]) for row in rows]
        title = () if several else (f"first: {self.rows[0].first}, second: {self.rows[0].second}",)
        return "\n".join(
            [
                *title,
                text_table(rows[0], rows[1:], words=(0, 1, 9) if several else (0, 8)),
                *self.notes,
            ]
        )

    def section(self) -> str:
        """Returns a piece of HTML, `<section id="comparison">`, that a report can embed; it brings no style of its own."""
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent / "assets"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        template = environment.get_template("comparison.html.jinja")
        return template.render(
            comparison=self,
            difference_text=difference_text,
            several=any(row.family > 1 for row in self.rows),
        )


def difference_text(row: Row) -> str:
    """Returns a difference in percentage points with its interval: `+16 [+4, +29]`."""
    return (
        f"{row.pairs.difference * 100:+.0f} [{row.interval.low * 100:+.0f}, "
        f"{row.interval.high * 100:+.0f}]"
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.task,
        f"{row.first} -> {row.second}",
        _share(row.pairs.first.value, row.pairs.count),
        _share(row.pairs.second.value, row.pairs.count),
        str(row.pairs.only_first),
        str(row.pairs.only_second),
        difference_text(row),
        f"{row.p:.2g}",
        f"{row.corrected:.2g}" if row.family > 1 else "-",
        row.verdict,
    )


def _share(rate: float, count: int) -> str:
    return f"{rate:.0%} of {count}".replace("%", " %")


def _row(task: str, first: str, second: str, pairs: Pairs) -> Row:
    p = mcnemar(pairs)
    return Row(task, first, second, pairs, p, p, 1)


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with p values corrected for one another: tasks form one family, totals over tasks another."""
    corrected = holm([row.p for row in rows])
    return [
        replace(row, corrected=p, family=len(rows)) for row, p in zip(rows, corrected, strict=True)
    ]


def _pairs(first: FinishedTask, second: FinishedTask) -> Pairs:
    seeds = sorted(first.results)
    return Pairs.of(
        [first.results[seed].success for seed in seeds],
        [second.results[seed].success for seed in seeds],
    )


def _notes(names: Sequence[str], tasks: Sequence[Sequence[FinishedTask]]) -> list[str]:
    notes = []
    for task in tasks:
        for name, finished in zip(names, task, strict=True):
            if troubled := sum(bool(result.trouble) for result in finished.results.values()):
                notes.append(
                    f"{finished.name}: {troubled} episodes of {name} could not be run to their "
                    f"end and count as failed."
                )
    steps = [task.about.get("execute_steps") for task in tasks[0]]
    if len(set(steps)) > 1:
        notes.append(
            "Actions between two plans: "
            + ", ".join(f"{name} {step}" for name, step in zip(names, steps, strict=True))
            + "."
        )
    executions = [
        " ".join(
            str(value) for value in (task.about.get("execution") or {"name": RECEDING}).values()
        )
        for task in tasks[0]
    ]
    if len(set(executions)) > 1:
        notes.append(
            "Execution: "
            + ", ".join(f"{name} {how}" for name, how in zip(names, executions, strict=True))
            + "."
        )
    checkpoints = [task.about.get("checkpoint") for task in tasks[0]]
    if len(set(checkpoints)) == 1 and checkpoints[0] is not None:
        notes.append("All of them are the same checkpoint.")
    return notes
