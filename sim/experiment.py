"""The command `stringline-experiment`: trains and evaluates recipes several times, and compares."""

import json
import logging
import shlex
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.files.atomic import exclusive, write_file
from stringline.sim.evaluate import INCOMPLETE, plain_settings
from stringline.sim.experiments.experiment_plan import ExperimentPlan, prepare
from stringline.sim.experiments.experiment_results import ExperimentResults, experiment_report
from stringline.sim.experiments.experiment_run import Budget, run_experiment
from stringline.sim.experiments.recipes import with_recipes
from stringline.sim.report.report import write_report
from stringline.sim.rollout.jobs import JobCluster

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
