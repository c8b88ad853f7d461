"""The command `stringline-eval`: evaluates a checkpoint on unseen seeds."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import report_next, run
from stringline.datasets.files.atomic import exclusive, made_folder, write_file
from stringline.policies.checkpoints.load import CPU, find_checkpoint, is_address
from stringline.policies.execution.execution import Execution
from stringline.sim.evaluation.checkpoint_evaluation import (
    CheckpointEvaluation,
    EvaluationSettings,
    SuiteStatistics,
    run_suite,
)
from stringline.sim.evaluation.results import EpisodeResult, Summary, summaries_table
from stringline.sim.evaluation.suites import Suite, check_overrides, chosen_suite, with_suites
from stringline.sim.evaluation.trained_settings import (
    recorded_rule,
    task_override,
    with_trained_settings,
)
from stringline.sim.report.report import Report, write_report
from stringline.sim.report.run_reports import suite_report, task_report
from stringline.sim.robots.arm_appearance import PRIMITIVES
from stringline.sim.worlds.task_settings import TaskSettings, with_interpreter
from stringline.sim.worlds.world_registry import is_third_party

logger = logging.getLogger(__name__)

INCOMPLETE = 3
# Settings of `stringline-deploy` by embodiment.
EMULATED_ROBOTS = {
    "aloha": {"robot": "aloha_emulated"},
    "iiwa14": {"robot": "kuka_emulated"},
    "iiwa14_bimanual": {"robot": "kuka_emulated", "robot.arms": "two"},
}


def main() -> None:
    """The command `stringline-eval`; the exit code is 3 if an entry of a suite failed."""
    run("eval", _evaluate, complete=_completed)


def _completed(arguments: Sequence[str]) -> list[str]:
    """Returns a command line as Hydra reads it, with what the checkpoint recorded."""
    return with_trained_settings(with_suites(with_interpreter(arguments)))


def _evaluate(config: DictConfig) -> None:
    plain = plain_settings(config)
    overrides = HydraConfig.get().overrides.task
    check_no_recordings(overrides)
    suite = chosen_suite(plain, overrides)
    check_overrides(overrides)
    # Everything is checked before the first folder is made.
    settings = evaluation_settings(plain)
    if not is_address(settings.checkpoint):
        find_checkpoint(settings.checkpoint)
    if suite is None:
        settings.task_seeds()
    with made_folder(settings.output), exclusive(settings.output):
        if suite is None:
            _evaluate_task(settings, plain)
        else:
            _evaluate_suite(suite, settings, plain)


def check_no_recordings(overrides: Sequence[str]) -> None:
    """Raises a ValueError if an override `key=value` chooses recordings of a missing store."""
    for key in (override.lstrip("+~").partition("=")[0] for override in overrides):
        if key.startswith("dataset."):
            raise ValueError(f"{key} needs the store of the recordings: dataset=STORE.")


def plain_settings(config: DictConfig) -> dict[str, Any]:
    """Returns a configuration as plain values."""
    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items()}


def evaluation_settings(plain: Mapping[str, Any]) -> EvaluationSettings:
    """Reads the settings of `configs/eval.yaml`."""
    return EvaluationSettings(
        checkpoint=str(plain["checkpoint"]),
        output=Path(str(plain["output"])),
        task=TaskSettings.of(plain["task"]),
        execute_steps=plain["execute_steps"],
        execution=Execution.of(plain.get("execution")),
        seeds=plain["seeds"],
        first_seed=plain["first_seed"],
        suite_file=plain.get("suite_file"),
        tasks=tuple(plain.get("tasks") or ()),
        workers=plain["workers"],
        videos=plain["videos"],
        cluster=instantiate(plain["cluster"]) if plain.get("cluster") else None,
        robot_model=plain.get("robot", {}).get("model", PRIMITIVES),
        rendering=plain.get("rendering", "fast"),
        device=str(plain.get("device", CPU)),
        plan_batch=plain.get("plan_batch", 1),
    )


def evaluate_checkpoint(settings: EvaluationSettings) -> list[EpisodeResult]:
    """Returns one result per seed of a single task; stored results are not run again."""
    return CheckpointEvaluation(settings).run(settings.task, settings.task_seeds(), settings.output)


def _evaluate_task(settings: EvaluationSettings, plain: Mapping[str, Any]) -> None:
    evaluation = CheckpointEvaluation(settings)
    results = evaluation.run(settings.task, settings.task_seeds(), settings.output)
    summary = Summary.of(results)
    write_file(
        settings.output / "summary.json",
        json.dumps({"settings": plain, "summary": summary.to_dict()}, indent=1).encode(),
    )
    report = task_report(settings, evaluation.digest, evaluation.policy, results)
    _publish({settings.task.name: summary}, report, settings.output)
    logger.info(
        "Success %s; %s ms per plan.",
        summary.rate,
        "-" if summary.inference_ms is None else f"{summary.inference_ms:.1f}",
    )
    embodiment = evaluation.policy.contract.embodiment
    report_deployment(settings.checkpoint, settings.task.name, embodiment)


def report_deployment(checkpoint: str, task: str, embodiment: str) -> None:
    """Names the command that runs a checkpoint on emulated arms, if its task can run there."""
    robot = EMULATED_ROBOTS.get(embodiment)
    if robot is not None and not is_third_party(task):
        key, _, name = task_override(task).partition("=")
        report_next("stringline-deploy", {**robot, "checkpoint": checkpoint, key: name})


def _evaluate_suite(suite: Suite, settings: EvaluationSettings, plain: Mapping[str, Any]) -> None:
    record = {key: value for key, value in plain.items() if key != "task"}
    evaluation = CheckpointEvaluation(settings)
    suite = suite.with_rules(partial(recorded_rule, evaluation.record))
    suite = suite.with_embodiments(evaluation.record.embodiment)
    suite = suite.with_interpreter(settings.task.python, settings.task.answer_s)
    outcomes = run_suite(suite, evaluation, settings.output, record)
    failed = [outcome.entry.name for outcome in outcomes if outcome.failure]
    rows = {outcome.entry.name: outcome.summary or outcome.failure for outcome in outcomes}
    if len(failed) < len(outcomes):
        report = suite_report(suite.name, settings, evaluation.digest, evaluation.policy, outcomes)
        _publish(rows, report, settings.output, SuiteStatistics.of(outcomes).texts())
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


def _publish(
    rows: Mapping[str, Summary | str],
    report: Report,
    output: Path,
    statistics: Mapping[str, str] | None = None,
) -> None:
    """Writes the report and prints the table."""
    write_report(output / "report.html", report)
    sys.stdout.write(f"{summaries_table(rows, statistics)}\n")
    sys.stdout.flush()
    logger.info("Open the report: %s", (output / "report.html").resolve().as_uri())
