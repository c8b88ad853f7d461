"""The command `stringline-compare`: compares evaluations or checkpoints on the same seeds.

It compares runs of `stringline-perceive` as well.
"""

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
from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.files.atomic import exclusive, made_folder, write_file
from stringline.encoders.perception.run_comparison import (
    PerceptionRun,
    RecipeDifference,
    compare_runs,
    is_of_perception,
)
from stringline.encoders.training.checkpoint import DESCRIPTION
from stringline.policies.checkpoints.load import find_checkpoint
from stringline.sim.evaluate import (
    INCOMPLETE,
    evaluate_checkpoint,
    evaluation_settings,
    plain_settings,
)
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation, run_suite
from stringline.sim.evaluation.comparison import (
    Comparison,
    Seeds,
    entry_seeds,
    until_decided,
    with_entry_seeds,
)
from stringline.sim.evaluation.stored_evaluations import (
    StoredEvaluation,
    condition_name,
    is_evaluation,
    read_evaluation,
    requested_results,
)
from stringline.sim.evaluation.suites import Suite, check_overrides, chosen_suite, with_suites
from stringline.sim.report.report import write_report
from stringline.sim.report.run_reports import comparison_report
from stringline.sim.statistics.paired import holm

logger = logging.getLogger(__name__)

DECIDED = "decided"
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
    if any(is_of_perception(Path(path)) for path in paths):
        check_perception_options(overrides)
        compare_perception(names, paths, baseline, plain["measure"], output)
        return
    _check_evaluations(paths, plain["measure"])
    sequential = _stops_when_decided(plain, paths)
    suite = chosen_suite(plain, overrides)
    named = list(zip(names, paths, strict=True))
    with made_folder(output), exclusive(output):
        compare = _until_decided if sequential else _at_once
        comparison, complete = compare(named, plain, suite, baseline)
        write_file(output / "compare.json", json.dumps(comparison.to_dict(), indent=1).encode())
        report = comparison_report(comparison, dict(named), repeat)
        write_report(output / "compare.html", report)
    sys.stdout.write(f"{comparison.table()}\n")
    sys.stdout.flush()
    logger.info("Open the report: %s", (output / "compare.html").resolve().as_uri())
    if not complete:
        raise SystemExit(INCOMPLETE)


def _stops_when_decided(plain: Mapping[str, Any], paths: Sequence[str]) -> bool:
    """Returns whether seeds are collected until a decision; only checkpoints can get more."""
    if plain["stop_when"] is None:
        return False
    if plain["stop_when"] != DECIDED:
        raise unknown_name("stop_when", str(plain["stop_when"]), [DECIDED])
    for path in paths:
        if is_evaluation(Path(path)):
            raise ValueError(
                f"stop_when={DECIDED} runs more episodes while they are needed, but {path} is a "
                f"finished evaluation. List checkpoints, or omit stop_when."
            )
    COUNT.check(round_seeds=plain["round_seeds"])
    return True


def _at_once(
    named: Sequence[tuple[str, str]],
    plain: Mapping[str, Any],
    suite: Suite | None,
    baseline: str | None,
) -> tuple[Comparison, bool]:
    """Returns the comparison on all seeds, and whether every evaluation is complete."""
    stored, complete = _evaluations(named, plain, suite)
    return Comparison.of(stored, seeds=plain["seeds"], baseline=baseline), complete


def _until_decided(
    named: Sequence[tuple[str, str]],
    plain: Mapping[str, Any],
    suite: Suite | None,
    baseline: str | None,
) -> tuple[Comparison, bool]:
    """Returns the sequential comparison, and whether every evaluation is complete."""
    completes: list[bool] = []

    def compare(seeds: Seeds) -> Comparison:
        if suite is None:
            (taken,) = seeds.values()
            stored, complete = _evaluations(named, {**plain, "seeds": len(taken)}, None)
        else:
            stored, complete = _evaluations(named, plain, with_entry_seeds(suite, seeds))
        completes.append(complete)
        chosen = [evaluation.only_seeds(seeds) for evaluation in stored]
        return Comparison.of(chosen, baseline=baseline, sequential=True)

    available = _task_seeds(plain) if suite is None else entry_seeds(suite)
    comparison = until_decided(available, plain["round_seeds"], compare)
    return comparison, all(completes)


def _task_seeds(plain: Mapping[str, Any]) -> Seeds:
    """Returns the seeds of a single task by its name."""
    settings = evaluation_settings(plain)
    task = settings.task
    return {condition_name(task.name, task.options): settings.task_seeds()}


def _evaluations(
    named: Sequence[tuple[str, str]], plain: Mapping[str, Any], suite: Suite | None
) -> tuple[list[StoredEvaluation], bool]:
    """Returns all evaluations, and whether every one is complete."""
    runs = [_stored(name, path, plain, suite) for name, path in named]
    return [evaluation for evaluation, _ in runs], all(complete for _, complete in runs)


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns the different parts of paths: `a` and `b` of `runs/a/best` and `runs/b/best`."""
    parts = [[part for part in path.split("/") if part not in ("", ".")] for path in paths]
    while all(len(part) > 1 for part in parts) and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    while all(len(part) > 1 for part in parts) and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    return ["/".join(part) for part in parts]


def _check_evaluations(paths: Sequence[str], measure: str | None) -> None:
    """Checks the paths of evaluations and checkpoints of policies."""
    if measure is not None:
        raise ValueError(f"measure={measure} has no effect on evaluations of policies; omit it.")
    for path in paths:
        _check(path)


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
        return requested_results(name, {folder: settings.task_seeds()}), True
    outcomes = run_suite(suite, CheckpointEvaluation(settings), folder, chosen)
    complete = [outcome.entry for outcome in outcomes if not outcome.failure]
    stored = requested_results(name, {folder / entry.name: entry.seeds for entry in complete})
    return stored, len(complete) == len(outcomes)


def compare_perception(
    names: Sequence[str],
    paths: Sequence[str],
    baseline: str | None,
    measure: str | None,
    output: Path,
) -> None:
    """Compares runs and writes compare.json; runs of one name are trainings of one recipe."""
    runs = [PerceptionRun.read(name, Path(path)) for name, path in zip(names, paths, strict=True)]
    differences = compare_runs(runs, baseline, measure)
    unit = str(runs[0].results["unit"])
    corrected = holm([one.found.p for one in differences])
    with made_folder(output), exclusive(output):
        plain = [
            one.to_dict() | {"p_holm": p} for one, p in zip(differences, corrected, strict=True)
        ]
        write_file(output / "compare.json", json.dumps(plain, indent=1).encode())
        (output / "compare.html").unlink(missing_ok=True)  # Of an earlier comparison.
    sys.stdout.write(perception_table(differences, corrected, unit))


def perception_table(
    differences: Sequence[RecipeDifference], corrected: Sequence[float], unit: str
) -> str:
    """Returns a line per difference, with corrected p values from 0.0001 on, as text."""
    lines = []
    for one, p in zip(differences, corrected, strict=True):
        found = one.found
        single = [
            name
            for name, count in zip((one.first, one.second), one.trainings, strict=True)
            if count == 1
        ]
        lines.append(
            f"{one.first} less {one.second}: {one.measure} {found.value:+.4f} "
            f"[{found.low:+.4f}, {found.high:+.4f}], p {max(p, 0.0001):.2g} (Holm); "
            f"{one.values[0]:.4f} and {one.values[1]:.4f}. {found.groups} {unit}, "
            f"{_number(found.needed_groups)} for a verdict; {one.trainings[0]} and "
            f"{one.trainings[1]} trainings, {_number(found.needed_seeds)} of each for a verdict."
            + (f" One training says nothing about others of {' and '.join(single)}." * bool(single))
        )
    return "\n".join(lines) + "\n"


def _number(needed: int | None) -> str:
    return "no number" if needed is None else f"{needed:,}"


def check_perception_options(overrides: Sequence[str]) -> None:
    """Refuses options of evaluations, which runs of perception do not read."""
    read = ("runs", "names", "baseline", "measure", "output")
    for override in overrides:
        key = override.split("=")[0].lstrip("+~")
        if key not in read:
            raise ValueError(
                f"{override} has no effect on runs of stringline-perceive; allowed: "
                f"{', '.join(read)}."
            )
