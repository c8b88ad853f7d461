"""Encodings with commuting generators: frequencies and a basis.

By theorem 3.4 of STRING (Schenck et al., 2025, arXiv 2502.02562) every translation-invariant
encoding by matrices is R(r) = P RoPE(Omega r) P^T with an orthogonal P. The tensor-product
encoding has frequencies too, but they multiply the logits instead of rotating tokens.
"""

import copy
from abc import abstractmethod
from typing import Self, final

import torch
from torch import Tensor

from stringline.encoders.positions.bases import BasisFactory, spread
from stringline.encoders.positions.encoding import (
    FactorPlaces,
    Places,
    PositionEncoding,
    RotaryPlaces,
)
from stringline.encoders.positions.frequencies import FrequencyFactory, MixedFrequencies
from stringline.encoders.positions.precision import computed_once, phases


class NoEncoding(PositionEncoding):
    """Attention without positions, the control of experiments."""

    def __init__(self, heads: int, head_dim: int, axes: int) -> None:
        super().__init__(heads, head_dim, axes)

    def reset_parameters(self, seed: int) -> None:
        """Does nothing: there are no parameters."""

    def zero_(self) -> Self:
        """Does nothing: there are no parameters."""
        return self

    def _places(self, coordinates: Tensor) -> Places:
        return Places()

    def _expected_places(self, coordinates: Tensor, spread: Tensor) -> Places:
        return Places()


class Rotary(PositionEncoding):
    """The base of all encodings by frequencies and a basis."""

    @abstractmethod
    def frequencies(self) -> Tensor:
        """Returns Omega, (heads | 1, axes, head_dim / 2), in radians per unit of coordinates."""

    @final
    def basis(self) -> Tensor | None:
        """Returns the orthogonal P, (heads | 1, head_dim, head_dim); None means the identity."""
        blocks = self.basis_blocks()
        return None if blocks is None else spread(blocks)

    def folded(self) -> "FixedRotary":
        """Returns the frequencies alone, no longer learned."""
        return FixedRotary(self.heads, self.frequencies())

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns R(r) = P RoPE(Omega r) P^T as matrices, a reference for tests."""
        phase = phases(coordinates, self.frequencies())
        return self._out_of_basis(of_planes(phase.cos(), phase.sin()))

    def generators(self) -> Tensor:
        """Returns antisymmetric L_k, (heads | 1, axes, head_dim, head_dim), of the rotation.

        R(r) = exp(sum_k r_k L_k).
        """
        omega = self.frequencies()
        return self._out_of_basis(of_planes(torch.zeros_like(omega), omega))

    def _out_of_basis(self, matrices: Tensor) -> Tensor:
        """Returns P M P^T for matrices M (..., head_dim, head_dim)."""
        basis = self.basis()
        if basis is None:
            return matrices
        basis = basis.to(matrices.dtype).unsqueeze(1)
        return basis @ matrices @ basis.mT

    @torch.no_grad()
    def injective(self) -> bool:
        """Returns whether every head distinguishes nearby positions.

        That is if its generators are independent, not at zero frequency or with fewer directions
        than axes.
        """
        return bool((torch.linalg.matrix_rank(self.frequencies().double()) == self.axes).all())

    def basis_blocks(self) -> Tensor | None:
        """Returns the blocks of P, (heads | 1, head_dim / b, b, b); None means the identity."""
        return None

    def _places(self, coordinates: Tensor) -> RotaryPlaces:
        return self._in_basis(coordinates, self.basis_blocks())

    def _further_places(self, coordinates: Tensor, like: Places) -> RotaryPlaces:
        return self._in_basis(coordinates, like.basis_blocks)

    def _in_basis(self, coordinates: Tensor, blocks: Tensor | None) -> RotaryPlaces:
        phase = phases(coordinates, self.frequencies())
        return RotaryPlaces(
            cos=computed_once(phase.cos()), sin=computed_once(phase.sin()), basis_blocks=blocks
        )

    def _expected_places(self, coordinates: Tensor, spread: Tensor) -> RotaryPlaces:
        omega = self.frequencies()
        phase = phases(coordinates, omega)
        damping = torch.exp(-0.5 * phases(spread.to(coordinates.dtype), omega).square())
        return RotaryPlaces(
            cos=computed_once(phase.cos() * damping),
            sin=computed_once(phase.sin() * damping),
            basis_blocks=self.basis_blocks(),
        )


def of_planes(diagonal: Tensor, skew: Tensor) -> Tensor:
    """Returns [[D, -S], [S, D]] for the diagonals (..., n) of D and S, (..., 2 n, 2 n)."""
    d = diagonal.diag_embed()
    s = skew.diag_embed()
    return torch.cat((torch.cat((d, -s), dim=-1), torch.cat((s, d), dim=-1)), dim=-2)


class FixedRotary(Rotary):
    """Fixed frequencies without a basis: the rest of an encoding after folding."""

    omega: Tensor

    def __init__(self, heads: int, omega: Tensor) -> None:
        """Stores Omega, (heads | 1, axes, head_dim / 2), in radians per unit of coordinates."""
        super().__init__(heads, 2 * omega.shape[-1], omega.shape[-2], share_heads=len(omega) == 1)
        self.register_buffer("omega", omega.detach().clone(memory_format=torch.contiguous_format))

    def frequencies(self) -> Tensor:
        """Returns Omega."""
        return self.omega

    def reset_parameters(self, seed: int) -> None:
        """Does nothing: the frequencies are fixed."""


class RotaryEncoding(Rotary):
    """Any frequencies in any basis; `presets.py` names the published combinations.

    P is applied before the rotation; after it, P would cancel between queries and keys.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        frequencies: FrequencyFactory,
        basis: BasisFactory | None = None,
        share_heads: bool = True,
        share_basis: bool | None = None,
        seed: int = 0,
    ) -> None:
        """Combines frequencies and a basis.

        Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            frequencies: Such as `functools.partial(MixedFrequencies, wavelengths=(0.04, 2.0))`.
            basis: Such as `CayleyBasis`; if None, the identity.
            share_heads: Whether all heads have the same frequencies.
            share_basis: Whether all heads have the same basis; if None, as `share_heads`.
            seed: Seed of the initial parameters.
        """
        super().__init__(heads, head_dim, axes, share_heads=share_heads)
        self.frequency_model = frequencies(sets=self.sets, axes=axes, planes=head_dim // 2)
        alike = share_heads if share_basis is None else share_basis
        self.basis_model = (
            None if basis is None else basis(sets=1 if alike else heads, size=head_dim)
        )
        self.reset_parameters(seed)

    def frequencies(self) -> Tensor:
        """Returns Omega, (heads | 1, axes, head_dim / 2), in radians per unit of coordinates."""
        omega: Tensor = self.frequency_model()
        return omega

    def basis_blocks(self) -> Tensor | None:
        """Returns the blocks of P, (heads | 1, head_dim / b, b, b); None means the identity."""
        return None if self.basis_model is None else self.basis_model.blocks()

    def without_constant_basis(self) -> "RotaryEncoding":
        """Returns this encoding without a basis that has no parameters, such as Fourier's."""
        if self.basis_model is None or any(True for _ in self.basis_model.parameters()):
            return self
        other = copy.copy(self)  # Shares its modules, but not the dictionary that names them.
        other._modules = dict(self._modules) | {"basis_model": None}
        return other

    def reset_parameters(self, seed: int) -> None:
        """Draws the frequencies and resets the basis."""
        self.frequency_model.reset_parameters(seed)
        if self.basis_model is not None:
            self.basis_model.reset_parameters(seed)

    def zero_(self) -> Self:
        """Sets the frequencies to zero, with nonzero gradients; the basis is unchanged."""
        self.frequency_model.zero_()
        return self


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
            features: Number of frequencies per head, m.
            share_heads: One set of frequencies for all heads; if False, one per head.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head.
            axes: Coordinates per place.
            wavelengths: Shortest and longest initial wavelength, in the unit of the coordinates.
            theta: Instead of wavelengths: the base of RoPE-Mixed for two axes in patches.
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
