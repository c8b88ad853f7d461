"""The command `stringline-compare`: compares evaluations or checkpoints on the same seeds."""

import json
import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.lock import exclusive
from stringline.datasets.files.made_folder import made_folder
from stringline.encoders.training.checkpoint import DESCRIPTION
from stringline.policies.checkpoints.load import find_checkpoint
from stringline.sim.evaluate import (
    INCOMPLETE,
    evaluate_checkpoint,
    evaluation_settings,
    plain_settings,
)
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation, check_overrides
from stringline.sim.evaluation.comparison import Comparison
from stringline.sim.evaluation.stored_evaluations import (
    StoredEvaluation,
    is_evaluation,
    read_evaluation,
)
from stringline.sim.evaluation.suite_choices import chosen_suite, with_suites
from stringline.sim.evaluation.suite_run import run_suite
from stringline.sim.evaluation.suites import Suite
from stringline.sim.report.comparison_report import comparison_report
from stringline.sim.report.report import write_report

logger = logging.getLogger(__name__)

_FLAGS_WITH_VALUE = (
    "--cfg",
    "-c",
    "--package",
    "-p",
    "--config-dir",
    "-cd",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
)


def main() -> None:
    """The command `stringline-compare`; the exit code is 3 if an entry of a suite failed.

    Arguments without `=` are the paths to compare.
    """
    repeat = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    sys.argv = with_compared(with_suites(sys.argv))
    run("compare", partial(_compare, repeat))


def with_compared(arguments: Sequence[str]) -> list[str]:
    """Returns a command line with the paths to compare as the override `runs`."""
    named: list[str] = []
    rest = list(arguments[:1])
    for before, argument in pairwise(arguments):
        is_path = (
            "=" not in argument and not argument.startswith("-") and before not in _FLAGS_WITH_VALUE
        )
        (named if is_path else rest).append(argument)
    quoted = ",".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in named)
    return [rest[0], f"runs=[{quoted}]", *rest[1:]] if named else rest


def _compare(repeat: str, config: DictConfig) -> None:
    plain = plain_settings(config)
    overrides = HydraConfig.get().overrides.task
    check_overrides(overrides)
    paths = [str(path) for path in plain["runs"]]
    output = Path(str(plain["output"]))
    names = [str(name) for name in plain["names"] or short_names(paths)]
    baseline = dict(zip(paths, names, strict=False)).get(plain["baseline"], plain["baseline"])
    if plain["checkpoint"] is not None:
        raise ValueError(
            "checkpoint=... has no effect here. List the checkpoints: stringline-compare A B"
        )
    if len(names) != len(paths) or len(paths) < 2:
        raise ValueError(
            f"Got {len(paths)} paths and {len(names)} names; allowed: two or more paths, and as "
            f"many names."
        )
    for path in paths:
        _check(path)
    suite = chosen_suite(plain, overrides)
    with made_folder(output), exclusive(output):
        runs = [_stored(name, path, plain, suite) for name, path in zip(names, paths, strict=True)]
        stored = [evaluation for evaluation, _ in runs]
        comparison = Comparison.of(stored, seeds=plain["seeds"], baseline=baseline)
        write_file(output / "compare.json", json.dumps(comparison.to_dict(), indent=1).encode())
        report = comparison_report(comparison, dict(zip(names, paths, strict=True)), repeat)
        write_report(output / "compare.html", report)
    sys.stdout.write(f"{comparison.table()}\n")
    sys.stdout.flush()
    logger.info("Open the report: %s", (output / "compare.html").resolve().as_uri())
    if not all(complete for _, complete in runs):
        raise SystemExit(INCOMPLETE)


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns the different parts of paths: `a` and `b` of `runs/a/best` and `runs/b/best`."""
    parts = [[part for part in path.split("/") if part not in ("", ".")] for path in paths]
    while all(len(part) > 1 for part in parts) and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    while all(len(part) > 1 for part in parts) and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    return ["/".join(part) for part in parts]


def _check(path: str) -> None:
    """Checks that a path is an evaluation or a checkpoint, before any episode is run."""
    if is_evaluation(Path(path)):
        return
    try:
        found = (find_checkpoint(path) / DESCRIPTION).is_file()
    except ValueError as error:
        raise ValueError(
            f"{path} is not an evaluation (a folder with results.jsonl, or such a file). {error}"
        ) from error
    if not found:
        raise ValueError(
            f"{path} is neither an evaluation (results.jsonl) nor a checkpoint ({DESCRIPTION})."
        )


def _stored(
    name: str, path: str, plain: Mapping[str, Any], suite: Suite | None
) -> tuple[StoredEvaluation, bool]:
    """Returns the results of an evaluation, if need be run now, and whether they are complete."""
    if is_evaluation(Path(path)):
        return read_evaluation(name, Path(path)), True
    folder = Path(plain["output"]) / path.strip("/.").replace("/", "_")
    chosen = {**plain, "checkpoint": path, "output": str(folder)}
    settings = evaluation_settings(chosen)
    logger.info("%s is a checkpoint; its evaluation is in %s.", name, folder)
    if suite is None:
        evaluate_checkpoint(settings)
        return read_evaluation(name, folder), True
    outcomes = run_suite(suite, CheckpointEvaluation(settings), folder, chosen)
    return read_evaluation(name, folder), not any(outcome.failure for outcome in outcomes)
