"""Saving, loading and opening of policies, and the device on which they compute."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.extensions.trust import Trust
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.pretrained.initial_weights import without_files
from stringline.encoders.training.checkpoint import (
    ASKED_FOR,
    WEIGHTS,
    bounded_by,
    build,
    build_settings,
    load_description,
    load_weights,
    save_checkpoint,
    sha256_of,
)
from stringline.policies.action_spaces.space import ActionSpace
from stringline.policies.algorithms.chunk_policy import ChunkPolicy, PolicySettings
from stringline.policies.algorithms.keypose_policy import (
    HELD_OPENINGS,
    KeyposePolicySettings,
    held_openings,
)
from stringline.policies.algorithms.learned_policy import LearnedPolicy
from stringline.policies.algorithms.posture import ChunkRemainder, FittedWindows
from stringline.policies.checkpoints.registry import registered_checkpoint
from stringline.policies.chunks.chunk import Policy
from stringline.policies.observation.observation_settings import read_cameras

if TYPE_CHECKING:
    from stringline.policies.remote.client import RemotePolicy

CPU = "cpu"


def checked_device(name: str) -> torch.device:
    """Returns a device by its name: `cpu`, `cuda`, or `cuda:<number>`.

    Raises:
        ValueError: The name is unknown, or the GPU does not exist.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [CPU, *(["cuda"] if gpus else []), *(f"cuda:{number}" for number in range(gpus))]
    if name in devices:
        return torch.device(name)
    none = re.fullmatch(r"cuda(:\d+)?", str(name)) and not gpus
    why = ", since torch finds no GPU" if none else ""
    raise ValueError(f"device is {name!r}; allowed here{why}: {', '.join(devices)}.")


ADDRESSES = ("ws://", "wss://")
REMOTE_POLICY = "stringline.policies.remote.client:RemotePolicy"
SHIPPED = Path(__file__).parent


def find_checkpoint(where: str | Path) -> Path:
    """Returns the folder of a checkpoint: a folder, a name of the index, or an address.

    See `registered_checkpoint`. After a crash, on file systems that cannot replace a folder in one
    step, the previous checkpoint.
    """
    return registered_checkpoint(str(where), SHIPPED)


def checkpoint_digest(where: str | Path) -> str:
    """Returns the identifier of a checkpoint, the start of the SHA-256 of its files."""
    return sha256_of(find_checkpoint(where))[:16]


def is_address(where: str | Path) -> bool:
    """Returns whether a policy is on a server, such as `ws://127.0.0.1:8765`."""
    return str(where).startswith(ADDRESSES)


def remote_policy(address: str | Path) -> "RemotePolicy":
    """Returns the policy of a server, whose client is imported only here.

    Raises:
        RemoteError: The server does not answer.
    """
    connect: type[RemotePolicy] = resolve_name(REMOTE_POLICY)
    return connect(str(address))


def open_policy(
    where: str | Path, trust: Sequence[str] = (), *, device: str = CPU
) -> tuple[Policy, str]:
    """Returns a policy and the digest of its checkpoint.

    Args:
        where: A checkpoint, see `find_checkpoint`, or the address of a policy server.
        trust: See `load_policy`.
        device: Where it computes: `cpu`, `cuda`, or `cuda:<number>`; a server decides for itself.

    Raises:
        ValueError: See `load_policy`; the device does not exist, or is not the CPU for a server.
    """
    torch_device = checked_device(device)
    if is_address(where):
        if device != CPU:
            raise ValueError(
                f"device is {device!r} with the policy of a server, which has its own device; "
                f"allowed: {CPU}."
            )
        remote = remote_policy(where)
        return remote, remote.digest
    return load_policy(where, trust).to(torch_device), checkpoint_digest(where)


def build_policy(
    model: Mapping[str, Any],
    contract: Contract,
    statistics: Statistics,
    trust: Trust = ASKED_FOR,
) -> LearnedPolicy:
    """Builds an untrained policy of a resolved configuration with `_target_`.

    The statistics of the training data include those of the actions; see `add_action_statistics`.
    """
    policy = build(dict(model), nn.Module, trust, contract=contract, statistics=statistics)
    if not isinstance(policy, LearnedPolicy):
        raise ValueError(
            f"{model.get('_target_')!r} is not a policy; allowed: classes derived from ChunkPolicy "
            "or LearnedPolicy."
        )
    return policy


def add_action_statistics(
    statistics: Statistics,
    model: Mapping[str, Any],
    contract: Contract,
    episodes: Sequence[StoredEpisode],
    slots: Sequence[Mapping[str, str]] | None = None,
    trust: Trust = ASKED_FOR,
) -> Statistics:
    """Adds the statistics of what a policy generates, measured on its training windows.

    Known statistics stay unchanged, such as those of actions of the contract. The episodes are read
    twice.

    Args:
        statistics: The statistics of the episodes.
        model: The resolved configuration of the policy.
        contract: Contract of the data.
        episodes: The training episodes.
        slots: The camera of each episode in each slot, by the slot; see `Source`. If None, the
            cameras have the names of the contract.
        trust: Packages whose classes the configuration may name.
    """
    settings: PolicySettings | KeyposePolicySettings = build_settings(model, nn.Module, trust)
    if isinstance(settings, KeyposePolicySettings):
        openings = statistics_of(
            lambda: (held_openings(each, settings.events) for each in episodes)
        )
        return Statistics(
            {**statistics, HELD_OPENINGS: openings}, instructions=statistics.instructions
        )
    space = settings.space(contract)
    names = model["observation_encoder"].get("cameras")
    cameras = read_cameras(contract, names)
    own = [cameras] * len(episodes) if slots is None else [_own(cameras, each) for each in slots]
    by_key = dict(statistics)
    if (key := space.statistics_key(settings.chunk)) not in by_key:
        rows = partial(_window_rows, space, settings.chunk)
        by_key[key] = space.ranges(statistics_of(lambda: map(rows, own, episodes)))
    return Statistics(by_key, instructions=statistics.instructions)


def fit_posture(
    policy: ChunkPolicy,
    episodes: Sequence[StoredEpisode],
    slots: Sequence[Mapping[str, str]] | None = None,
) -> None:
    """Fits the linear part of the chunks of a policy to its training episodes, in closed form.

    A policy without a posture stays as it is. The weights of a checkpoint contain the fit.

    Args:
        policy: The policy.
        episodes: The training episodes, which are read twice.
        slots: See `add_action_statistics`.

    Raises:
        ValueError: An episode lacks the joints.
    """
    if policy.posture is not None:
        fit_remainder(policy.posture, policy, policy.action_space, episodes, slots)


def fit_remainder(
    posture: ChunkRemainder,
    policy: ChunkPolicy,
    space: ActionSpace,
    episodes: Sequence[StoredEpisode],
    slots: Sequence[Mapping[str, str]] | None = None,
) -> None:
    """Fits a linear part in an action space to the windows of a policy; see `fit_posture`."""
    cameras = policy.observation_encoder.cameras
    own = [cameras] * len(episodes) if slots is None else [_own(cameras, each) for each in slots]

    def windows() -> Iterator[FittedWindows]:
        for seen, episode in zip(own, episodes, strict=True):
            starts, numbers, inside = space.window_numbers(seen, policy.chunk, episode)
            observation = {}
            for key in posture.keys:
                if key not in episode.arrays:
                    raise ValueError(
                        f"Episode {episode.name} lacks {key}, which policy.posture reads; allowed: "
                        f"episodes with it, or policy.posture=null."
                    )
                observation[key] = torch.from_numpy(np.asarray(episode.arrays[key])[starts])
            yield FittedWindows(observation=observation, actions=numbers, inside=inside)

    posture.fit(windows)


def _own(cameras: Sequence[Camera], slots: Mapping[str, str]) -> list[Camera]:
    """Returns the cameras of an episode that fill the slots of these cameras."""
    return [replace(slot, name=slots[slot.name]) for slot in cameras if slot.name in slots]


def _window_rows(
    space: ActionSpace, chunk: int, cameras: Sequence[Camera], episode: StoredEpisode
) -> NDArray[Any]:
    return space.window_rows(cameras, chunk, episode)


def save_policy(
    directory: Path, policy: LearnedPolicy, model: Mapping[str, Any], training: Mapping[str, Any]
) -> None:
    """Writes a self-contained checkpoint for `load_policy`.

    `model` is the configuration of the policy, `training` the record of its training, plain data.
    """
    description = {
        "model": dict(model),
        "contract": policy.contract.to_dict(),
        "statistics": policy.statistics.to_dict(),
        "training": dict(training),
    }
    save_checkpoint(directory, policy, description)


def load_policy(where: str | Path, trust: Sequence[str] = ()) -> LearnedPolicy:
    """Loads the policy of a checkpoint, in evaluation mode.

    Args:
        where: Its folder, the name of a shipped one, or `ADDRESS@sha256:HEX` (docs/checkpoints.md).
        trust: Top-level packages whose classes the checkpoint may name, which runs their code.
            Packages that the user trusted on a command line are allowed as well.

    Raises:
        ValueError: The checkpoint is missing, broken, newer than this code, or names a class of a
            package that is not trusted or not installed.
        OSError: It cannot be fetched.
    """
    if isinstance(trust, str):
        raise ValueError(f"trust is {trust!r}; allowed: a sequence of names, such as ({trust!r},).")
    directory = find_checkpoint(where)
    description = load_description(directory)
    try:
        model = description["model"]
        contract = description["contract"]
        statistics = description["statistics"]
    except KeyError as error:
        raise ValueError(f"{directory} contains no policy: {error} is missing.") from error
    with bounded_by(directory / WEIGHTS, {"model": model, "contract": contract}):
        policy = build_policy(
            without_files(model),
            Contract.from_dict(contract),
            Statistics.from_dict(statistics),
            Trust(f"The checkpoint {where}", frozenset(trust)),
        )
    load_weights(directory, policy)
    return policy.eval()
