"""Evaluation of success in simulation during training."""

import copy
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from stringline.datasets.contract.argument_checks import COUNT, WHOLE, Range, unknown_name
from stringline.policies.checkpoints.device import CPU, checked_device
from stringline.policies.execution.execution import Execution
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation, RunSettings
from stringline.sim.evaluation.results import OtherEvaluationError, Summary
from stringline.sim.evaluation.seed_runner import evaluation_seeds
from stringline.sim.evaluation.suites import Suite
from stringline.sim.robots.robot_model import PRIMITIVES, RobotModel, check_robot_model
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
        execute_steps: Control periods between two plans; None: whole chunks.
        workers: Number of parallel worlds; 0 takes one per processor.
        execution: Blending and delay of plans; None: a receding horizon without delay.
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
