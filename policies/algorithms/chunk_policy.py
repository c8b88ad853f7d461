"""Policies that generate timestamped chunks of actions from observations: settings and base.

The settings are the entries of configurations and checkpoints. Each kind of policy derives its
dataclass from one of these; `stringline.encoders.training.checkpoint.build` makes settings and
policy from a plain configuration. Contract and statistics, which come from the data, are separate
arguments.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.loading.statistics import KeyStatistics, Statistics, statistics_of
from stringline.datasets.loading.window_settings import WindowSettings
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.policies.action_spaces.space import (
    ActionSpace,
    ActionSpaceFactory,
    ContractActions,
)
from stringline.policies.algorithms.learned_policy import Batch, Generators, LearnedPolicy
from stringline.policies.algorithms.posture import ChunkRemainder, FittedWindows, Posture
from stringline.policies.chunks.chunk import ActionPrefix
from stringline.policies.networks.denoiser import (
    Denoiser,
    DenoiserFactory,
    TransformerDenoiser,
)
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.interfaces import (
    CloudEncoder,
    ConditioningTokens,
    ObservationEncoderFactory,
)
from stringline.policies.observation.normaliser import MinMaxNormaliser, NormaliserFactory
from stringline.policies.observation.observation_settings import read_cameras


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Settings of every kind of policy.

    Attributes:
        observation_encoder: Factory of the observation encoder.
        chunk: Actions per chunk, T.
        normalisation: Factory of the normaliser of actions.
        action_space: Factory of the action space; see `policies/action_spaces`.
        gripper_space: Factory of the meaning of the grippers' numbers, such as `OpenClose`, given
            the action space `arms`; if None, openings.
        posture: What the joints alone tell about a chunk, which the policy then need not learn, and
            the smooth form of chunks; if None, the policy generates all actions itself.
    """

    observation_encoder: ObservationEncoderFactory
    chunk: int = 48
    normalisation: NormaliserFactory = MinMaxNormaliser
    action_space: ActionSpaceFactory = ContractActions
    gripper_space: ActionSpaceFactory | None = None
    posture: Posture | None = None

    def __post_init__(self) -> None:
        COUNT.check(chunk=self.chunk)

    def space(self, contract: Contract) -> ActionSpace:
        """Builds the action space, grippers included."""
        arms = self.action_space(contract=contract)
        return (
            arms if self.gripper_space is None else self.gripper_space(contract=contract, arms=arms)
        )

    def with_action_statistics(
        self,
        statistics: Statistics,
        contract: Contract,
        episodes: Sequence[StoredEpisode],
        slots: Sequence[Mapping[str, str]] | None,
        cameras: Sequence[str] | None,
    ) -> Statistics:
        """Adds the statistics of the generated numbers; see `add_action_statistics`.

        `cameras` are the names of those that the observation encoder reads; if None, all.
        """
        space = self.space(contract)
        read = read_cameras(contract, cameras)
        own = [read] * len(episodes) if slots is None else [_own(read, each) for each in slots]
        by_key = dict(statistics)
        if (key := space.statistics_key(self.chunk)) not in by_key:
            rows = partial(_window_rows, space, self.chunk)
            by_key[key] = space.ranges(statistics_of(lambda: map(rows, own, episodes)))
        return Statistics(by_key, instructions=statistics.instructions)


Standing = Literal["gripper", "noisy_pose"]


class ActionPlaces(nn.Module):
    """The places of action tokens in the denoiser, which reads the conditioning tokens by them."""

    def __init__(self, *, at: Standing, encoding: EncodingFactory, values: bool = True) -> None:
        """Sets the places.

        Args:
            at: `gripper`: at the measured gripper that they move; `noisy_pose`: at the noisy
                position of this gripper, which needs gripper poses as actions and changes in every
                denoising step.
            encoding: Factory of the encoding of places in cross-attention.
            values: Relative values: positions rotate values too.
        """
        super().__init__()
        if at not in get_args(Standing):
            raise unknown_name("place of actions", str(at), get_args(Standing))
        self.at = at
        self.encoding = encoding
        self.values = values


@dataclass(frozen=True, kw_only=True)
class DenoisingSettings(PolicySettings):
    """Settings of policies that generate chunks from noise.

    Attributes:
        dim: Width of the denoiser, a multiple of 2 * heads.
        depth: Transformer blocks of the denoiser.
        heads: Attention heads of the denoiser.
        denoiser: Factory of another denoiser, with its own sizes; if None, the transformer.
        action_places: Places of the action tokens of the transformer; if None, they have none.
        sampling_steps: Steps from noise to data at run time.
        noise_samples: Noise samples per observation and training step; the observation is encoded
            once.
    """

    dim: int = 128
    depth: int = 3
    heads: int = 4
    denoiser: DenoiserFactory | None = None
    action_places: ActionPlaces | None = None
    sampling_steps: int = 8
    noise_samples: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        COUNT.check(
            dim=self.dim,
            depth=self.depth,
            heads=self.heads,
            sampling_steps=self.sampling_steps,
            noise_samples=self.noise_samples,
        )

    def network(
        self,
        factory: DenoiserFactory | None,
        *,
        action_dim: int,
        chunk: int,
        conditioning_dim: int,
        state_dim: int = 0,
    ) -> Denoiser:
        """Builds a network over noisy chunks by a factory; if None, the transformer.

        Raises:
            ValueError: The network of the factory reads no states, but there are some.
        """
        make = factory or partial(
            TransformerDenoiser, dim=self.dim, depth=self.depth, heads=self.heads
        )
        sizes = {"action_dim": action_dim, "chunk": chunk, "conditioning_dim": conditioning_dim}
        if not state_dim:
            return make(**sizes)
        if "state_dim" not in signature(make).parameters:
            raise ValueError(
                "The denoiser reads no joints beside the conditioning tokens; allowed for "
                "policy.observation_encoder.joints=condition: the transformer. Otherwise choose "
                "policy.observation_encoder.joints=tokens."
            )
        return make(**sizes, state_dim=state_dim)


def check_actions(key: str, statistics: KeyStatistics, dim: int) -> None:
    """Raises a ValueError for statistics that define no range of actions.

    A single constant channel is valid: one arm may rest in a whole data set, and its normaliser has
    a floor.
    """
    if len(statistics.min) != dim:
        raise ValueError(
            f"The statistics of {key!r} have {len(statistics.min)} dimensions; actions have {dim}."
        )
    if not all(
        np.isfinite(values).all()
        for values in (statistics.min, statistics.max, statistics.mean, statistics.std)
    ):
        raise ValueError(
            f"The statistics of {key!r} are not finite: an action in the data is NaN or infinite."
        )
    if not (statistics.max > statistics.min).any():
        always = np.round(statistics.min, 4).tolist()
        raise ValueError(
            f"The statistics of {key!r} have zero range in each of the {dim} dimensions (always "
            f"{always}): no action in the data moves the robot."
        )


class ChunkPolicy(LearnedPolicy):
    """Encodes an observation once and generates a chunk of T actions from its conditioning tokens.

    Derived classes define the generation of chunks and the loss; normalisation, conversion to
    tensors, padding and time are handled here.

    Attributes:
        observation_encoder: Encodes observations.
        contract: Contract of its observations and actions.
        statistics: Statistics of the training data, including those of its action space.
        chunk: Actions per chunk, T.
        action_space: Meaning of the generated numbers.
        action_range: Normaliser of the generated numbers.
        contract_range: Normaliser of actions of the contract.
        posture: The linear part of chunks, beside which it generates the remainder; if None, it
            generates normalised actions.
    """

    def __init__(
        self, settings: PolicySettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the parts that all policies share.

        Args:
            settings: Settings of the policy.
            contract: Contract of its observations and actions.
            statistics: Statistics of the training data, including those of its action space; see
                `add_action_statistics`.

        Raises:
            ValueError: A camera is missing in the contract, the action space does not fit it, or
                the statistics lack its actions, have another dimension or no range.
        """
        super().__init__(settings.observation_encoder, contract, statistics)
        self.chunk = settings.chunk
        self.action_space = settings.space(contract)
        key = self.action_space.statistics_key(self.chunk)
        self.action_range = settings.normalisation(self._measured(key))
        self.contract_range = (
            self.action_range
            if key == "action"
            else settings.normalisation(self.statistics["action"])
        )
        self.posture = (
            None
            if settings.posture is None
            else ChunkRemainder(
                settings.posture,
                space=self.action_space,
                contract=contract,
                statistics=statistics,
                action_range=self.action_range,
                chunk=self.chunk,
            )
        )

    def _measured(self, key: str) -> KeyStatistics:
        """Returns the checked statistics of numbers that the policy generates."""
        if key not in self.statistics:
            raise ValueError(
                f"There are no statistics of {key!r}, the actions that this policy generates; "
                f"known: {', '.join(self.statistics)}. `add_action_statistics` measures them."
            )
        check_actions(key, self.statistics[key], self.action_space.dim)
        return self.statistics[key]

    @property
    def action_dim(self) -> int:
        """Generated numbers per action, in the action space."""
        return self.action_space.dim

    @property
    def state_keys(self) -> tuple[str, ...]:
        """The keys that its action space and the linear part of its chunks read."""
        posture = () if self.posture is None else self.posture.keys
        return tuple(dict.fromkeys((*self.action_space.reads, *posture)))

    def window_settings(self) -> WindowSettings:
        """Returns what the windows of its training contain."""
        reads_commands = self.action_space.reads_commands
        settings = replace(super().window_settings(), gripper_commands=reads_commands)
        encoder = self.observation_encoder
        if not isinstance(encoder, CloudEncoder):
            return settings
        hz = self.contract.control_hz  # Chunks differ where clouds are alike.
        return replace(settings, clouds=encoder.clouds, clouds_hz=hz)

    @abstractmethod
    def chunk_loss(self, conditioning: ConditioningTokens, action: Tensor, mask: Tensor) -> Tensor:
        """Returns the training loss.

        Args:
            conditioning: Conditioning tokens of B observations.
            action: (B, T, action_dim) normalised actions.
            mask: (B, T) False beyond the end of the episode.
        """

    @abstractmethod
    def generate(
        self,
        conditioning: ConditioningTokens,
        generator: Generators,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Returns normalised chunks, (B, T, action_dim).

        Args:
            conditioning: Conditioning tokens of B observations.
            generator: The only source of random numbers, on the device of the tokens; or one for
                each observation.
            prefix: Actions that the chunks have to follow; if None, all are free.
        """

    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch of windows.

        Args:
            batch: Contract keys with a batch axis, `action` (B, T, A) and `action_mask` (B, T).
        """
        return self.chunk_loss(
            self.observation_encoder(batch),
            self.normalised(batch["action"].float(), batch),
            batch["action_mask"],
        )

    def loss_weight(self, batch: Batch) -> Tensor:
        """Returns the number of actions over which the loss of a batch is a mean, a scalar."""
        return batch["action_mask"].sum()

    def normalised(self, action: Tensor, batch: Batch) -> Tensor:
        """Returns actions (B, T, A) of the contract as generated numbers, (B, T, action_dim).

        Args:
            action: Actions in the units of the contract.
            batch: Contract keys of their observations, with a batch axis.
        """
        normal = self.action_range.normalise(self.action_space.encode(action, batch))
        return normal if self.posture is None else self.posture.remainder(normal, batch)

    def smooth(self, rows: Tensor) -> Tensor:
        """Returns generated numbers (..., R, action_dim) as smooth chunks, if they are smooth."""
        return rows if self.posture is None else self.posture.smooth(rows)

    @property
    def range_reach(self) -> float | Tensor:
        """The largest magnitude of generated numbers in the training data, of each or of all."""
        return self.action_range.reach if self.posture is None else self.posture.reach

    @torch.no_grad()
    def normalised_prefix(self, kept: ActionPrefix, batch: Batch) -> NormalisedPrefix:
        """Converts an action prefix to the action space of this policy and normalises it.

        Args:
            kept: The prefix at the times of a chunk, see `ActionPrefix.aligned`.
            batch: See `normalised`; one observation.
        """
        if kept.action.shape[1] != len(self.contract.action):
            dims = len(self.contract.action)
            raise ValueError(
                f"Prefix actions have {kept.action.shape[1]} entries; those of the contract have "
                f"{dims}."
            )
        device = next(self.parameters()).device
        weight = torch.tensor(kept.weight, dtype=torch.float32, device=device)
        if not kept.weight.any():  # Then the actions have no meaning either.
            return NormalisedPrefix(
                torch.zeros(1, self.chunk, self.action_dim, device=device), weight
            )
        return NormalisedPrefix(
            self.normalised(torch.tensor(kept.action, device=device)[None], batch), weight
        )

    @torch.inference_mode()
    def predict(
        self, batch: Batch, generator: Generators, prefix: NormalisedPrefix | None = None
    ) -> Tensor:
        """Returns chunks in the units of the contract, (B, T, A); see `generate`."""
        generated = self.generate(self.observation_encoder(batch), generator, prefix).float()
        if self.posture is not None:
            generated = self.posture.restore(generated, batch)
        return self.action_space.decode(self.action_range.restore(generated), batch)


def masked_mean(error: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of errors (B, K, T, A) of K noise samples, over actions inside the episode.

    `mask` is (B, T), False beyond the end of the episode, or the weight of each action. Without
    such actions the mean is 0.
    """
    if error.ndim != 4:
        raise ValueError(
            f"error has shape {tuple(error.shape)}; allowed: (B, K, T, A). For errors (B, T, A) of "
            "one sample give error[:, None]."
        )
    batch, noise_samples, chunk, action_dim = error.shape
    if mask.shape != (batch, chunk):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; allowed for errors {tuple(error.shape)}: "
            f"{(batch, chunk)}."
        )
    weight = mask[:, None, :, None].to(error.dtype)
    return (error * weight).sum() / (weight.sum() * noise_samples * action_dim).clamp(min=1)


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
