"""Tensor-product STRING: places multiply the logits instead of turning tokens."""

from typing import Self

import torch
from torch import Tensor

from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.frequencies import MixedFrequencies
from stringline.encoders.positions.places import FactorPlaces
from stringline.encoders.positions.precision import phases


class TensorProductString(PositionEncoding):
    """Tokens become vec(f(r) z^T) with Fourier features f of the place (Schenck et al., STRING, 2025, extension 1).

    The product of two such tokens is q^T k times (1 / m) sum_n cos(w_n (r_i - r_j)), so softmax
    attention multiplies its logits and never forms the long tokens; linear attention does
    (`Places.expand`). Values cannot be relative with it.
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
        """Draws the start.

        Args:
            heads: Attention heads.
            head_dim: Channels per head.
            axes: Coordinates per place.
            features: Frequencies m.
            wavelengths: Shortest and longest at the start, in the unit of the coordinates.
            theta: In their stead, the base of RoPE-Mixed for two axes in patches.
            share_heads: One set of frequencies for all heads.
            seed: Of the start.
        """
        super().__init__(heads, head_dim, axes, share_heads=share_heads)
        self.frequency_model = MixedFrequencies(
            self.sets, axes, features, wavelengths=wavelengths, theta=theta, seed=seed
        )

    def frequencies(self) -> Tensor:
        """Returns w, (heads | 1, axes, features), in radians per unit of the coordinates."""
        omega: Tensor = self.frequency_model()
        return omega

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns identities: nothing is rotated."""
        return self._identity(coordinates)

    def reset_parameters(self, seed: int) -> None:
        """Draws frequencies anew."""
        self.frequency_model.reset_parameters(seed)

    def zero_(self) -> Self:
        """Refuses: at zero the factor is one, but so flat that no gradient reaches the frequencies."""
        return super().zero_()

    def _places(self, coordinates: Tensor) -> FactorPlaces:
        phase = phases(coordinates, self.frequencies())
        scale = phase.shape[-1] ** -0.5
        return FactorPlaces(features=torch.cat((phase.cos(), phase.sin()), dim=-1) * scale)
