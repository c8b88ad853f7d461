"""Evaluation of success in simulation during training, if wished in another process meanwhile."""

import copy
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from stringline.datasets.contract.argument_checks import COUNT, WHOLE, Range, unknown_name
from stringline.datasets.files.atomic import replaced_directory, write_file
from stringline.policies.checkpoints.load import CPU, checked_device
from stringline.policies.execution.execution import Execution
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation, RunSettings
from stringline.sim.evaluation.results import OtherEvaluationError, Summary
from stringline.sim.evaluation.suites import Suite, evaluation_seeds
from stringline.sim.robots.arm_appearance import PRIMITIVES, RobotModel, check_robot_model
from stringline.sim.rollout.workers import end_with_parent, start_child
from stringline.sim.statistics.intervals import Rate
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_versions import task_options

logger = logging.getLogger(__name__)

# The best checkpoint is chosen by its success on these seeds, so no result is reported on them.
SELECTION_SEED = 2_000_000
SETTINGS = ("seeds", "first_seed", "execute_steps", "workers", "plan_batch", "device", "background")


class TrainingEvaluation:
    """Evaluates the latest checkpoint of a run on tasks; an interrupted evaluation continues.

    The results are those of `stringline-eval`, in `evaluations/step_<n>` of the run, for several
    tasks with a folder for each.

    Args:
        checkpoint: Folder of the checkpoint at the time of the call; `of` evaluates another one.
        folder: Folder of all evaluations of the run.
        task: The task, or a suite on its own seeds.
        seeds: Number of seeds of a single task.
        first_seed: First seed of a single task.
        execute_steps: Control periods between two plans; if None, whole chunks.
        workers: Number of parallel worlds; 0 takes one per processor.
        execution: Blending and delay of plans; if None, a receding horizon without delay.
        device: Where the policy computes; see `RunSettings`.
        plan_batch: Observations that it answers at once; see `RunSettings`.
        background: Whether the training goes on meanwhile, see `ProcessEvaluation`.
    """

    def __init__(
        self,
        checkpoint: Path,
        folder: Path,
        task: TaskSettings | Suite,
        *,
        seeds: int = 10,
        first_seed: int = SELECTION_SEED,
        execute_steps: int | None = 24,
        workers: int = 2,
        robot_model: RobotModel = PRIMITIVES,
        execution: Execution | None = None,
        device: str = CPU,
        plan_batch: int = 1,
        background: bool = False,
    ) -> None:
        # Checks at the first evaluation would come hours later.
        steps = 1 if execute_steps is None else execute_steps
        _check(COUNT, seeds=seeds, execute_steps=steps, plan_batch=plan_batch)
        _check(WHOLE, first_seed=first_seed, workers=workers)
        if not isinstance(background, bool):
            raise ValueError(f"evaluation.background is {background!r}; allowed: true or false.")
        checked_device(device)
        check_robot_model(robot_model)
        self.folder = folder
        self.background = background
        self._parts = _parts(task, seeds, first_seed)
        self._settings = RunSettings(
            checkpoint=checkpoint,
            execute_steps=execute_steps,
            execution=execution or Execution(),
            workers=workers,
            videos=False,
            robot_model=robot_model,
            device=device,
            plan_batch=plan_batch,
        )

    def of(self, checkpoint: Path) -> Self:
        """Returns the same evaluation of another checkpoint."""
        other = copy.copy(self)
        other._settings = replace(self._settings, checkpoint=checkpoint)
        return other

    def in_background(self, latest: Path, best: Path) -> "ProcessEvaluation":
        """Returns the same evaluations in other processes; see `ProcessEvaluation`."""
        return ProcessEvaluation(self, latest, best)

    def options(self) -> list[dict[str, object]]:
        """Returns task, version, frame rate and meshes of each task, for `TrainingRecord.warn`."""
        model = self._settings.robot_model
        return [{**task_options(part.task), "robot.model": model} for part in self._parts]

    def __call__(self, steps_done: int) -> dict[str, float]:
        """Returns the metrics of `success_of`."""
        folder = self.folder / f"step_{steps_done:08d}"
        threads = torch.get_num_threads()
        try:
            rates = self._rates(folder)
        # Evaluation uses one thread; another number would change the rounding of the training.
        finally:
            torch.set_num_threads(threads)
        for part in self._parts:
            name = part.name or part.task.name
            logger.info("After step %d: success %s on %s.", steps_done, rates[part.name], name)
        return success_of(rates)

    def _rates(self, folder: Path) -> dict[str, Rate]:
        # The training has compared the settings with its data.
        evaluation = CheckpointEvaluation(self._settings, warn=False)
        return {part.name: _rate(evaluation, part, folder / part.name) for part in self._parts}


def _check(allowed: Range, **given: object) -> None:
    allowed.check(**{f"evaluation.{name}": value for name, value in given.items()})


@dataclass(frozen=True)
class _Part:
    """A task with its seeds; its name is the folder of its results below those of the step."""

    name: str
    task: TaskSettings
    seeds: Sequence[int]


def _parts(task: TaskSettings | Suite, seeds: int, first_seed: int) -> list[_Part]:
    if isinstance(task, TaskSettings):
        return [_Part("", task, evaluation_seeds(seeds, first_seed))]
    return [_Part(entry.name, entry.settings(), entry.seeds) for entry in task.entries]


def success_of(rates: Mapping[str, Rate]) -> dict[str, float]:
    """Returns `success`, the mean of the rates, and each rate that has a name, `success/<name>`.

    `successes`, `trials` and the Wilson 95 % interval `low` to `high` are those of all episodes
    together.
    """
    together = Rate(
        sum(rate.successes for rate in rates.values()), sum(rate.trials for rate in rates.values())
    )
    mean = sum(rate.value for rate in rates.values()) / len(rates)
    each = {f"success/{name}": rate.value for name, rate in rates.items() if name}
    return {"success": mean, **together.to_dict(), **each}


def _rate(evaluation: CheckpointEvaluation, part: _Part, folder: Path) -> Rate:
    try:
        results = evaluation.run(part.task, part.seeds, folder)
    # The run may have reached this step before with other weights, such as on another machine.
    except OtherEvaluationError:
        shutil.rmtree(folder)
        results = evaluation.run(part.task, part.seeds, folder)
    return Summary.of(results).rate


def training_evaluation(
    directory: Path,
    checkpoint: Path,
    task: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    *,
    robot_model: RobotModel = PRIMITIVES,
    execution: Execution | None = None,
    suite: Suite | None = None,
) -> TrainingEvaluation | None:
    """Reads the evaluation from the settings of `configs/train.yaml`; None without a task.

    The task is a choice of `configs/task`, a suite replaces it; the settings are those of
    `SETTINGS`.
    """
    for name in settings:
        if name not in SETTINGS:
            raise unknown_name("setting of evaluation", name, SETTINGS)
    chosen = TaskSettings.of(task) if suite is None and task is not None else suite
    if chosen is None:
        return None
    return TrainingEvaluation(
        checkpoint,
        directory / "evaluations",
        chosen,
        **settings,
        robot_model=robot_model,
        execution=execution,
    )


COPY = "checkpoint_"


class ProcessEvaluation:
    """Evaluates copies of the latest checkpoint; see `BackgroundEvaluation`.

    A copy is in `evaluations/checkpoint_<n>` of the run until its metrics are in the history, and
    the messages of the process are in `checkpoint_<n>.txt`.

    Attributes:
        begins: See `BackgroundEvaluation`.
    """

    def __init__(self, evaluation: TrainingEvaluation, latest: Path, best: Path) -> None:
        """Connects the evaluations with a run.

        Args:
            evaluation: The evaluation, of any checkpoint.
            latest: Folder of the latest checkpoint.
            best: Folder of the best checkpoint.
        """
        self.begins = evaluation.background
        self._evaluation = evaluation
        self._latest = latest
        self._best = best
        self._processes: dict[int, tuple[subprocess.Popen[bytes], int]] = {}
        self._failed: set[int] = set()

    def begun(self) -> Sequence[int]:
        """Returns the evaluations of which there is a copy."""
        copies = [path for path in self._evaluation.folder.glob(f"{COPY}*") if path.is_dir()]
        return sorted(int(path.name.removeprefix(COPY)) for path in copies)

    def start(self, done: int) -> None:
        """Copies the latest checkpoint, unless there is a copy, and starts a process."""
        copy = self._copy(done)
        copy.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(copy)
        if not copy.is_dir():
            _metrics_of(copy).unlink(missing_ok=True)
            _copy_checkpoint(self._latest, copy)
        if _metrics_of(copy).exists():
            return
        with copy.with_suffix(".txt").open("ab") as messages:
            process, lifeline = start_child(
                f"{__name__}:evaluate", stdin=subprocess.PIPE, output=messages
            )
        assert process.stdin
        with suppress(BrokenPipeError), process.stdin:  # It may have failed already.
            pickle.dump((self._evaluation.of(copy), done, _metrics_of(copy)), process.stdin)
        self._processes[done] = process, lifeline

    def has_ended(self, done: int) -> bool:
        """Returns whether the metrics are there; a process that has failed is reported once."""
        if _metrics_of(self._copy(done)).exists():
            return True
        if done in self._processes and self._processes[done][0].poll() is not None:
            self._report_failure(done)
        return False

    def metrics(self, done: int) -> Mapping[str, float]:
        """Waits for the process, and reads its metrics; if it has failed, evaluates here."""
        copy = self._copy(done)
        if done in self._processes:
            self._processes[done][0].wait()
            self._end(done)
        if _metrics_of(copy).exists():
            found: dict[str, float] = json.loads(_metrics_of(copy).read_text())
            return found
        self._report_failure(done)
        return self._evaluation.of(copy)(done)

    def keep_best(self, done: int) -> None:
        """Replaces the best checkpoint by the copy."""
        _copy_checkpoint(self._copy(done), self._best)

    def discard(self, done: int) -> None:
        """Removes the copy; the results of the episodes stay."""
        copy = self._copy(done)
        # If the run is killed here, no part of the copy may pass for the whole.
        hidden = copy.with_name(f".{copy.name}.old")
        shutil.rmtree(hidden, ignore_errors=True)
        copy.rename(hidden)
        _metrics_of(copy).unlink(missing_ok=True)
        shutil.rmtree(hidden)

    def close(self) -> None:
        """Ends the processes."""
        for done in list(self._processes):
            self._end(done)

    def _end(self, done: int) -> None:
        process, lifeline = self._processes.pop(done)
        os.close(lifeline)
        process.wait()

    def _report_failure(self, done: int) -> None:
        if done not in self._failed:
            self._failed.add(done)
            logger.warning(
                "The process that evaluates the checkpoint after step %d has failed, see %s. The "
                "run evaluates it when the next evaluation is due.",
                done,
                self._copy(done).with_suffix(".txt"),
            )

    def _copy(self, done: int) -> Path:
        return self._evaluation.folder / f"{COPY}{done:08d}"


def evaluate(lifeline: int) -> None:
    """Runs the evaluation that arrives on the standard input, and writes its metrics."""
    end_with_parent(lifeline)
    # From the training, which started this process.
    evaluation, done, file = pickle.load(sys.stdin.buffer)
    assert isinstance(evaluation, TrainingEvaluation)
    write_file(file, json.dumps(evaluation(done)).encode())


def _metrics_of(copy: Path) -> Path:
    return copy.with_suffix(".json")


def _remove_leftovers(copy: Path) -> None:
    """Removes what a killed run has left: parts of any copy, and unfinished metrics of this one."""
    for left in copy.parent.glob(f".{COPY}*"):
        if left.is_dir():
            shutil.rmtree(left)
    for left in copy.parent.glob(f".{_metrics_of(copy).name}.*"):
        left.unlink()


def _copy_checkpoint(source: Path, target: Path) -> None:
    with replaced_directory(target) as fresh:
        for file in source.iterdir():
            shutil.copyfile(file, fresh / file.name)
