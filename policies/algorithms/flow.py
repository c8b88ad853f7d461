"""The flow policy: action chunks carried from noise to data along straight lines.

Flow matching (Lipman et al., ICLR 2023, arXiv 2210.02747, equation 23) on the linear path of
rectified flow (Liu et al., ICLR 2023, arXiv 2209.03003, equation 1). At noise level s from 0 (data)
to 1 (noise) a chunk is (1 - s) data + s noise, and the network learns the velocity data - noise.
Levels count from the data, as in diffusion, opposite to the time of those papers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import DenoisingSettings, masked_mean
from stringline.policies.algorithms.denoising_policy import (
    DenoisingPolicy,
    check_name,
    starting_noise,
    within,
)
from stringline.policies.algorithms.learned_policy import Generators
from stringline.policies.networks.denoiser import Precomputed
from stringline.policies.networks.inputs import NormalisedPrefix
from stringline.policies.observation.interfaces import ConditioningTokens

Solver = Literal["euler", "midpoint", "heun"]
EVALUATIONS: dict[Solver, int] = {"euler": 1, "midpoint": 2, "heun": 2}
"""Evaluations of the network per step."""

Velocity = Callable[[Tensor, float], Tensor]


def integrate_ode(
    velocity: Velocity, start: Tensor, *, level: float, steps: int, solver: Solver
) -> Tensor:
    """Integrates d chunk / d (-level) = velocity(chunk, level) from a noise level to 0.

    Args:
        velocity: The direction from noise to data at a chunk and its level.
        start: The chunk at the first level, of any shape.
        level: The first level, above 0; 1 is pure noise.
        steps: Number of equal steps.
        solver: `euler` is of first order; `midpoint` and `heun` (explicit trapezoid) are of second
            order with two evaluations per step.
    """
    chunk = start
    width = level / steps
    for step in range(steps):
        here = level * (1 - step / steps)
        slope = velocity(chunk, here)
        if solver == "midpoint":
            slope = velocity(chunk + width / 2 * slope, here - width / 2)
        elif solver == "heun":
            slope = (slope + velocity(chunk + width * slope, max(here - width, 0.0))) / 2
        chunk = chunk + width * slope
    return chunk


NoiseLevelDistribution = Literal["uniform", "beta"]


@dataclass(frozen=True, kw_only=True)
class FlowSettings(DenoisingSettings):
    """Settings of a flow policy; its denoiser predicts the velocity.

    Attributes:
        solver: euler: one evaluation of the network per step; midpoint or heun: two, of second
            order.
        noise_level_distribution: Distribution of the trained noise levels: `uniform`, or `beta`:
            0.001 + 0.999 Beta(1.5, 1), which emphasises high noise (Black et al., pi0, 2024, arXiv
            2410.24164, appendix B, as in openpi).
    """

    solver: Solver = "euler"
    noise_level_distribution: NoiseLevelDistribution = "beta"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.solver, "solver", get_args(Solver))
        check_name(
            self.noise_level_distribution,
            "noise level distribution",
            get_args(NoiseLevelDistribution),
        )


class FlowPolicy(DenoisingPolicy):
    """Flow matching over normalised action chunks."""

    def __init__(self, settings: FlowSettings, contract: Contract, statistics: Statistics) -> None:
        super().__init__(settings, contract, statistics)
        self.solver: Solver = settings.solver
        self.noise_level_distribution: NoiseLevelDistribution = settings.noise_level_distribution

    def chunk_loss(self, conditioning: ConditioningTokens, action: Tensor, mask: Tensor) -> Tensor:
        """Returns the mean squared error of the velocity over the actions inside the episode."""
        clean = action[:, None].expand(-1, self.noise_samples, -1, -1)
        noise = self.noise(torch.randn_like(clean))
        level = self._draw_levels(clean.shape[:2], clean)
        noisy = torch.lerp(clean, noise, level[..., None, None])
        precomputed = self.precompute(self.denoiser, conditioning)
        velocity = self.denoised(self.denoiser, noisy, level, precomputed, conditioning.present)
        return masked_mean((velocity - (clean - noise)) ** 2, mask)

    def generate(
        self,
        conditioning: ConditioningTokens,
        generator: Generators,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Integrates from noise to data; see `constrained_walk`."""
        return self.propose(
            conditioning, self.precompute(self.denoiser, conditioning), 1, generator, prefix
        )[:, 0]

    def propose(
        self,
        conditioning: ConditioningTokens,
        precomputed: Precomputed,
        samples: int,
        generator: Generators | None,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Draws K normalised chunks per observation.

        Args:
            conditioning: Conditioning tokens of B observations.
            precomputed: Result of `precompute` of the denoiser for these tokens.
            samples: K.
            generator: Generator of the noise; if None, torch's global one.
            prefix: Actions that the chunks have to follow; if None, all are free.

        Returns:
            (B, K, T, A).
        """
        noise = starting_noise(
            conditioning.tokens, samples, (self.chunk, self.action_dim), generator
        )
        noise = self.noise(noise)
        if prefix is not None:
            prefix.check_shape(noise[:, 0].shape)
        return self.constrained_walk(
            noise, 1.0, self.sampling_steps, precomputed, conditioning.present, prefix
        )

    def constrained_walk(
        self,
        noisy: Tensor,
        level: float,
        steps: int,
        precomputed: Precomputed,
        present: Tensor | None,
        prefix: NormalisedPrefix | None,
    ) -> Tensor:
        """Carries chunks from a noise level to the data.

        A prefix is inpainted: its velocity is that of the straight line from its start to the
        prefix action, blended with the network's by the weight, so at every level the free actions
        see it with the expected noise. Black, Galliker and Levine (2025, arXiv 2506.07339, equation
        2) also send the gradient of the mismatch through the network, which moves the free actions
        directly and costs a backward pass per step; here they only attend to it.

        Args:
            noisy: (B, K, T, A) at that level.
            level: Above 0, up to 1.
            steps: Number of steps.
            precomputed: Precomputed from the conditioning tokens by the denoiser.
            present: Presence of the conditioning tokens.
            prefix: Actions that the chunks have to follow; if None, all are free.

        Returns:
            (B, K, T, A), within the reach of the data.
        """
        line = None if prefix is None else (prefix.action[:, None] - noisy) / level

        def velocity(chunk: Tensor, here: float) -> Tensor:
            levels = torch.full(chunk.shape[:2], here, dtype=chunk.dtype, device=chunk.device)
            free = self.denoised(self.denoiser, chunk, levels, precomputed, present)
            if prefix is None:
                return free
            if self.posture is not None and here > 0:
                free = (self.posture.follow(chunk + here * free, prefix) - chunk) / here
            return prefix.blend(free, line)

        chunk = integrate_ode(velocity, noisy, level=level, steps=steps, solver=self.solver)
        chunk = within(chunk, self.reach)
        return chunk if prefix is None else prefix.enforce(chunk)

    def _draw_levels(self, shape: torch.Size, like: Tensor) -> Tensor:
        """Returns random noise levels of that shape, from torch's global generator."""
        even = torch.rand(shape, dtype=like.dtype, device=like.device)
        # Beta(1.5, 1) has the distribution function x^1.5, so its quantiles are u^(2/3).
        return (
            even if self.noise_level_distribution == "uniform" else 0.001 + 0.999 * even ** (2 / 3)
        )
