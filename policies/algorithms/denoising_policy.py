"""The base of policies that generate chunks from noise: their networks, with places or without."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import ActionPlaces, ChunkPolicy, DenoisingSettings
from stringline.policies.networks.denoiser import (
    Denoiser,
    DenoiserFactory,
    DenoiserOfStates,
    EncoderOfPlaces,
    Precomputed,
)
from stringline.policies.networks.inputs import NormalisedPrefix, TokenPlaces
from stringline.policies.networks.placed_denoiser import PlacedDenoiser
from stringline.policies.observation.interfaces import ConditioningTokens, state_width


class DenoisingPolicy(ChunkPolicy):
    """Generates chunks by a network over noisy chunks.

    Attributes:
        denoiser: The network.
        sampling_steps: Steps from noise to data at run time.
        noise_samples: Noise samples per observation and training step.
    """

    denoiser: Denoiser

    def __init__(
        self, settings: DenoisingSettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        self.denoiser = self.make_network(settings, settings.denoiser)
        self.sampling_steps = settings.sampling_steps
        self.noise_samples = settings.noise_samples

    def make_network(
        self, settings: DenoisingSettings, factory: DenoiserFactory | None
    ) -> Denoiser:
        """Builds a network over noisy chunks by a factory; if None, the transformer."""
        sizes = {
            "action_dim": self.action_dim,
            "chunk": self.chunk,
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
            dim=settings.dim,
            depth=settings.depth,
            heads=settings.heads,
        )

    @property
    def reach(self) -> float | Tensor:
        """The largest magnitude of generated actions."""
        return self.range_reach

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
        """Returns the generated numbers that are positions of the grippers; None if not needed."""
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
