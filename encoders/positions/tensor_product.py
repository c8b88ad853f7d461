"""Tensor-product STRING: positions multiply the logits instead of rotating tokens."""

import torch
from torch import Tensor

from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.frequencies import MixedFrequencies
from stringline.encoders.positions.places import FactorPlaces
from stringline.encoders.positions.precision import phases


class TensorProductString(PositionEncoding):
    """Tokens become vec(f(r) z^T) with Fourier features f (STRING, 2025, extension 1).

    Schenck et al., arXiv 2502.02562. The product of two such tokens is q^T k times (1 / m) sum_n
    cos(w_n (r_i - r_j)). Softmax attention multiplies its logits by this factor and never forms the
    long tokens; linear attention forms them (`Places.expand`). Values cannot be relative. At zero
    frequencies all gradients are zero, so `zero_` raises a ValueError.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        features: int = 8,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Initialises the frequencies.

        Args:
            heads: Number of attention heads.
            head_dim: Channels per head.
            axes: Coordinates per place.
            features: Number of frequencies, m.
            wavelengths: Shortest and longest initial wavelength, in the unit of the coordinates.
            theta: Instead of wavelengths: the base of RoPE-Mixed for two axes in patches.
            share_heads: One set of frequencies for all heads.
            seed: Seed of the initial parameters.
        """
        super().__init__(heads, head_dim, axes, share_heads=share_heads)
        self.frequency_model = MixedFrequencies(
            self.sets, axes, features, wavelengths=wavelengths, theta=theta, seed=seed
        )

    def frequencies(self) -> Tensor:
        """Returns w, (heads | 1, axes, features), in radians per unit of the coordinates."""
        omega: Tensor = self.frequency_model()
        return omega

    def reset_parameters(self, seed: int) -> None:
        """Draws the frequencies."""
        self.frequency_model.reset_parameters(seed)

    def _places(self, coordinates: Tensor) -> FactorPlaces:
        phase = phases(coordinates, self.frequencies())
        scale = phase.shape[-1] ** -0.5
        return FactorPlaces(features=torch.cat((phase.cos(), phase.sin()), dim=-1) * scale)
