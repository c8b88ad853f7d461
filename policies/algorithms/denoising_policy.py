"""The base of policies that generate chunks from noise: their networks, with places or without."""

from abc import abstractmethod
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.keyposes import check_keyposes
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import ChunkPolicy
from stringline.policies.algorithms.learned_policy import Batch
from stringline.policies.algorithms.policy_settings import ActionPlaces, DenoisingSettings
from stringline.policies.algorithms.row_noise import Generators
from stringline.policies.networks.denoiser import (
    Denoiser,
    DenoiserFactory,
    DenoiserOfStates,
    Precomputed,
)
from stringline.policies.networks.normalised_prefix import NormalisedPrefix
from stringline.policies.networks.placed_denoiser import PlacedDenoiser
from stringline.policies.networks.token_places import TokenPlaces
from stringline.policies.observation.interfaces import (
    ConditioningTokens,
    EncoderOfPlaces,
    state_width,
)
from stringline.policies.observation.normaliser import Normaliser


class DenoisingPolicy(ChunkPolicy):
    """Generates chunks by a network over noisy chunks.

    With the setting `keypose`, the network generates further rows behind the chunk: the numbers of
    the next keypose in the action space, relative to the same measurement. Noise and sampler treat
    them as actions, so actions and keypose attend to each other while both are denoised.

    Attributes:
        denoiser: The network.
        keypose_weight: Weight of the keypose in the loss, counted in actions; 0: not predicted.
        rows: Rows that the network generates, those of the chunk first.
        keypose_range: Normaliser of keyposes; None: they are not predicted.
        sampling_steps: Steps from noise to data at run time.
        draws: Noise draws per observation and training step.
    """

    denoiser: Denoiser

    def __init__(
        self, settings: DenoisingSettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        self.keypose_weight = settings.keypose
        self.rows = self.chunk + settings.keypose_rows(len(contract.arms))
        self.keypose_range: Normaliser | None = None
        if settings.predicts_keyposes:
            check_keyposes(contract)
            key = self.action_space.keypose_key()
            self.keypose_range = settings.normalisation(self._measured(key))
        self.denoiser = self.make_network(settings, settings.denoiser)
        self.sampling_steps = settings.sampling_steps
        self.draws = settings.draws

    def make_network(
        self, settings: DenoisingSettings, factory: DenoiserFactory | None
    ) -> Denoiser:
        """Builds a network over noisy chunks by a factory; None: the transformer."""
        sizes = {
            "action_dim": self.action_dim,
            "chunk": self.rows,
            "conditioning_dim": self.observation_encoder.dim,
            "state_dim": state_width(self.observation_encoder),
        }
        places = settings.action_places
        if places is None:
            return settings.network(factory, **sizes)
        if factory is not None:
            raise ValueError(
                "action_places need the transformer; allowed: no other denoiser and no other "
                "energy."
            )
        encoder = self.observation_encoder
        if not isinstance(encoder, EncoderOfPlaces):
            raise ValueError(
                f"action_places with {type(encoder).__name__}, whose tokens have no places; "
                f"allowed: ObservationEncoder."
            )
        return PlacedDenoiser(
            **sizes,
            encoding=encoder.encoding_of_places(
                places.encoding, heads=settings.heads, head_dim=settings.dim // settings.heads
            ),
            arms=self.action_space.arms,
            positions=self._positions(places),
            values=places.values,
            units=self._units(),
            dim=settings.dim,
            depth=settings.depth,
            heads=settings.heads,
        )

    @property
    def reach(self) -> float | Tensor:
        """The largest magnitude of generated actions and keyposes."""
        reach = self.range_reach
        if self.keypose_range is None:
            return reach
        if isinstance(reach, Tensor):
            return reach.clamp(min=self.keypose_range.reach)
        return max(reach, self.keypose_range.reach)

    def noise(self, noise: Tensor) -> Tensor:
        """Returns standard normal numbers (B, K, R, action_dim) as the noise of smooth chunks."""
        return noise if self.posture is None else self.posture.noise(noise)

    def follow(self, clean: Tensor, prefix: NormalisedPrefix | None) -> Tensor:
        """Moves clean chunks (B, K, R, action_dim) to a prefix, which they then go on from."""
        if prefix is None:
            return clean
        return prefix.blend(clean if self.posture is None else self.posture.follow(clean, prefix))

    def denoised(
        self,
        network: Denoiser,
        noisy: Tensor,
        level: Tensor,
        precomputed: Precomputed,
        present: Tensor | None,
    ) -> Tensor:
        """Returns the output of a network for noisy chunks, both smooth, in their type."""
        output = network(self.smooth(noisy), level, precomputed, present)
        return self.smooth(output.to(noisy.dtype))

    @abstractmethod
    def generate_rows(
        self,
        conditioning: ConditioningTokens,
        generator: Generators,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Returns normalised rows, (B, rows, action_dim); see `ChunkPolicy.generate`.

        The prefix has as many rows.
        """

    def generate(
        self,
        conditioning: ConditioningTokens,
        generator: Generators,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Returns the chunk of the generated rows; see `ChunkPolicy.generate`."""
        if prefix is not None:
            prefix.check_shape((len(conditioning.tokens), self.chunk, self.action_dim))
            prefix = prefix.followed_by_free(self.rows - self.chunk)
        return self.generate_rows(conditioning, generator, prefix)[:, : self.chunk]

    @torch.inference_mode()
    def predict_keypose(self, batch: Batch, generator: Generators) -> Tensor:
        """Returns the next keypose in the units of the contract, (B, A), the mean of its rows.

        Raises:
            ValueError: The policy does not predict keyposes.
        """
        if self.keypose_range is None:
            raise ValueError(
                "This policy does not predict keyposes: its setting keypose is 0; allowed: above 0."
            )
        rows = self.generate_rows(self.observation_encoder(batch), generator)[:, self.chunk :]
        numbers = self.keypose_range.restore(rows.float().mean(dim=1, keepdim=True))
        return self.action_space.decode(numbers, batch)[:, 0]

    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch of windows; see `ChunkPolicy.loss`.

        A policy that predicts keyposes needs the key `keypose` (B, A) as well.
        """
        if self.keypose_range is None:
            return super().loss(batch)
        action = self.normalised(batch["action"].float(), batch)
        keypose = self.action_space.encode(batch["keypose"].float()[:, None], batch)
        shape = (len(action), self.rows - self.chunk)
        rows = self.keypose_range.normalise(keypose).expand(*shape, -1)
        weight = action.new_full(shape, self.keypose_weight / shape[1])
        return self.chunk_loss(
            self.observation_encoder(batch),
            torch.cat((action, rows), dim=1),
            torch.cat((batch["action_mask"].to(weight.dtype), weight), dim=1),
        )

    def counted_actions(self, batch: Batch) -> Tensor:
        """Returns the weights of the loss of a batch; see `ChunkPolicy.counted_actions`."""
        counted = super().counted_actions(batch)
        if self.keypose_range is None:
            return counted
        return counted + self.keypose_weight * len(batch["action_mask"])

    def precompute(self, network: Denoiser, conditioning: ConditioningTokens) -> Precomputed:
        """Precomputes tensors of conditioning tokens, once per observation."""
        if isinstance(network, PlacedDenoiser):
            places = conditioning.places
            assert places is not None  # `make_network` has checked the encoder.
            return network.precompute(
                conditioning.tokens,
                conditioning.state,
                places=places if network.positions is None else self._normalised(places),
            )
        if conditioning.state is None:
            return network.precompute(conditioning.tokens)
        reader = cast("DenoiserOfStates", network)
        return reader.precompute(conditioning.tokens, conditioning.state)

    def _positions(self, places: ActionPlaces) -> list[list[int]] | None:
        """Returns the generated numbers that are positions of the grippers; None: not needed."""
        if places.at == "gripper":
            return None
        if self.posture is not None:
            raise ValueError(
                "action_places.at is noisy_pose with policy.posture, whose numbers are no "
                "positions; allowed: action_places=gripper, or policy.posture=null."
            )
        if self.action_space.positions is None:
            raise ValueError(
                f"action_places.at is noisy_pose with actions of the space "
                f"{self.action_space.name!r}; allowed: 'gripper_poses' (action=gripper_poses)."
            )
        return [list(axes) for axes in self.action_space.positions]

    def _units(self) -> Tensor | None:
        """Returns what converts the rows to the range of actions; see `PlacedDenoiser`."""
        if self.keypose_range is None:
            return None
        zeros = torch.zeros(self.action_dim, dtype=torch.float64)
        origin, further = (each.restore(zeros) for each in (self.action_range, self.keypose_range))
        width = self.action_range.restore(zeros + 1) - origin
        factor = (self.keypose_range.restore(zeros + 1) - further) / width
        units = torch.stack((torch.ones_like(zeros), zeros))[:, None].repeat(1, self.rows, 1)
        units[:, self.chunk :] = torch.stack((factor, (further - origin) / width))[:, None]
        return units.to(torch.get_default_dtype())

    def _normalised(self, places: TokenPlaces) -> TokenPlaces:
        """Returns places with grippers and directions for normalised positions of actions.

        A generated number x is a position of `restore(x)`, an affine function, in metres.
        """
        zeros = torch.zeros(self.action_dim, device=places.grippers.device)
        positions = torch.tensor(self.action_space.positions)
        positions = positions.to(zeros.device, non_blocking=True)
        origin = self.action_range.restore(zeros)
        metres = (self.action_range.restore(zeros + 1) - origin)[positions]
        directions = places.directions
        ahead = (directions * origin[positions][:, None].to(directions.dtype)).sum(dim=-1)
        return replace(
            places,
            grippers=places.grippers + ahead,
            directions=directions * metres[:, None].to(directions.dtype),
        )
