"""`stringline-eval`: measures a checkpoint on seeds that no demonstration has, and writes results, videos and a report."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import run
from stringline.datasets.contract.arguments import COUNT, WHOLE
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.lock import exclusive
from stringline.policies.checkpoints.load import find_checkpoint, is_address
from stringline.policies.execution.execution import Execution
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation, refuse_as_trained
from stringline.sim.evaluation.results import EpisodeResult, Summary
from stringline.sim.evaluation.runner import EVALUATION_SEED, evaluation_seeds
from stringline.sim.evaluation.suite_run import run_suite
from stringline.sim.evaluation.suites import Suite
from stringline.sim.evaluation.text_tables import summaries_table
from stringline.sim.report.evaluation_report import suite_report, task_report
from stringline.sim.report.report import Report, write_report
from stringline.sim.robots.robot_model import PRIMITIVES
from stringline.sim.worlds.world_registry import demand_task_settings

logger = logging.getLogger(__name__)

INCOMPLETE = 3
SEEDS = 50


def main() -> None:
    """The command `stringline-eval`; its exit code is 3 when an entry of a suite could not be evaluated."""
    sys.argv = with_suite_file(sys.argv)
    run("eval", _evaluate)


def with_suite_file(arguments: Sequence[str]) -> list[str]:
    """Returns a command line in which `suite=PATH.yaml` is `suite_file=PATH.yaml`.

    `suite=NAME` is one of the suites that ship, a choice of a group; Hydra would look for a path
    among those.
    """
    return [
        f"suite_file={argument[6:]}"
        if argument.startswith("suite=") and argument.endswith((".yaml", ".yml"))
        else argument
        for argument in arguments
    ]


def _evaluate(config: DictConfig) -> None:
    plain = plain_settings(config)
    overrides = HydraConfig.get().overrides.task
    suite = chosen_suite(plain, overrides)
    output = Path(str(plain["output"]))
    refuse_as_trained(overrides)
    if not is_address(plain["checkpoint"]):
        find_checkpoint(str(plain["checkpoint"]))  # Who mistypes something finds no empty folder.
    if suite is None:
        demand_task_settings(plain["task"])
        chosen_seeds(plain)
    output.mkdir(parents=True, exist_ok=True)
    with exclusive(output):
        if suite is None:
            _evaluate_task(plain, output)
        else:
            _evaluate_suite(suite, plain, output)


def plain_settings(config: DictConfig) -> dict[str, Any]:
    """Returns a configuration as plain values.

    Raises:
        MissingMandatoryValue: A value is missing.
    """
    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items()}


def chosen_suite(settings: Mapping[str, Any], overrides: Sequence[str] = ()) -> Suite | None:
    """Returns the suite that a command line asks for, on the seeds that it asks for; None where it asks for a single task.

    Args:
        settings: With `suite` (a mapping) or `suite_file`, and `seeds` and `first_seed`, which may
            be None.
        overrides: The command line, `key=value`.

    Raises:
        ValueError: There is no such suite, it is none, or the command line also changes the task.
    """
    plain = settings.get("suite")
    file = settings.get("suite_file")
    if plain is None and file is None:
        return None
    if changed := [
        override
        for override in overrides
        if override.lstrip("+~").startswith(("task=", "task.", "shift="))
    ]:
        raise ValueError(
            f"{changed[0]} is for a single task. In a suite each entry has its own settings; "
            f"leave one of both away."
        )
    named = next(
        (override.partition("=")[2] for override in overrides if override.startswith("suite=")),
        "given",
    )
    suite = Suite.parse(named, plain) if file is None else Suite.read(Path(file))
    return suite.with_seeds(settings.get("seeds"), settings.get("first_seed"))


def checkpoint_evaluation(settings: Mapping[str, Any]) -> CheckpointEvaluation:
    """Loads the checkpoint of the settings of `configs/eval.yaml`."""
    return CheckpointEvaluation(
        settings["checkpoint"],
        execute_steps=settings["execute_steps"],
        execution=Execution.of(settings.get("execution")),
        workers=settings["workers"],
        videos=settings["videos"],
        cluster=instantiate(settings["cluster"]) if settings.get("cluster") else None,
        robot_model=settings.get("robot", {}).get("model", PRIMITIVES),
    )


def evaluate_checkpoint(settings: Mapping[str, Any]) -> list[EpisodeResult]:
    """Runs what is not yet done of an evaluation on a single task.

    Args:
        settings: Those of `configs/eval.yaml`, resolved.

    Returns:
        One result per seed.

    Raises:
        ValueError: The checkpoint, the task and the settings do not fit together.
    """
    return checkpoint_evaluation(settings).run(
        settings["task"], chosen_seeds(settings), Path(settings["output"])
    )


def chosen_seeds(settings: Mapping[str, Any]) -> list[int]:
    """Returns the seeds of an evaluation on a single task.

    Raises:
        ValueError: `seeds` or `first_seed` is no such number.
    """
    count = SEEDS if settings["seeds"] is None else settings["seeds"]
    first = EVALUATION_SEED if settings["first_seed"] is None else settings["first_seed"]
    COUNT.check(seeds=count)
    WHOLE.check(first_seed=first)
    return evaluation_seeds(count, first)


def _evaluate_task(settings: dict[str, Any], output: Path) -> None:
    evaluation = checkpoint_evaluation(settings)
    task = settings["task"]
    results = evaluation.run(task, chosen_seeds(settings), output)
    summary = Summary.of(results)
    write_file(
        output / "summary.json",
        json.dumps({"settings": settings, "summary": summary.to_dict()}, indent=1).encode(),
    )
    _tell(
        {task["name"]: summary},
        task_report(settings, evaluation.digest, evaluation.policy, results),
        output,
    )
    logger.info(
        "Success %s; %s ms per plan.",
        summary.rate,
        "-" if summary.inference_ms is None else f"{summary.inference_ms:.1f}",
    )


def _evaluate_suite(suite: Suite, settings: dict[str, Any], output: Path) -> None:
    asked = {
        key: value for key, value in settings.items() if key != "task"
    }  # That of a single task, which is not run.
    evaluation = checkpoint_evaluation(settings)
    outcomes = {
        outcome.cell.name: outcome for outcome in run_suite(suite, evaluation, output, asked)
    }
    failed = [name for name, outcome in outcomes.items() if outcome.failure]
    rows = {name: outcome.summary or outcome.failure for name, outcome in outcomes.items()}
    if len(failed) < len(outcomes):
        _tell(
            rows,
            suite_report(suite.name, settings, evaluation.digest, evaluation.policy, outcomes),
            output,
        )
    else:
        sys.stdout.write(f"{summaries_table(rows)}\n")
    if failed:
        logger.error(
            "%d of %d entries could not be evaluated: %s",
            len(failed),
            len(outcomes),
            ", ".join(failed),
        )
        raise SystemExit(INCOMPLETE)


def _tell(rows: Mapping[str, Summary | str], report: Report, output: Path) -> None:
    write_report(output / "report.html", report)
    sys.stdout.write(f"{summaries_table(rows)}\n")
    sys.stdout.flush()
    logger.info("Open the report: %s", (output / "report.html").resolve().as_uri())
