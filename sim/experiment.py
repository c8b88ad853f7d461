"""The command `stringline-experiment`: trains and evaluates recipes several times, and compares.

The jobs are first the demonstrations, then all cells. With a time budget, the steps of the
trainings follow from measured speeds.
"""

import json
import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.contract.argument_checks import COUNT, POSITIVE
from stringline.datasets.files.atomic import exclusive, write_file
from stringline.sim.evaluate import INCOMPLETE, plain_settings
from stringline.sim.experiments.experiment_plan import (
    RECORD,
    Cell,
    ExperimentPlan,
    prepare,
    write_tasks,
)
from stringline.sim.experiments.experiment_results import ExperimentResults, experiment_report
from stringline.sim.experiments.recipes import with_recipes
from stringline.sim.report.report import write_report
from stringline.sim.rollout.cluster import LocalCluster
from stringline.sim.rollout.jobs import LOG, Job, JobCluster, Speed, measure

logger = logging.getLogger(__name__)


def run_experiment(plan: ExperimentPlan, cluster: JobCluster, parallel: int) -> dict[str, str]:
    """Runs everything that has not ended yet; a failed job does not stop the others.

    Returns:
        The reasons of failures by the name of the cell.
    """
    lost = collect_demonstrations(plan, cluster, parallel)
    failures: dict[str, str] = {}
    jobs: list[Job] = []
    recipes = {recipe.name: recipe for recipe in plan.recipes}
    for cell in plan.cells():
        if cell.round < cell.rounds:
            continue  # The job of the last round has the commands of all.
        needed = plan.collected(recipes[cell.recipe]).values()
        missing = [lost[folder] for folder in needed if folder in lost]
        if missing:
            failures[cell.name] = missing[0]
        else:
            jobs.append(plan.job(cell))
    failures |= {job.name: reason for job, reason in _run(jobs, cluster, parallel) if reason}
    return failures


def collect_demonstrations(
    plan: ExperimentPlan, cluster: JobCluster, parallel: int
) -> dict[Path, str]:
    """Records the demonstrations that are missing; returns reasons of failures by folder."""
    jobs = plan.collections()
    return {job.folder: reason for job, reason in _run(jobs, cluster, parallel) if reason}


def _run(jobs: Sequence[Job], cluster: JobCluster, parallel: int) -> Iterator[tuple[Job, str]]:
    """Runs the jobs that have not ended; yields each when it ends, with the reason of a failure."""
    waiting = [job for job in jobs if not job.finished]
    if len(waiting) < len(jobs):
        logger.info("%d of %d had ended before.", len(jobs) - len(waiting), len(jobs))
    if not waiting:
        return
    for job in waiting:
        logger.info("%s; its output is in %s.", job.name, _shown(job.folder / LOG))
    with closing(cluster.run_jobs(waiting, parallel)) as ended:
        for number, (job, reason) in enumerate(ended, 1):
            state = f"FAILED: {reason}" if reason else "has ended."
            log = logger.error if reason else logger.info
            log("%s %s (%d of %d)", job.name, state, number, len(waiting))
            yield job, reason


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


BUDGET = "budget.json"
SMALLEST_STEPS = 50
_MEASURED_STEPS = 12
_MARGIN = 0.95  # The rest is for validations, probes and the report.
_STEPS = "trainer.steps="


@dataclass(frozen=True)
class Budget:
    """The time of an experiment.

    Attributes:
        minutes: Duration of the whole experiment.
        started: When the experiment began, in seconds of `time.monotonic`.
    """

    minutes: float
    started: float

    def check(self, plan: ExperimentPlan, cluster: JobCluster, parallel: int) -> None:
        """Raises a ValueError for settings that a budget does not support."""
        POSITIVE.check(minutes=self.minutes)
        given = [*plan.train, *(each for recipe in plan.recipes for each in recipe.train)]
        steps = next((each for each in given if each.startswith(_STEPS)), None)
        if steps is not None:
            raise ValueError(f"minutes sets trainer.steps, so omit {steps} or minutes.")
        if not isinstance(cluster, LocalCluster) or parallel != 1:
            raise ValueError(
                "minutes needs cluster=local and parallel=1, so that trainings run one by one."
            )
        if plan.suite is not None and plan.seeds is None:
            raise ValueError("minutes needs the number of starts of the suite, such as seeds=20.")

    def planned(self, plan: ExperimentPlan) -> ExperimentPlan:
        """Returns the plan with the number of steps of its trainings.

        All trainings have the same number. A continued experiment has that of its beginning.

        Raises:
            ValueError: The budget is too short, the folder holds an experiment with another
                budget, or a collection, training or evaluation failed.
        """
        steps = self._stored(plan)
        if steps is None:
            write_tasks(plan)
            if reasons := collect_demonstrations(plan, LocalCluster(), 1):
                raise ValueError(next(iter(reasons.values())))
            steps = self._steps(plan)
            stored = {"minutes": self.minutes, "steps": steps}
            write_file(plan.output / BUDGET, json.dumps(stored).encode())
        return replace(plan, train=(*plan.train, f"{_STEPS}{steps}"))

    def _stored(self, plan: ExperimentPlan) -> int | None:
        """Returns the stored steps of an earlier run; None for a new folder."""
        file = plan.output / BUDGET
        if not file.is_file():
            if (plan.output / RECORD).is_file():
                raise ValueError(
                    f"{plan.output} holds an experiment without minutes. Omit minutes, or choose "
                    f"another output."
                )
            return None
        stored = json.loads(file.read_text())
        if stored["minutes"] != self.minutes:
            raise ValueError(
                f"{plan.output} holds an experiment with minutes={stored['minutes']:g} (now "
                f"{self.minutes:g}). Choose another output."
            )
        steps: int = stored["steps"]
        logger.info("trainer.steps=%d, as in the first run.", steps)
        return steps

    def _steps(self, plan: ExperimentPlan) -> int:
        with TemporaryDirectory(dir=plan.output, ignore_cleanup_errors=True) as folder:
            trainings = _training_speeds(plan, Path(folder))
            evaluation = _evaluation_speed(plan, Path(folder))
            corrected_s = _corrections_s(plan, Path(folder)) if plan.rounds else 0.0
        cells = plan.cells()
        starts = plan.seeds or 50
        evaluated_s = len(cells) * (evaluation.start_s + starts * evaluation.each_s)
        fixed_s = evaluated_s + sum(trainings[cell.recipe].start_s for cell in cells)
        fixed_s += corrected_s * sum(cell.round > 0 for cell in cells)
        each_s = sum(trainings[cell.recipe].each_s for cell in cells)
        spent_s = time.monotonic() - self.started
        steps = int((60 * self.minutes * _MARGIN - spent_s - fixed_s) / each_s)
        each = f"{len(cells)} trainings of {{}} steps, {starts} starts each"
        if steps < SMALLEST_STEPS:
            least = math.ceil((spent_s + fixed_s + SMALLEST_STEPS * each_s) / 60 / _MARGIN)
            raise ValueError(
                f"minutes is {self.minutes:g}; the smallest useful experiment "
                f"({each.format(SMALLEST_STEPS)}) needs {least} minutes on this machine."
            )
        logger.info(
            "trainer.steps=%d: %s. The evaluations take up to %.0f minutes; fewer seeds and "
            "videos=false shorten them.",
            steps,
            each.format(steps),
            evaluated_s / 60,
        )
        return steps


def _training_speeds(plan: ExperimentPlan, folder: Path) -> Mapping[str, Speed]:
    """Measures the first steps of each recipe."""
    speeds = {}
    for recipe in plan.recipes:
        cell = Cell(recipe.name, 0, folder / recipe.name)
        command = (*plan.train_command(cell), f"{_STEPS}{_MEASURED_STEPS}")
        logger.info("Measuring the speed of the recipe %r.", recipe.name)
        started = time.monotonic()
        _run_job(Job(recipe.name, (command,), cell.folder, Path.cwd()))
        total_s = time.monotonic() - started
        rows = map(json.loads, (cell.training / "history.jsonl").read_text().splitlines())
        ends = [row["seconds"] for row in rows if "loss" in row]
        speeds[recipe.name] = Speed.of_training(total_s, ends)
    return speeds


def _evaluation_speed(plan: ExperimentPlan, folder: Path) -> Speed:
    """Measures the evaluation of a policy of few steps, whose episodes last the longest."""
    cell = Cell(plan.recipes[0].name, 0, folder / plan.recipes[0].name)
    done = [0]

    def evaluate(starts: int) -> None:
        command = replace(plan, seeds=starts).eval_command(cell)
        _run_job(Job("evaluation", (command,), cell.folder, Path.cwd()))
        done.append(starts)

    logger.info("Measuring the speed of the evaluation.")
    return measure(evaluate, lambda: done[-1], plan.workers or os.cpu_count() or 1)


def _corrections_s(plan: ExperimentPlan, folder: Path) -> float:
    """Measures the corrections of a round with a policy of few steps, in seconds."""
    cell = Cell(plan.recipes[0].name, 0, folder / plan.recipes[0].name, 1, 1)
    done = [0]

    def correct(episodes: int) -> None:
        few = replace(plan, corrections=episodes)
        commands = tuple(few.correct_command(cell, task) for task in plan.tasks)
        _run_job(Job("corrections", commands, cell.folder, Path.cwd()))
        done.append(episodes)

    logger.info("Measuring the speed of the corrections.")
    speed = measure(correct, lambda: done[-1], plan.workers or os.cpu_count() or 1)
    return speed.start_s + plan.corrections * speed.each_s


def _run_job(job: Job) -> None:
    """Runs a job; a failure is a ValueError with its reason."""
    if reason := job.run():
        raise ValueError(f"{job.name}: {reason}")


logger = logging.getLogger(__name__)


def main() -> None:
    """The command `stringline-experiment`; the exit code is 3 if a training failed."""
    repeat = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    sys.argv = with_recipes(sys.argv)
    run("experiment", partial(_experiment, repeat))


def _experiment(repeat: str, config: DictConfig) -> None:
    plain = plain_settings(config)
    COUNT.check(parallel=plain["parallel"])
    cluster = instantiate(config.cluster)
    plan = _within_minutes(ExperimentPlan.of(plain), plain, cluster)
    prepare(plan)
    with exclusive(plan.output):
        failures = run_experiment(plan, cluster, plain["parallel"])
        ended = [cell for cell in plan.cells() if plan.job(cell).finished]
        if ended:
            _publish(plan, ExperimentResults.of(ended), failures, repeat, plain)
    for name, reason in failures.items():
        logger.error("%s FAILED: %s", name, reason)
    if failures:
        logger.error("%d of %d trainings failed.", len(failures), len(plan.cells()))
        raise SystemExit(INCOMPLETE)


def _within_minutes(
    plan: ExperimentPlan, plain: Mapping[str, Any], cluster: JobCluster
) -> ExperimentPlan:
    """Returns the plan with the steps of a time budget, if there is one."""
    if plain["minutes"] is None:
        return plan
    budget = Budget(plain["minutes"], time.monotonic())
    budget.check(plan, cluster, plain["parallel"])
    plan.output.mkdir(parents=True, exist_ok=True)
    with exclusive(plan.output):
        return budget.planned(plan)


def _publish(
    plan: ExperimentPlan,
    results: ExperimentResults,
    failures: Mapping[str, str],
    repeat: str,
    plain: Mapping[str, Any],
) -> None:
    """Writes summary and page, and prints the table."""
    summary = {"settings": plain, **results.to_dict(), "failures": failures}
    write_file(plan.output / "summary.json", json.dumps(summary, indent=1).encode())
    page = plan.output / "report.html"
    write_report(page, experiment_report(plan, results, failures, [repeat]))
    sys.stdout.write(f"{results.table()}\n")
    sys.stdout.flush()
    logger.info("Open the report: %s", page.resolve().as_uri())
