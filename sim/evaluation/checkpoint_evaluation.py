"""A checkpoint that is measured on tasks: what it was trained with decides what it sees there."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stringline.encoders.training.checkpoint import load_description
from stringline.policies.checkpoints.load import find_checkpoint, is_address, open_policy
from stringline.policies.chunks.chunk import Policy
from stringline.policies.execution.execution import Execution
from stringline.policies.execution.instructed import Instructed
from stringline.sim.evaluation.results import RESULTS, EpisodeResult
from stringline.sim.evaluation.runner import Evaluation
from stringline.sim.robots.robot_model import (
    PRIMITIVES,
    ROBOT_MODEL,
    RobotModel,
    demand_robot_model,
)
from stringline.sim.rollout.cluster import Cluster
from stringline.sim.worlds.world_registry import demand_task_settings, instruction_of, open_world

logger = logging.getLogger(__name__)

AS_TRAINED = ("task.cameras", "task.image_size", "task.control_hz")


class CheckpointEvaluation:
    """Runs a checkpoint on tasks; each task keeps its results, and continues them, in a folder of its own.

    Args:
        checkpoint: Its folder, the name of one that ships with the package, or the address of a
            policy server.
        execute_steps: Control periods between two plans; None: whole chunks.
        execution: What plans are blended with, and when they are in force; None: a receding horizon
            without delay.
        workers: Worlds at a time; 0 takes one per processor.
        videos: Whether to video every episode.
        cluster: Where the worlds run; by default in processes of this machine.
        robot_model: What the arms are drawn with.

    Attributes:
        policy: What is measured.
        digest: What tells the checkpoint from every other one.

    Raises:
        ValueError: There is no such checkpoint, or it cannot be read.
        RemoteError: No policy server answers there.
    """

    def __init__(
        self,
        checkpoint: str | Path,
        *,
        execute_steps: int | None,
        execution: Execution | None = None,
        workers: int = 2,
        videos: bool = True,
        cluster: Cluster | None = None,
        robot_model: RobotModel = PRIMITIVES,
    ) -> None:
        torch.set_num_threads(1)  # The simulations beside it want the other processors.
        self.policy, self.digest = open_policy(checkpoint)
        self._execute_steps = execute_steps
        self._execution = execution or Execution()
        self._workers = workers
        self._videos = videos
        self._cluster = cluster
        self._robot_model = robot_model
        demand_robot_model(robot_model)
        trained = trained_robot_models(checkpoint)
        if trained and robot_model not in trained:
            logger.warning(
                "%s was trained on images with robot.model=%s; it is measured with %s.",
                checkpoint,
                " and ".join(trained),
                robot_model,
            )

    def run(
        self, task: Mapping[str, Any], seeds: Sequence[int], folder: Path
    ) -> list[EpisodeResult]:
        """Runs what is not yet done of one task; a policy that has to be told what to do is told the task's instruction.

        Args:
            task: As in `configs/task`: name, time_limit_s, frame_hz, options.
            seeds: Distinct seeds.
            folder: Where `results.jsonl` and videos are kept.

        Returns:
            One result per seed, in their order.

        Raises:
            ValueError: The checkpoint, the task and the settings do not fit together.
        """
        demand_task_settings(task)
        settings = {
            "time_limit_s": task["time_limit_s"],
            "frame_hz": task["frame_hz"],
            "robot_model": self._robot_model,
        }
        evaluation = Evaluation(
            Instructed(self.policy, instruction_of(task["name"], task["options"])),
            partial(open_world, task["name"], **settings, **_as_trained(self.policy)),
            execute_steps=self._execute_steps,
            execution=self._execution,
            workers=self._workers,
            options=task["options"],
            videos=folder / "videos" if self._videos else None,
            cluster=self._cluster,
        )
        return evaluation.run(seeds, folder / RESULTS, self.about(task))

    def about(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what the results of a task depend on beside the seeds."""
        return {
            "execute_steps": self._execute_steps,
            "options": dict(task["options"]),
            **self._execution.about(),
            "task": task["name"],
            "checkpoint": self.digest,
            "time_limit_s": task["time_limit_s"],
            "frame_hz": task["frame_hz"],
            **({} if self._robot_model == PRIMITIVES else {ROBOT_MODEL: self._robot_model}),
        }


def trained_robot_models(checkpoint: str | Path) -> tuple[str, ...]:
    """Returns what arms were drawn with in the images that a checkpoint was trained on; nothing where it does not say so."""
    if is_address(str(checkpoint)):
        return ()
    record = load_description(find_checkpoint(checkpoint)).get("training") or {}
    return tuple(str(name) for name in record.get("robot_models", ()))


def refuse_as_trained(overrides: Sequence[str]) -> None:
    """Refuses a command line that chooses what a checkpoint decides: it would be measured on something else without a word.

    Args:
        overrides: The command line, `key=value`.

    Raises:
        ValueError: It names cameras, the size of images or the rate of actions.
    """
    for override in overrides:
        if override.lstrip("+~").partition("=")[0] in AS_TRAINED:
            raise ValueError(
                f"{override} has no meaning here: a checkpoint is measured with the cameras, the "
                f"size of images and the rate "
                "of actions that it was trained with. Leave it away."
            )


def _as_trained(policy: Policy) -> dict[str, Any]:
    """Returns the cameras, their size and the rate of actions that a policy was trained with."""
    contract = policy.contract
    sizes = {(camera.height, camera.width) for camera in contract.cameras}
    height, width = next(iter(sizes), (128, 128))
    if len(sizes) > 1 or height != width:
        raise ValueError(
            f"The policy sees images of {sorted(sizes)} pixels; tasks draw square ones of one size."
        )
    return {
        "cameras": [camera.name for camera in contract.cameras],
        "image_size": height,
        "control_hz": contract.control_hz,
    }
