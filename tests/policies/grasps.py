"""Policies that predict keyposes, for data with grasps, and their batches."""

import numpy as np
import torch
from tests.policies.conftest import model_configuration
from tests.policies.demonstrations import CONTRACT
from torch import Tensor

from stringline.policies.algorithms.denoising_policy import DenoisingPolicy
from stringline.policies.checkpoints.load import build_policy
from stringline.sim.training.training_data import TrainingData

KEYPOSE = "policy.keypose=8"
POSES = ("+frames=grippers", "+action=gripper_poses")
PLACED = (*POSES, "+action_places=noisy_pose")


def policy_of(data: TrainingData, *overrides: str) -> DenoisingPolicy:
    """Builds a policy for the data whose inputs all have an effect."""
    model = model_configuration(*overrides)
    statistics = data.statistics(model)
    torch.manual_seed(0)
    policy = build_policy(model, CONTRACT, statistics)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert isinstance(policy, DenoisingPolicy)
    return policy.eval()


def batch_for(policy: DenoisingPolicy, data: TrainingData) -> dict[str, Tensor]:
    """Returns all windows of the data, with the inputs of a policy."""
    windows = data.windows_for(policy, data.training)
    read = windows.batch(np.arange(len(windows)))
    return {key: torch.from_numpy(value) for key, value in read.items()}


def few(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value[:3] for key, value in batch.items()}


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)
