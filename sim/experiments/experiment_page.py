"""The page of an experiment."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stringline.datasets.files.templates import template_environment
from stringline.sim.experiments.experiment_plan import Cell, ExperimentPlan
from stringline.sim.experiments.experiment_results import (
    ExperimentResults,
    difference_text,
    percent,
)
from stringline.sim.report.learning_curve import LearningCurve, learning_curve
from stringline.sim.report.report import Report
from stringline.sim.report.side_by_side import side_by_side
from stringline.sim.report.system_info import package_versions, system_info


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
        first.setdefault(cell.recipe, cell)
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
        comparison=_sections(plan, results, failures),
        commands=commands,
        kind="recipe",
    )


def _sections(plan: ExperimentPlan, results: ExperimentResults, failures: Mapping[str, str]) -> str:
    environment = template_environment(Path(__file__).parent / "assets")
    return environment.get_template("experiment.html.jinja").render(
        results=results,
        failures=failures,
        notes=_notes(results),
        cells=[_cell(plan, cell, results, failures) for cell in plan.cells()],
        several=any(row.family > 1 for row in results.differences),
        percent=percent,
        difference_text=difference_text,
        **_charts(results),
    )


def _charts(results: ExperimentResults) -> dict[str, str]:
    # matplotlib takes half a second, so it is not imported at the start of the command.
    from stringline.sim.report.comparison_charts import EstimateRow, curves_chart, estimates_chart

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
        curves.setdefault(cell.recipe, []).append(curve)
    return {
        "rates_chart": estimates_chart(rates, "recipes"),
        "differences_chart": compared,
        "curves_chart": curves_chart(curves),
    }


def _notes(results: ExperimentResults) -> list[str]:
    lone = [row.recipe for row in results.rows if row.interval is None]
    if not lone:
        return results.notes
    return [
        *results.notes,
        f"{', '.join(dict.fromkeys(lone))}: a single training shows nothing of how much trainings "
        f"of a recipe differ, so there is no interval; use trainings=3 or more.",
    ]


def _cell(
    plan: ExperimentPlan, cell: Cell, results: ExperimentResults, failures: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the row of a cell in the table of trainings."""
    stored = results.evaluations.get(cell)
    rates = [
        f"{sum(r.success for r in task.results.values())}/{len(task.results)} {task.name}"
        for task in (stored.tasks if stored else ())
    ]
    report = cell.evaluation / "report.html"
    return {
        "recipe": cell.recipe,
        "seed": cell.seed,
        "outcome": ", ".join(rates) or f"failed: {failures.get(cell.name, 'no results')}",
        "report": str(report.relative_to(plan.output)) if report.is_file() else "",
        "commands": [
            shlex.join(command) for command in (plan.train_command(cell), plan.eval_command(cell))
        ],
    }
