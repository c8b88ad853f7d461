"""Encodings with commuting generators, frequencies and a basis, and the published ones by name.

By theorem 3.4 of STRING (Schenck et al., 2025, arXiv 2502.02562) every translation-invariant
encoding by matrices is R(r) = P RoPE(Omega r) P^T with an orthogonal P. The tensor-product
encoding has frequencies too, but they multiply the logits instead of rotating tokens.
"""

import copy
from abc import abstractmethod
from functools import partial
from typing import Self, final

import torch
from torch import Tensor

from stringline.encoders.positions.bases import (
    Basis,
    BasisFactory,
    CayleyBasis,
    FourierBasis,
    spread,
)
from stringline.encoders.positions.encoding import (
    FactorPlaces,
    Places,
    PositionEncoding,
    RotaryPlaces,
)
from stringline.encoders.positions.frequencies import (
    AxialFrequencies,
    CirculantFrequencies,
    FrequencyFactory,
    MixedFrequencies,
    with_still_planes,
)
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
    """Any frequencies in any basis; the classes below name the published combinations.

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


class Rope(RotaryEncoding):
    """RoPE on axes (Su et al., RoFormer, 2021; in 2D Heo et al., 2024), without parameters.

    Any even head_dim and any number of axes; planes are split as evenly as possible. Departs from
    the published layout in that planes are the channels (n, n + head_dim / 2), not neighbours.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        theta: float | None = None,
        wavelengths: tuple[float, float] | None = None,
        still: float = 0.0,
    ) -> None:
        """Computes the frequencies.

        Args:
            still: Share of the planes that do not rotate, from 0, below 1, see `StillPlanes`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            theta: Base of the geometric series: 100 in Heo et al. for positions in patches, 10000
                in RoFormer and STRING.
            wavelengths: Instead of theta: the shortest and longest wavelength in the unit of the
                coordinates.
        """
        factory = partial(AxialFrequencies, theta=theta, wavelengths=wavelengths)
        super().__init__(heads, head_dim, axes, frequencies=with_still_planes(factory, still))


class VisionLlamaRope(Rope):
    """VisionLLaMA's RoPE (Chu et al., 2024, arXiv 2403.00522): axial, base 10000.

    `GridPlaces(grid=...)` scales other resolutions to the trained one, for every encoding.
    """

    def __init__(self, heads: int, head_dim: int, axes: int = 2, *, theta: float = 10000.0) -> None:
        """Computes the frequencies.

        Args:
            theta: Base of the geometric series of frequencies, above 1.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
        """
        super().__init__(heads, head_dim, axes, theta=theta)


class RopeMixed(RotaryEncoding):
    """RoPE-Mixed (Heo et al., 2024, arXiv 2403.13298): a learned direction per plane and no basis.

    For any number of axes. Departs from the paper in that directions may start isotropically, with
    `wavelengths` in the unit of the coordinates; `theta` restores its initial values on grids.
    STRING states theta = 100, Heo's code uses 10.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        share_heads: bool = True,
        still: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Initialises the frequencies; exactly one of `wavelengths` and `theta` is given.

        `still` is the share of the planes that do not rotate, see `StillPlanes`.

        Args:
            share_heads: One set of frequencies for all heads; if False, one per head.
            still: Share of the planes that do not rotate, from 0, below 1, see `StillPlanes`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            wavelengths: Shortest and longest initial wavelength, in the unit of the coordinates.
            theta: Instead of wavelengths: the base for two axes in patches.
            seed: Seed of the initial parameters.
        """
        factory = partial(MixedFrequencies, wavelengths=wavelengths, theta=theta)
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=with_still_planes(factory, still),
            share_heads=share_heads,
            seed=seed,
        )


class CayleyString(RotaryEncoding):
    """Cayley-STRING (Schenck et al., 2025, eq. 10): learned frequencies in a learned `CayleyBasis`.

    The paper does not specify the initial S; here S = 0, so it starts as RoPE-Mixed.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        bandwidth: int | None = None,
        share_heads: bool = True,
        share_basis: bool | None = None,
        still: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Initialises the parameters.

        Args:
            share_heads: One set of frequencies and one basis for all heads; if False, one of each
                per head.
            share_basis: One basis for all heads; if False, one per head; if None, as share_heads.
            still: Share of the planes that do not rotate, from 0, below 1, see `StillPlanes`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            wavelengths: Shortest and longest initial wavelength, in the unit of the coordinates.
            theta: Instead of wavelengths: the base of RoPE-Mixed for two axes in patches.
            bandwidth: S has nonzero entries only within this distance of the diagonal; if None, S
                is dense.
            seed: Seed of the initial parameters.
        """
        factory = partial(MixedFrequencies, wavelengths=wavelengths, theta=theta)
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=with_still_planes(factory, still),
            basis=partial(CayleyBasis, bandwidth=bandwidth),
            share_heads=share_heads,
            share_basis=share_basis,
            seed=seed,
        )


class CirculantString(RotaryEncoding):
    """Circulant-STRING (Schenck et al., 2025, theorem 3.5): generators of learned circulant blocks.

    In the real Fourier basis of the blocks it is a rotation, so it needs no FFT. It equals
    RoPE-Mixed with a constant basis and one plane per block that does not rotate.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        block: int = 16,
        wavelengths: tuple[float, float] | None = None,
        theta: float | None = None,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Initialises the parameters.

        Args:
            block: Channels per circulant block, even, at least 4, a divisor of the channels per
                head. Best in the paper: 16 on ImageNet, 32 on WebLI-3D.
            share_heads: One set of coefficients for all heads; if False, one per head.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, a multiple of `block`.
            axes: Coordinates per place.
            wavelengths: Shortest and longest initial wavelength of the rotating planes, in the unit
                of the coordinates.
            theta: Instead of wavelengths: the base of RoPE-Mixed for two axes in patches.
            seed: Seed of the initial parameters.
        """
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=partial(
                CirculantFrequencies, block=block, wavelengths=wavelengths, theta=theta
            ),
            basis=partial(FourierBasis, block=block),
            share_heads=share_heads,
            seed=seed,
        )


class LiereCommute(RotaryEncoding):
    """LieRE-Commute (Ostmeier et al., 2024, arXiv 2406.10322): LieRE with blocks of two.

    Such blocks commute. It equals RoPE-Mixed with initial frequencies uniform between 0 and
    `uniform`, for coordinates from 0 to 1.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        uniform: float = 6.283185307179586,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Initialises the frequencies.

        Args:
            share_heads: One set of frequencies for all heads; if False, one per head.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            uniform: Largest initial frequency, 2 pi in the paper.
            seed: Seed of the initial parameters.
        """
        factory = partial(MixedFrequencies, uniform=uniform)
        super().__init__(
            heads, head_dim, axes, frequencies=factory, share_heads=share_heads, seed=seed
        )


class RopeInLearnedBasis(RotaryEncoding):
    """Rethinking RoPE (Liu and Zhou, 2025): axial RoPE in a learned basis, which mixes the axes.

    The basis is one of `CayleyBasis`, `ExponentialBasis`, `GivensBasis`, `ButterflyGivens` and
    `HouseholderBasis`.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        basis: BasisFactory | type[Basis] = CayleyBasis,
        theta: float | None = None,
        wavelengths: tuple[float, float] | None = None,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Initialises the parameters; exactly one of `theta` and `wavelengths` is given.

        Args:
            share_heads: One basis for all heads; if False, one per head.
            basis: `CayleyBasis`, or another class of `encoders/positions/bases.py`.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, even.
            axes: Coordinates per place.
            theta: Base of the geometric series of frequencies.
            wavelengths: Instead of theta: the shortest and longest wavelength in the unit of the
                coordinates.
            seed: Seed of the initial parameters.
        """
        factory: FrequencyFactory = partial(AxialFrequencies, theta=theta, wavelengths=wavelengths)
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=factory,
            basis=basis,
            share_heads=True,
            share_basis=share_heads,
            seed=seed,
        )
