"""How often a policy succeeds while it is still being trained."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from stringline.datasets.contract.arguments import COUNT, WHOLE, unknown_name
from stringline.sim.evaluation.checkpoint_evaluation import CheckpointEvaluation
from stringline.sim.evaluation.results import OtherEvaluationError, Summary
from stringline.sim.evaluation.runner import evaluation_seeds
from stringline.sim.robots.robot_model import PRIMITIVES, RobotModel, demand_robot_model
from stringline.sim.worlds.world_registry import demand_task_settings

logger = logging.getLogger(__name__)

# Whoever chooses the best model by its success on some seeds has trained on them: these are none
# that results are reported on.
CHOOSING_SEED = 2_000_000
SETTINGS = ("seeds", "first_seed", "execute_steps", "workers")


class TrainingEvaluation:
    """Runs a checkpoint of a run on a task; an evaluation that was interrupted continues.

    Each has its results in `evaluations/step_<n>` of the run. They are those that `stringline-eval`
    gets of that checkpoint.
    """

    def __init__(
        self,
        checkpoint: Path,
        folder: Path,
        task: Mapping[str, Any],
        *,
        seeds: int = 10,
        first_seed: int = CHOOSING_SEED,
        execute_steps: int | None = 24,
        workers: int = 2,
        robot_model: RobotModel = PRIMITIVES,
    ) -> None:
        """Chooses what to run.

        Args:
            checkpoint: What is there when it is called is evaluated.
            folder: Of all evaluations of the run.
            task: As in `configs/task`.
            seeds: How many.
            first_seed: Counted from here.
            execute_steps: Control periods between two plans; None: whole chunks.
            workers: Worlds at a time; they do not change the results.
            robot_model: What the arms are drawn with.

        Raises:
            ValueError: A number is out of range, or there is no such setting of the task or model
                of the arms.
        """
        # What is refused only when the first evaluation is due has cost hours.
        COUNT.check(
            **{
                "evaluation.seeds": seeds,
                "evaluation.execute_steps": 1 if execute_steps is None else execute_steps,
            }
        )
        WHOLE.check(**{"evaluation.first_seed": first_seed, "evaluation.workers": workers})
        demand_task_settings(task)
        demand_robot_model(robot_model)
        self._checkpoint = checkpoint
        self._folder = folder
        self._task = task
        self._seeds = evaluation_seeds(seeds, first_seed)
        self._execute_steps = execute_steps
        self._workers = workers
        self._robot_model: RobotModel = robot_model

    def __call__(self, steps_done: int) -> dict[str, float]:
        """Returns `success`, the rate, its Wilson 95 % interval `low` to `high`, and the counts `successes` of `trials`."""
        folder = self._folder / f"step_{steps_done:08d}"
        threads = torch.get_num_threads()
        try:
            rate = self._summary(folder).rate
        # Evaluation takes one thread; with another number the training's sums would round
        # differently from here on.
        finally:
            torch.set_num_threads(threads)
        logger.info("After step %d: success %s on %s.", steps_done, rate, self._task["name"])
        return {"success": rate.value, **rate.to_dict()}

    def _summary(self, folder: Path) -> Summary:
        evaluation = CheckpointEvaluation(
            self._checkpoint,
            execute_steps=self._execute_steps,
            workers=self._workers,
            videos=False,
            robot_model=self._robot_model,
        )
        try:
            results = evaluation.run(self._task, self._seeds, folder)
        except (
            OtherEvaluationError
        ):  # Of a run that went another way to the same step, such as on another machine.
            shutil.rmtree(folder)
            results = evaluation.run(self._task, self._seeds, folder)
        return Summary.of(results)


def training_evaluation(
    directory: Path,
    checkpoint: Path,
    task: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    robot_model: RobotModel = PRIMITIVES,
) -> TrainingEvaluation | None:
    """Returns the evaluation that a configuration asks for; None without a task.

    Args:
        directory: Of the run.
        checkpoint: To be evaluated.
        task: As in `configs/task`.
        settings: See `TrainingEvaluation`.
        robot_model: What the arms are drawn with.

    Raises:
        ValueError: There is no such setting, or it is out of range.
    """
    for name in settings:
        if name not in SETTINGS:
            raise unknown_name("setting of evaluation", name, SETTINGS)
    if task is None:
        return None
    return TrainingEvaluation(
        checkpoint, directory / "evaluations", task, **settings, robot_model=robot_model
    )
