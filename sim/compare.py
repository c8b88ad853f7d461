"""`stringline-compare`: two or more policies on the same seeds, from finished evaluations or from checkpoints."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from stringline.datasets.command.application import run
from stringline.datasets.files.atomic import write_file
from stringline.datasets.files.lock import exclusive
from stringline.encoders.training.checkpoint import DESCRIPTION
from stringline.policies.checkpoints.load import find_checkpoint
from stringline.sim.evaluate import (
    INCOMPLETE,
    checkpoint_evaluation,
    chosen_suite,
    evaluate_checkpoint,
    plain_settings,
    with_suite_file,
)
from stringline.sim.evaluation.checkpoint_evaluation import refuse_as_trained
from stringline.sim.evaluation.comparison import Comparison
from stringline.sim.evaluation.stored_evaluations import FinishedRun, is_finished, read_run
from stringline.sim.evaluation.suite_run import run_suite

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
    """The command `stringline-compare`; its exit code is 3 when an entry of a suite could not be evaluated.

    Arguments without `=` are what is compared.
    """
    sys.argv = with_compared(with_suite_file(sys.argv))
    run("compare", _compare)


def with_compared(arguments: Sequence[str]) -> list[str]:
    """Returns a command line in which what is compared is the option `runs`."""
    named: list[str] = []
    rest = list(arguments[:1])
    for before, argument in pairwise(arguments):
        belongs = (
            "=" not in argument and not argument.startswith("-") and before not in _FLAGS_WITH_VALUE
        )
        (named if belongs else rest).append(argument)
    quoted = ",".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in named)
    return [rest[0], f"runs=[{quoted}]", *rest[1:]] if named else rest


def _compare(config: DictConfig) -> None:
    settings = plain_settings(config)
    overrides = HydraConfig.get().overrides.task
    refuse_as_trained(overrides)
    given = [str(path) for path in settings["runs"]]
    output = Path(str(settings["output"]))
    names = [str(name) for name in settings["names"] or short_names(given)]
    baseline = dict(zip(given, names, strict=False)).get(settings["baseline"], settings["baseline"])
    if settings["checkpoint"] is not None:
        raise ValueError(
            "checkpoint=... has no meaning here. Name checkpoints one after the other: "
            "stringline-compare A B"
        )
    if len(names) != len(given) or len(given) < 2:
        raise ValueError(
            f"Got {len(given)} to compare and {len(names)} names; allowed: two or more, and as "
            f"many names."
        )
    for path in given:
        _check(path)
    output.mkdir(parents=True, exist_ok=True)
    with exclusive(output):
        runs = [
            _run(name, path, settings, overrides) for name, path in zip(names, given, strict=True)
        ]
        comparison = Comparison.of(
            [found for found, _ in runs], seeds=settings["seeds"], baseline=baseline
        )
        write_file(output / "compare.json", json.dumps(comparison.to_dict(), indent=1).encode())
        write_file(output / "compare.html", comparison.section().encode())
    sys.stdout.write(f"{comparison.table()}\n")
    sys.stdout.flush()
    logger.info("Written: %s and compare.html", output / "compare.json")
    if not all(complete for _, complete in runs):
        raise SystemExit(INCOMPLETE)


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns what tells paths apart: `a` and `b` for `runs/a/checkpoint` and `runs/b/checkpoint`."""
    parts = [[part for part in path.split("/") if part not in ("", ".")] for path in paths]
    while all(len(part) > 1 for part in parts) and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    while all(len(part) > 1 for part in parts) and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    return ["/".join(part) for part in parts]


def _check(path: str) -> None:
    """Refuses what is neither an evaluation nor a checkpoint, before anything is run."""
    if is_finished(Path(path)):
        return
    try:
        found = (find_checkpoint(path) / DESCRIPTION).is_file()
    except ValueError as error:
        raise ValueError(
            f"{path} is no finished evaluation (a folder with results.jsonl, or such a file). "
            f"{error}"
        ) from error
    if not found:
        raise ValueError(
            f"{path} is neither a finished evaluation (results.jsonl) nor a checkpoint "
            f"({DESCRIPTION})."
        )


def _run(
    name: str, path: str, settings: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[FinishedRun, bool]:
    """Returns the results of an evaluation or of a checkpoint, which is measured now, and whether nothing failed."""
    if is_finished(Path(path)):
        return read_run(name, Path(path)), True
    folder = Path(settings["output"]) / path.strip("/.").replace("/", "_")
    chosen = {**settings, "checkpoint": path, "output": str(folder)}
    suite = chosen_suite(settings, overrides)
    logger.info("%s is a checkpoint; it is measured in %s.", name, folder)
    if suite is None:
        evaluate_checkpoint(chosen)
        return read_run(name, folder), True
    outcomes = run_suite(suite, checkpoint_evaluation(chosen), folder, chosen)
    return read_run(name, folder), not any(outcome.failure for outcome in outcomes)
