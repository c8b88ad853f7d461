"""Policies to and from checkpoints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stringline.datasets.contract import Contract
from stringline.datasets.statistics import Statistics
from stringline.encoders.training.checkpoint import build, load_description, load_weights, save_checkpoint
from stringline.policies.chunk_policy import ChunkPolicy


def build_policy(model: Mapping[str, Any], contract: Contract, statistics: Statistics) -> ChunkPolicy:
    """Builds an untrained policy.

    Args:
        model: Its resolved configuration, `_target_` included.
        contract: Of the data or the robot.
        statistics: Of the training data.

    Raises:
        ValueError: The configuration does not describe a policy of this project.
    """
    policy = build(dict(model), contract=contract, statistics=statistics)
    if not isinstance(policy, ChunkPolicy):
        raise ValueError(f"{model.get('_target_')!r} is no policy; allowed: classes derived from ChunkPolicy.")
    return policy


def save_policy(directory: Path, policy: ChunkPolicy, model: Mapping[str, Any], training: Mapping[str, Any]) -> None:
    """Writes a checkpoint that `load_policy` reads without anything else at hand.

    Args:
        directory: The checkpoint.
        policy: With the weights to keep.
        model: The configuration that it was built from.
        training: How it was trained: plain data for the record.
    """
    description = {
        "model": dict(model),
        "contract": policy.contract.to_dict(),
        "statistics": policy.statistics.to_dict(),
        "training": dict(training),
    }
    save_checkpoint(directory, policy, description)


def load_policy(directory: Path) -> ChunkPolicy:
    """Builds the policy of a checkpoint, ready to act.

    Raises:
        ValueError: The checkpoint is missing, broken, newer than this code, or asks for foreign classes.
    """
    description = load_description(directory)
    try:
        model, contract, statistics = description["model"], description["contract"], description["statistics"]
    except KeyError as error:
        raise ValueError(f"{directory} holds no policy: its description lacks {error}.") from error
    policy = build_policy(model, Contract.from_dict(contract), Statistics.from_dict(statistics))
    load_weights(directory, policy)
    return policy.eval()
