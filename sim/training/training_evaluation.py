"""Evaluation of success in simulation during training."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from stringline.datasets.contract.argument_checks import COUNT, WHOLE, unknown_name
from stringline.policies.execution.execution import Execution
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation, RunSettings
from stringline.sim.evaluation.results import OtherEvaluationError, Summary
from stringline.sim.evaluation.seed_runner import evaluation_seeds
from stringline.sim.robots.robot_model import PRIMITIVES, RobotModel, check_robot_model
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_versions import task_options

logger = logging.getLogger(__name__)

# The best checkpoint is chosen by its success on these seeds, so no result is reported on them.
SELECTION_SEED = 2_000_000
SETTINGS = ("seeds", "first_seed", "execute_steps", "workers")


class TrainingEvaluation:
    """Evaluates the latest checkpoint of a run on a task; an interrupted evaluation continues.

    The results, in `evaluations/step_<n>` of the run, are those of `stringline-eval`.

    Args:
        checkpoint: Folder of the checkpoint at the time of the call.
        folder: Folder of all evaluations of the run.
        execute_steps: Control periods between two plans; None: whole chunks.
        workers: Number of parallel worlds; 0 takes one per processor.
        execution: Blending and delay of plans; None: a receding horizon without delay.
    """

    def __init__(
        self,
        checkpoint: Path,
        folder: Path,
        task: TaskSettings,
        *,
        seeds: int = 10,
        first_seed: int = SELECTION_SEED,
        execute_steps: int | None = 24,
        workers: int = 2,
        robot_model: RobotModel = PRIMITIVES,
        execution: Execution | None = None,
    ) -> None:
        # Checks at the first evaluation would come hours later.
        COUNT.check(
            **{
                "evaluation.seeds": seeds,
                "evaluation.execute_steps": 1 if execute_steps is None else execute_steps,
            }
        )
        WHOLE.check(**{"evaluation.first_seed": first_seed, "evaluation.workers": workers})
        check_robot_model(robot_model)
        self._folder = folder
        self._task = task
        self._seeds = evaluation_seeds(seeds, first_seed)
        self._settings = RunSettings(
            checkpoint=checkpoint,
            execute_steps=execute_steps,
            execution=execution or Execution(),
            workers=workers,
            videos=False,
            robot_model=robot_model,
        )

    def options(self) -> dict[str, object]:
        """Returns task, version, frame rate and meshes by option, for `TrainingRecord.warn`."""
        return {**task_options(self._task), "robot.model": self._settings.robot_model}

    def __call__(self, steps_done: int) -> dict[str, float]:
        """Returns `success`, its Wilson 95 % interval `low` to `high`, `successes` and `trials`."""
        folder = self._folder / f"step_{steps_done:08d}"
        threads = torch.get_num_threads()
        try:
            rate = self._summary(folder).rate
        # Evaluation uses one thread; another number would change the rounding of the training.
        finally:
            torch.set_num_threads(threads)
        logger.info("After step %d: success %s on %s.", steps_done, rate, self._task.name)
        return {"success": rate.value, **rate.to_dict()}

    def _summary(self, folder: Path) -> Summary:
        # The training has compared the settings with its data.
        evaluation = CheckpointEvaluation(self._settings, warn=False)
        try:
            results = evaluation.run(self._task, self._seeds, folder)
        # The run may have reached this step before with other weights, such as on another machine.
        except OtherEvaluationError:
            shutil.rmtree(folder)
            results = evaluation.run(self._task, self._seeds, folder)
        return Summary.of(results)


def training_evaluation(
    directory: Path,
    checkpoint: Path,
    task: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    robot_model: RobotModel = PRIMITIVES,
    execution: Execution | None = None,
) -> TrainingEvaluation | None:
    """Reads the evaluation from the settings of `configs/train.yaml`; None without a task.

    The task is a choice of `configs/task`; the settings are those of `SETTINGS`.
    """
    for name in settings:
        if name not in SETTINGS:
            raise unknown_name("setting of evaluation", name, SETTINGS)
    if task is None:
        return None
    return TrainingEvaluation(
        checkpoint,
        directory / "evaluations",
        TaskSettings.of(task),
        **settings,
        robot_model=robot_model,
        execution=execution,
    )
