"""A known distribution of action chunks, and the best networks for it in closed form."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

CHUNK, ACTIONS = 2, 14


class TwoArcs:
    """The target: Gaussians in a row along two half circles, in a plane of the chunks."""

    thickness = 0.02

    def __init__(self, points: int = 200) -> None:
        generator = torch.Generator().manual_seed(7)
        self.plane = torch.linalg.qr(torch.randn(CHUNK * ACTIONS, 2, generator=generator))[0]
        angle = math.pi * (torch.arange(points) + 0.5) / points
        arc = 1.25 * torch.stack((angle.cos() + 0.5, angle.sin()), dim=1)
        self.means = torch.cat((arc, -arc))
        self.weights = torch.cat(
            (torch.full((points,), 0.3 / points), torch.full((points,), 0.7 / points))
        )

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Returns chunks (count, T, A)."""
        means = self.means[
            torch.multinomial(self.weights, count, replacement=True, generator=generator)
        ]
        chunks = means @ self.plane.T + self.thickness * torch.randn(
            count, CHUNK * ACTIONS, generator=generator
        )
        return chunks.reshape(count, CHUNK, ACTIONS)

    def clean(self, noisy: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
        """Returns the posterior mean (B, K, T, A) of chunks given signal chunk + noise N(0, 1)."""
        flat = noisy.flatten(2)
        variance = (signal * self.thickness)[..., None] ** 2 + noise[..., None] ** 2
        signal = signal[..., None]
        seen = flat @ self.plane
        odds = self.weights.log() - (
            seen[:, :, None] - signal[..., None] * self.means
        ).square().sum(dim=-1) / (2 * variance)
        mean = odds.softmax(dim=-1) @ self.means @ self.plane.T
        return (mean + signal * self.thickness**2 / variance * (flat - signal * mean)).reshape(
            noisy.shape
        )


class BestDenoiser(nn.Module):
    """The best prediction of the clean chunk by a diffusion policy: the posterior mean.

    `kept` is the share of the signal in the variance at each level.
    """

    def __init__(self, target: TwoArcs, kept: Tensor) -> None:
        super().__init__()
        self.target = target
        self.kept = kept

    def precompute(self, conditioning: Tensor) -> Sequence[tuple[Tensor, ...]]:
        """Returns nothing, since the prediction needs no conditioning."""
        return []

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        precomputed: Sequence[tuple[Tensor, ...]],
        present: Tensor | None = None,
    ) -> Tensor:
        """See `Denoiser`."""
        kept = self.kept[(level * len(self.kept)).round().long()]
        return self.target.clean(noisy, kept.sqrt(), (1 - kept).sqrt())


class BestVelocity(BestDenoiser):
    """The best prediction of the velocity by a flow policy."""

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        precomputed: Sequence[tuple[Tensor, ...]],
        present: Tensor | None = None,
    ) -> Tensor:
        """See `Denoiser`."""
        level = level.clamp(min=1e-4)  # Heun evaluates 0 as well, where the velocity is the limit.
        clean = self.target.clean(noisy, 1 - level, level)
        return (clean - noisy) / level[..., None, None]
