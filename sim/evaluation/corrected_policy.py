"""The policy whose episodes an expert corrects, and what its checkpoint decides in a collection."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from stringline.policies.algorithms.keypose_policy import KeyposePolicy
from stringline.policies.checkpoints.load import open_policy
from stringline.policies.checkpoints.training_record import RecordedExecution, TrainingRecord
from stringline.policies.chunks.chunk import Policy
from stringline.sim.environment.sensing import common_image_size
from stringline.sim.evaluation.runner import PolicySessions
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import instruction_of


@dataclass(frozen=True)
class CorrectedPolicy:
    """A policy with its execution, as its training recorded it.

    Attributes:
        policy: The policy.
        digest: Digest of its checkpoint.
        execution: Execution of its plans.
        instruction: Its instruction for the task.
    """

    policy: Policy
    digest: str
    execution: RecordedExecution
    instruction: str

    def described(self) -> dict[str, Any]:
        """Returns what decides on its actions, as plain JSON."""
        return {
            "checkpoint": self.digest,
            "instruction": self.instruction,
            **self.execution.to_dict(),
        }

    def training_choices(self) -> dict[str, str]:
        """Returns the choices of a training that goes on with the weights of this policy."""
        trainer = {"trainer": "keyposes"} if isinstance(self.policy, KeyposePolicy) else {}
        return {"policy": "checkpoint", **trainer}

    def sessions(self) -> PolicySessions:
        """Returns its sessions, none of which has begun."""
        chosen = self.execution
        return PolicySessions(self.policy, chosen.execution, chosen.execute_steps, self.instruction)


def open_corrected(
    checkpoint: str, task: TaskSettings, device: str
) -> tuple[CorrectedPolicy, TaskSettings]:
    """Opens a policy, and returns it with the task as in its training: cameras, images and rate.

    Args:
        checkpoint: Folder, shipped name, or address of a policy server.
        task: The task.
        device: Where the policy computes: `cpu`, `cuda`, or `cuda:<number>`.

    Raises:
        ValueError: The checkpoint is missing or broken, or it was trained on other tasks.
        RemoteError: The server does not answer.
    """
    torch.set_num_threads(1)  # The parallel simulations use the other processors.
    record = TrainingRecord.read(checkpoint)
    if record.tasks and task.name not in record.tasks:
        raise ValueError(
            f"task is {task.name}, but {checkpoint} was trained on {', '.join(record.tasks)}. "
            f"Choose task={next(iter(record.tasks))}, or another checkpoint."
        )
    policy, digest = open_policy(checkpoint, device=device)
    contract = policy.contract
    own = instruction_of(task.name, task.options, task.embodiment)
    execution = record.execution or RecordedExecution()
    chosen = replace(
        task,
        cameras=tuple(camera.name for camera in contract.cameras),
        image_size=common_image_size(contract.cameras),
        control_hz=contract.control_hz,
    )
    instruction = record.tasks.get(task.name) or own
    return CorrectedPolicy(policy, digest, execution, instruction), chosen
