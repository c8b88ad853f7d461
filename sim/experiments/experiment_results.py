"""Results of an experiment: rates of recipes over their trainings, differences, and the page."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.files.pages import (
    Card,
    Code,
    Column,
    Content,
    Fold,
    Items,
    Link,
    Section,
    Span,
    Svg,
    Table,
    Text,
)
from stringline.sim.evaluation.comparison import ALL_TASKS, LEVEL
from stringline.sim.evaluation.results import text_table
from stringline.sim.evaluation.stored_evaluations import StoredEvaluation, read_evaluation
from stringline.sim.experiments.experiment_plan import Cell, ExperimentPlan
from stringline.sim.report.charts import LearningCurve, learning_curve
from stringline.sim.report.report import Report, package_versions, system_info
from stringline.sim.report.run_reports import side_by_side
from stringline.sim.statistics.intervals import Interval, Rate
from stringline.sim.statistics.paired import holm, points
from stringline.sim.statistics.trainings import (
    FEW_TRAININGS,
    Estimate,
    recipe_difference,
    recipe_rate,
)


@dataclass(frozen=True)
class RecipeRow:
    """A recipe on one task, or on all tasks.

    Attributes:
        trainings: Rates of single trainings, by seed; for all tasks, of all episodes.
        mean: Mean over trainings, of the mean over tasks.
        interval: 95 % interval over trainings and starts; None for a single training.
    """

    recipe: str
    task: str
    trainings: Mapping[int, Rate]
    mean: float
    interval: Interval | None

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as plain JSON."""
        return {
            "recipe": self.recipe,
            "task": self.task,
            "mean": self.mean,
            "low": self.interval.low if self.interval else None,
            "high": self.interval.high if self.interval else None,
            "trainings": {str(seed): rate.to_dict() for seed, rate in self.trainings.items()},
        }


@dataclass(frozen=True)
class DifferenceRow:
    """The difference of two recipes on one task or on all tasks, second less first.

    Attributes:
        corrected: Posterior probability after Holm's correction for the `family` of rows.
        trainings: Smaller number of trainings of both recipes.
    """

    first: str
    second: str
    task: str
    estimate: Estimate
    corrected: float
    family: int
    trainings: int

    @property
    def posterior(self) -> float:
        """The two-sided posterior probability without correction; see `Estimate`."""
        assert self.estimate.posterior is not None
        return self.estimate.posterior

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.corrected > LEVEL:
            return "no evidence of a difference"
        few = f" (of {self.trainings} trainings)" * (self.trainings < FEW_TRAININGS)
        return f"{self.second if self.estimate.value > 0 else self.first} is better{few}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the row as plain JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "task": self.task,
            "difference": self.estimate.value,
            "low": self.estimate.interval.low,
            "high": self.estimate.interval.high,
            "posterior": self.posterior,
            "posterior_corrected": self.corrected,
            "compared": self.family,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class ExperimentResults:
    """All recipes that have at least one evaluated training, and their differences."""

    rows: tuple[RecipeRow, ...]
    differences: tuple[DifferenceRow, ...]
    starts: Mapping[str, Sequence[int]]
    evaluations: Mapping[Cell, StoredEvaluation]

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Self:
        """Reads the evaluations of ended cells, at least one.

        The recipes are compared on the starts that all cells have in common.
        """
        found = {cell: read_evaluation(cell.name, cell.evaluation) for cell in cells}
        starts = _common_starts(list(found.values()))
        outcomes = {
            recipe: _outcomes([found[cell] for cell in cells if cell.label == recipe], starts)
            for recipe in dict.fromkeys(cell.label for cell in cells)
        }
        seeds = {
            recipe: [cell.seed for cell in cells if cell.label == recipe] for recipe in outcomes
        }
        groups = [[task] for task in starts] + ([list(starts)] if len(starts) > 1 else [])
        rows = [
            _row(recipe, group, seeds[recipe], [tables[task] for task in group])
            for group in groups
            for recipe, tables in outcomes.items()
        ]
        single, total = (
            [row for group in chosen for row in _differences(group, outcomes)]
            for chosen in (groups[: len(starts)], groups[len(starts) :])
        )
        return cls(tuple(rows), (*_corrected(single), *_corrected(total)), starts, found)

    @property
    def headline(self) -> str:
        """The outcome in one or two sentences."""
        last = self.rows[-1].task
        means = [
            f"{row.recipe} {percent(row.mean)}"
            + (f" {_points(row.interval)}" if row.interval else "")
            for row in self.rows
            if row.task == last
        ]
        verdicts = [
            f"{row.second} against {row.first}: {row.verdict}"
            for row in self.differences
            if row.task == last
        ]
        return f"Mean success: {', '.join(means)}. " + "".join(f"{text}. " for text in verdicts)

    def table(self) -> str:
        """Returns the tables for a terminal."""
        rates = [
            (
                row.recipe,
                row.task,
                percent(row.mean),
                _points(row.interval) if row.interval else "-",
                ", ".join(f"{rate.value * 100:.0f}" for rate in row.trainings.values()),
            )
            for row in self.rows
        ]
        head = ("recipe", "task", "success", "95 %", "trainings, %")
        text = text_table(head, rates, words=(0, 1, 4))
        if not self.differences:
            return text
        rows = [
            (
                f"{row.second} - {row.first}",
                row.task,
                difference_text(row.estimate),
                f"{row.posterior:.2g}",
                f"{row.corrected:.2g}" if row.family > 1 else "-",
                row.verdict,
            )
            for row in self.differences
        ]
        compared = ("compared", "task", "difference", "posterior", "Holm", "verdict")
        table = text_table(compared, rows, words=(0, 1, 5))
        return "\n\n".join((text, table, *self.notes))

    @property
    def notes(self) -> list[str]:
        """What a reader of the differences has to know."""
        few = min((row.trainings for row in self.differences), default=FEW_TRAININGS)
        meaning = "posterior: twice the posterior probability of the other sign, not a p value."
        if few >= FEW_TRAININGS:
            return [meaning] if self.differences else []
        return [
            f"{meaning} With {few} trainings of a recipe it is below .05 for 8 to 13 % of equal "
            f"recipes; use trainings={FEW_TRAININGS} to claim a difference."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Returns the results as plain JSON."""
        return {
            "recipes": [row.to_dict() for row in self.rows],
            "differences": [row.to_dict() for row in self.differences],
            "starts": {task: list(seeds) for task, seeds in self.starts.items()},
        }


def percent(rate: float) -> str:
    """Returns a rate as `84 %`."""
    return f"{rate * 100:.0f} %"


def difference_text(estimate: Estimate) -> str:
    """Returns a difference in percentage points with its interval: `+16 [+4, +29]`."""
    return points(estimate.value, estimate.interval)


def _points(interval: Interval) -> str:
    return f"[{interval.low * 100:.0f}, {interval.high * 100:.0f}]"


def _common_starts(evaluations: Sequence[StoredEvaluation]) -> dict[str, list[int]]:
    """Returns the seeds of each task that all evaluations have."""
    first = [task.name for task in evaluations[0].tasks]
    by_name = [{task.name: task.results for task in each.tasks} for each in evaluations]
    common = {
        name: sorted(set.intersection(*(set(found[name]) for found in by_name)))
        for name in first
        if all(name in found for found in by_name)
    }
    return {name: seeds for name, seeds in common.items() if seeds}


def _outcomes(
    evaluations: Sequence[StoredEvaluation], starts: Mapping[str, Sequence[int]]
) -> dict[str, NDArray[np.float64]]:
    """Returns the outcomes (trainings, starts) of each task."""
    by_name = [{task.name: task.results for task in each.tasks} for each in evaluations]
    return {
        name: np.array(
            [[float(found[name][seed].success) for seed in seeds] for found in by_name], np.float64
        )
        for name, seeds in starts.items()
    }


def _row(
    recipe: str, tasks: Sequence[str], seeds: Sequence[int], tables: Sequence[NDArray[np.float64]]
) -> RecipeRow:
    trainings = {
        seed: Rate(
            int(sum(table[index].sum() for table in tables)),
            sum(table.shape[1] for table in tables),
        )
        for index, seed in enumerate(seeds)
    }
    mean = float(np.mean([table.mean() for table in tables]))
    interval = recipe_rate(tables).interval if _measurable(tables) else None
    return RecipeRow(recipe, _name(tasks), trainings, mean, interval)


def _differences(
    tasks: Sequence[str], outcomes: Mapping[str, Mapping[str, NDArray[np.float64]]]
) -> list[DifferenceRow]:
    rows = []
    for first, second in combinations(outcomes, 2):
        one, two = ([outcomes[recipe][task] for task in tasks] for recipe in (first, second))
        if _measurable(one) and _measurable(two):
            estimate = recipe_difference(one, two)
            trainings = min(len(one[0]), len(two[0]))
            rows.append(DifferenceRow(first, second, _name(tasks), estimate, 1.0, 1, trainings))
    return rows


def _measurable(tables: Sequence[NDArray[np.float64]]) -> bool:
    """Returns whether there are at least two trainings and two starts."""
    return all(min(table.shape) > 1 for table in tables)


def _corrected(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    corrected = holm([row.posterior for row in rows])
    pairs = zip(rows, corrected, strict=True)
    return [replace(row, corrected=value, family=len(rows)) for row, value in pairs]


def _name(tasks: Sequence[str]) -> str:
    return tasks[0] if len(tasks) == 1 else ALL_TASKS


def experiment_report(
    plan: ExperimentPlan,
    results: ExperimentResults,
    failures: Mapping[str, str],
    commands: Sequence[str],
) -> Report:
    """Returns the report of an experiment, with at least one evaluated cell.

    Args:
        plan: The experiment.
        results: The evaluations of its ended cells.
        failures: Reasons of failed cells, by name.
        commands: Commands that repeat the experiment.
    """
    first: dict[str, Cell] = {}
    for cell in results.evaluations:
        first.setdefault(cell.label, cell)
    starts = [f"{task}: {len(seeds)}" for task, seeds in results.starts.items()]
    return Report(
        title=f"{', '.join(first)}: comparison of recipes",
        headline=results.headline,
        facts={
            "recipes": "; ".join(f"{r.name}: {' '.join(r.train) or '-'}" for r in plan.recipes),
            "trainings": f"{plan.trainings} of each recipe, with the seeds 0 to "
            f"{plan.trainings - 1}",
            "starts": ", ".join(starts),
            "machine": system_info(),
            "versions": ", ".join(f"{name} {value}" for name, value in package_versions().items()),
        },
        rates={},
        clips=side_by_side([results.evaluations[cell] for cell in first.values()]),
        sections=_sections(plan, results, failures),
        commands=commands,
        kind="recipe",
    )


def _sections(
    plan: ExperimentPlan, results: ExperimentResults, failures: Mapping[str, str]
) -> list[Section]:
    rates_chart, differences_chart, curves_chart = _charts(results)
    rounds: list[Content] = []
    if plan.rounds:
        note = "A colour is a recipe, a line its mean, a bar its interval, a circle a training."
        rounds = [Card(Svg(_rounds_chart(results))), Text(note, "quiet")]
    curves: list[Content] = [
        Card(Svg(curves_chart)),
        Text("A colour is a recipe, a line a training.", "quiet"),
    ]
    return [
        Section("recipes", "Success of the recipes", _recipes(results, failures, rates_chart)),
        Section("rounds", "Success over the rounds", rounds),
        Section("comparison", "Differences", _compared(results, differences_chart)),
        Section("curves", "Learning curves", curves if curves_chart else []),
        Section("cells", "Trainings", [Card(_cells(plan, results, failures))]),
    ]


def _recipes(results: ExperimentResults, failures: Mapping[str, str], chart: str) -> list[Content]:
    columns = [
        Column("recipe"),
        Column("task"),
        *(Column(name, kind="number") for name in ("trainings", "mean success", "95 % interval")),
        Column("each training", kind="wrap"),
    ]
    rows = [
        (
            row.recipe,
            row.task.replace("_", " "),
            len(row.trainings),
            percent(row.mean),
            f"{row.interval.low * 100:.0f} to {percent(row.interval.high)}"
            if row.interval
            else "-",
            ", ".join(str(rate) for rate in row.trainings.values()),
        )
        for row in results.rows
    ]
    note = (
        "The trainings are the unit of a recipe: the intervals hold for a new training and new "
        "starts, and are wider than those of a single training, which the last column shows "
        "(Wilson). Tasks count equally. A dot is the mean, a line its interval, a circle a "
        "training."
    )
    blocks: list[Content] = [Card([Table(columns, rows), Svg(chart)])]
    blocks += [Text(text, "quiet") for text in (note, *_notes(results))]
    if failures:
        missing: list[list[Content]] = [
            [Span(name, "bad"), f": {reason}"] for name, reason in failures.items()
        ]
        blocks += [Text("Trainings that are missing:"), Items(missing, "failures")]
    return blocks


def _compared(results: ExperimentResults, chart: str) -> list[Content]:
    if not results.differences:
        return []
    several = any(row.family > 1 for row in results.differences)
    columns = [
        Column("compared"),
        Column("task"),
        Column("difference", "points [95 %]", "number"),
        Column("posterior", kind="number", form=".2g"),
        *([Column("posterior, Holm", kind="number", form=".2g")] if several else []),
        Column("verdict", kind="wrap"),
    ]
    rows = [
        (
            f"{row.second} less {row.first}",
            row.task.replace("_", " "),
            difference_text(row.estimate),
            row.posterior,
            *([row.corrected if row.family > 1 else None] if several else []),
            row.verdict,
        )
        for row in results.differences
    ]
    note = (
        "All recipes were evaluated on the same starts, which are paired. Their trainings are "
        "independent, also with equal seeds."
        + " The posterior probability is corrected by Holm for the number of rows."
        * several
    )
    return [Card([Table(columns, rows), Svg(chart)]), Text(note, "quiet")]


def _charts(results: ExperimentResults) -> tuple[str, str, str]:
    """Returns the charts of rates, of differences and of learning curves; empty: there is none."""
    # matplotlib takes half a second, so it is not imported at the start of the command.
    from stringline.sim.report.charts import EstimateRow, curves_chart, estimates_chart

    several = len({row.task for row in results.rows}) > 1
    rates = [
        EstimateRow(
            f"{row.recipe}: {row.task}" if several else row.recipe,
            row.mean,
            *(row.interval or (row.mean, row.mean)),
            tuple(rate.value for rate in row.trainings.values()),
        )
        for row in results.rows
    ]
    differences = [
        EstimateRow(
            f"{row.second} less {row.first}" + f": {row.task}" * several,
            row.estimate.value,
            *row.estimate.interval,
        )
        for row in results.differences
    ]
    compared = estimates_chart(differences, "differences", differences=True) if differences else ""
    curves: dict[str, list[LearningCurve]] = {}
    for cell in results.evaluations:
        curve = learning_curve(cell.training / "checkpoint")
        curves.setdefault(cell.label, []).append(curve)
    return estimates_chart(rates, "recipes"), compared, curves_chart(curves)


def _rounds_chart(results: ExperimentResults) -> str:
    """Returns the chart of the success over the rounds of corrections, over all tasks."""
    from stringline.sim.report.charts import RoundPoint, rounds_chart

    last = results.rows[-1].task
    rows = {row.recipe: row for row in results.rows if row.task == last}
    curves: dict[str, list[RoundPoint]] = {}
    for cell in {cell.label: cell for cell in results.evaluations}.values():
        row = rows[cell.label]
        rates = tuple(rate.value for rate in row.trainings.values())
        low, high = row.interval or (row.mean, row.mean)
        curves.setdefault(cell.recipe, []).append(
            RoundPoint(cell.round, row.mean, low, high, rates)
        )
    return rounds_chart({name: sorted(points) for name, points in curves.items()})


def _notes(results: ExperimentResults) -> list[str]:
    lone = [row.recipe for row in results.rows if row.interval is None]
    if not lone:
        return results.notes
    return [
        *results.notes,
        f"{', '.join(dict.fromkeys(lone))}: a single training shows nothing of how much trainings "
        f"of a recipe differ, so there is no interval; use trainings=3 or more.",
    ]


def _cells(plan: ExperimentPlan, results: ExperimentResults, failures: Mapping[str, str]) -> Table:
    """Returns the table of trainings."""
    columns = [
        Column("recipe"),
        Column("seed"),
        Column("outcome", kind="wrap"),
        Column("report"),
        Column("commands"),
    ]
    rows = []
    for cell in plan.cells():
        stored = results.evaluations.get(cell)
        rates = [
            f"{sum(r.success for r in task.results.values())}/{len(task.results)} {task.name}"
            for task in (stored.tasks if stored else ())
        ]
        report = cell.evaluation / "report.html"
        commands = plan.round_commands(cell)
        rows.append(
            (
                cell.label,
                cell.seed,
                ", ".join(rates) or f"failed: {failures.get(cell.name, 'no results')}",
                Link(str(report.relative_to(plan.output)), "episodes and videos")
                if report.is_file()
                else "",
                Fold(
                    "commands",
                    Code("\n".join(shlex.join(command) for command in commands)),
                    label=f"Commands of {cell.name}",
                ),
            )
        )
    return Table(columns, rows, dense=True)
