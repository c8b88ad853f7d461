"""The record of an experiment in its folder, with which the same command continues it."""

import json
from collections.abc import Sequence
from typing import Any

from stringline.datasets.files.atomic import write_file
from stringline.sim.experiments.experiment_plan import ExperimentPlan

RECORD = "experiment.json"


def prepare(plan: ExperimentPlan) -> None:
    """Creates the folder of an experiment, or checks that it holds this experiment.

    Recipes, trainings and seeds of evaluations may be added.

    Raises:
        ValueError: A recipe or the evaluation differs from that of the folder.
    """
    file = plan.output / RECORD
    there = json.loads(file.read_text()) if file.is_file() else {}
    here = _record(plan)
    for name, recipe in here["recipes"].items():
        before = there.get("recipes", {}).get(name, recipe)
        if before != recipe:
            raise ValueError(
                f"The recipe {name!r} of {plan.output} was {_differing(before, recipe)}; now it is "
                f"{_differing(recipe, before)}. Trainings of different recipes are no replicates: "
                f"choose another name for it, or another output."
            )
    if there and there["evaluation"] != here["evaluation"]:
        raise ValueError(
            f"The evaluations of {plan.output} were {_text(there['evaluation'])}; now they are "
            f"{_text(here['evaluation'])}. Choose another output."
        )
    recipes = {**there.get("recipes", {}), **here["recipes"]}
    plan.output.mkdir(parents=True, exist_ok=True)
    write_file(file, json.dumps({**here, "recipes": recipes}, indent=1).encode())
    write_tasks(plan)


def write_tasks(plan: ExperimentPlan) -> None:
    """Writes the suite of an experiment with several tasks."""
    if len(plan.tasks) > 1:
        entries = [{"task": task} for task in plan.tasks]
        write_file(plan.suite_file, json.dumps({"entries": entries}, indent=1).encode())


def _record(plan: ExperimentPlan) -> dict[str, Any]:
    """Returns what decides the results, as plain JSON."""
    recipes: dict[str, list[str]] = {}
    for recipe in plan.recipes:
        commands = [plan.collect_command(recipe, task) for task in plan.collected(recipe)]
        collected = [
            part
            for command in commands
            for part in command[1:]
            if not part.startswith(("workers=", "output="))
        ]
        data = collected or [*plan.data(recipe)]
        recipes[recipe.name] = [*data, *plan.train, *recipe.train]
    first = [] if plan.first_seed is None else [f"first_seed={plan.first_seed}"]
    tasks = [f"task=[{','.join(plan.tasks)}]"] if len(plan.tasks) > 1 else plan.measured()
    return {"recipes": recipes, "evaluation": [*tasks, *first, *plan.evaluate]}


def _differing(overrides: Sequence[str], others: Sequence[str]) -> str:
    """Returns the overrides that the others lack; all of them if only their order differs."""
    same = sorted(overrides) == sorted(others)
    return _text([each for each in overrides if same or each not in others])


def _text(overrides: Sequence[str]) -> str:
    return f"[{', '.join(overrides)}]"
