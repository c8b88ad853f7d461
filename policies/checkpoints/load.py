"""Policies to and from checkpoints."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Contract
from stringline.datasets.files.replaced_directory import standing
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.pretrained.starting_weights import without_files
from stringline.encoders.training.checkpoint import (
    DESCRIPTION,
    WEIGHTS,
    build,
    load_description,
    load_weights,
    save_checkpoint,
)
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.chunks.chunk import Policy
from stringline.policies.remote.client import RemotePolicy

ADDRESSES = ("ws://", "wss://")
SHIPPED = Path(__file__).parent


def find_checkpoint(where: str | Path) -> Path:
    """Returns the folder of a checkpoint, given that folder or the name of one that ships with the package.

    Where a crash left only the one before, on file systems that cannot replace it in one step, it
    is that one.

    Raises:
        ValueError: There is neither; the message names what ships.
    """
    if (folder := standing(Path(where))).is_dir():
        return folder
    shipped = (
        {folder.name: folder for folder in SHIPPED.iterdir() if folder.is_dir()}
        if SHIPPED.is_dir()
        else {}
    )
    if str(where) in shipped:
        return shipped[str(where)]
    raise unknown_name("checkpoint folder or shipped checkpoint", str(where), shipped)


def checkpoint_digest(where: str | Path) -> str:
    """Returns what tells a checkpoint from every other one: the beginning of the SHA-256 of its files, 16 characters."""
    directory = find_checkpoint(where)
    digest = hashlib.sha256()
    for name in (DESCRIPTION, WEIGHTS):
        digest.update((directory / name).read_bytes())
    return digest.hexdigest()[:16]


def is_address(where: str | Path) -> bool:
    """Says whether a policy is on a server, such as at `ws://127.0.0.1:8765`."""
    return str(where).startswith(ADDRESSES)


def open_policy(where: str | Path) -> tuple[Policy, str]:
    """Returns a policy, and what tells its checkpoint from every other one.

    Args:
        where: A checkpoint, see `find_checkpoint`, or the address of a policy server.

    Raises:
        ValueError: There is no such checkpoint, or it cannot be read.
        RemoteError: No policy server answers there.
    """
    if is_address(where):
        remote = RemotePolicy(str(where))
        return remote, remote.digest
    return load_policy(where), checkpoint_digest(where)


def build_policy(
    model: Mapping[str, Any], contract: Contract, statistics: Statistics
) -> ChunkPolicy:
    """Builds an untrained policy.

    Args:
        model: Its resolved configuration, `_target_` included.
        contract: Of the data or the robot.
        statistics: Of the training data.

    Raises:
        ValueError: The configuration does not describe a policy of this project.
    """
    policy = build(dict(model), nn.Module, contract=contract, statistics=statistics)
    if not isinstance(policy, ChunkPolicy):
        raise ValueError(
            f"{model.get('_target_')!r} is no policy; allowed: classes derived from ChunkPolicy."
        )
    return policy


def save_policy(
    directory: Path, policy: ChunkPolicy, model: Mapping[str, Any], training: Mapping[str, Any]
) -> None:
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


def load_policy(where: str | Path) -> ChunkPolicy:
    """Builds the policy of a checkpoint, ready to act.

    Args:
        where: Its folder, or the name of one that ships with the package.

    Raises:
        ValueError: The checkpoint is missing, broken, newer than this code, or asks for foreign
            classes.
    """
    directory = find_checkpoint(where)
    description = load_description(directory)
    try:
        model = description["model"]
        contract = description["contract"]
        statistics = description["statistics"]
    except KeyError as error:
        raise ValueError(f"{directory} holds no policy: its description lacks {error}.") from error
    policy = build_policy(
        without_files(model), Contract.from_dict(contract), Statistics.from_dict(statistics)
    )
    load_weights(directory, policy)
    return policy.eval()
