"""Encodings with trainable angle matrices: ComRoPE, whose matrices commute, and LieRE.

ComRoPE (Yu et al., 2025, arXiv 2506.03737): R(r) = exp(sum_k r_k A_k) with antisymmetric blocks
A_k that commute, either because each block belongs to one axis (axial partition, AP) or because
all axes share one matrix up to a factor (linearly dependent, LD).

Departure: the parameters are not the entries of a block but its planes and their frequencies.
Both describe the same functions. The matrix exponential per token becomes one rotation, the
basis can be folded, and the gradient stays finite where two planes have the same frequency,
unlike that of an eigendecomposition. `init_std` draws angle matrices as the published code does
and decomposes them.

The generators of LieRE need not commute, so it computes one matrix exponential per place.
"""

import math
from abc import abstractmethod
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE
from stringline.encoders.positions.bases import CayleyBasis, antisymmetric
from stringline.encoders.positions.encoding import MatrixPlaces, PositionEncoding
from stringline.encoders.positions.frequencies import AxialFrequencies, LinearlyDependentFrequencies
from stringline.encoders.positions.precision import values_are_hidden
from stringline.encoders.positions.rotary import RotaryEncoding, of_planes


class _ComRope(RotaryEncoding):
    """Blocks of angle matrices A_j, one for each block j of channels, decomposed into planes."""

    frequency_model: AxialFrequencies | LinearlyDependentFrequencies
    basis_model: CayleyBasis

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        block: int = 8,
        init_std: float = 1.0,
        share_heads: bool = False,
        seed: int = 0,
    ) -> None:
        """Initialises the angle matrices.

        Args:
            block: Channels per angle matrix, an even divisor of the channels per head; best in the
                paper: 8.
            init_std: Standard deviation of the initial entries of the angle matrices, radians per
                unit; 1 in the published code, unspecified in the paper.
            share_heads: One set of angle matrices for all heads; if False, one per head, as in the
                published code.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, a multiple of `block`.
            axes: Coordinates per place, expected from 0 to 1 (`GridPlaces(grid=1)`).
            seed: Seed of the initial parameters.
        """
        NOT_NEGATIVE.check(init_std=init_std)
        self.init_std = init_std
        self.block = block
        super().__init__(
            heads,
            head_dim,
            axes,
            frequencies=self._frequency_factory(block),
            basis=partial(CayleyBasis, block=block),
            share_heads=share_heads,
            seed=seed,
        )

    @staticmethod
    @abstractmethod
    def _frequency_factory(
        block: int,
    ) -> "partial[AxialFrequencies] | partial[LinearlyDependentFrequencies]":
        """Returns the factory of the frequencies."""

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws A = B - B^T with normal entries of B of standard deviation `init_std`."""
        self._draw(torch.Generator().manual_seed(seed))

    def _draw(self, generator: torch.Generator) -> None:
        shape = (self.sets, self.head_dim // self.block, self.block, self.block)
        drawn = self.init_std * torch.randn(
            shape, dtype=torch.float64, device="cpu", generator=generator
        )
        self.set_angle_matrices(drawn - drawn.mT)

    @torch.no_grad()
    def set_angle_matrices(self, matrices: Tensor) -> Self:
        """Sets published angle matrices; the factors of ComRoPE-LD are kept.

        Args:
            matrices: Antisymmetric, (heads | 1, blocks, block, block), in radians per unit of the
                coordinates.
        """
        shape = (self.sets, self.head_dim // self.block, self.block, self.block)
        if matrices.shape != shape or not torch.allclose(matrices, -matrices.mT):
            got = tuple(matrices.shape)
            raise ValueError(
                f"Angle matrices have shape {got}; allowed: antisymmetric ones of shape {shape}."
            )
        magnitudes, planes = planes_of(matrices.double())
        scale = self.frequency_model.scale
        scaled = magnitudes.flatten(1).to(scale.device) / scale
        self.frequency_model.scaled.copy_(scaled)
        self.basis_model.skew.zero_()
        self.basis_model.start = planes.to(self.basis_model.skew.device)
        return self


class ComRopeAp(_ComRope):
    """ComRoPE-AP: blocks of channels are assigned to the axes in turn.

    Departs from the published code in that the number of blocks need not be a multiple of the
    number of axes.
    """

    @staticmethod
    def _frequency_factory(block: int) -> "partial[AxialFrequencies]":
        # The angle matrices overwrite theta.
        return partial(AxialFrequencies, theta=100.0, learned=True, block=block, scale=1.0)


class ComRopeLd(_ComRope):
    """ComRoPE-LD: all axes share the angle matrix of a block up to a learned factor from N(0, 1).

    Departs from the published code in that heads share factors only if they share matrices, as
    counted in table 7 of the paper.
    """

    @staticmethod
    def _frequency_factory(block: int) -> "partial[LinearlyDependentFrequencies]":
        return partial(LinearlyDependentFrequencies, block=block, theta=100.0, scale=1.0)

    def _draw(self, generator: torch.Generator) -> None:
        super()._draw(generator)
        directions = self.get_parameter("frequency_model.directions")
        directions.copy_(torch.randn(directions.shape, dtype=torch.float64, generator=generator))


def planes_of(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Decomposes antisymmetric matrices (..., b, b), b even: A = U [[0, -D], [D, 0]] U^T.

    Returns the magnitudes diag D >= 0, (..., b / 2), and the orthogonal U (..., b, b), whose
    columns n and n + b / 2 span plane n.
    """
    half = matrices.shape[-1] // 2
    # i A is Hermitian, its eigenvalues are pairs +-d, and the vector x + i y of +d spans a plane
    # with A x = d y, A y = -d x. For d = 0, x and y are arbitrary; a perturbation below rounding
    # selects the standard planes.
    standard = torch.arange(1, half + 1, dtype=matrices.dtype, device=matrices.device)
    disturbance = of_planes(torch.zeros_like(standard), standard)
    size = matrices.abs().amax(dim=(-1, -2), keepdim=True)
    _, vectors = torch.linalg.eigh(
        1j * (matrices + 1e-14 * torch.where(size > 0, size, 1.0) * disturbance)
    )
    positive = math.sqrt(2) * vectors[..., half:]
    left, _, right = torch.linalg.svd(torch.cat((positive.real, positive.imag), dim=-1))
    # The nearest orthogonal matrix: slow planes are not exactly orthogonal before.
    basis = left @ right
    turned = basis.mT @ matrices @ basis
    return turned[..., half:, :half].diagonal(dim1=-2, dim2=-1), basis


class LieRE(PositionEncoding):
    """R(r) = exp(sum_k r_k A_k) with learned antisymmetric A_k in blocks (Ostmeier et al., 2024).

    With blocks above two and more than one axis the A_k do not commute (arXiv 2406.10322), and
    attention depends on more than differences of positions: R(a)^T R(b) is not R(b - a), so a
    common shift changes the outputs. Coordinates are expected from 0 to 1.
    """

    relative = False

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        block: int = 8,
        uniform: float = 2 * math.pi,
        share_heads: bool = True,
        seed: int = 0,
    ) -> None:
        """Initialises the generators.

        Args:
            block: Channels per generator, a divisor of the channels per head; all of them: the full
                form of the paper; 8: its cheap one.
            share_heads: One set of generators for all heads, as in the paper; if False, one per
                head.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head, a multiple of `block`.
            axes: Coordinates per place.
            uniform: Entries above the diagonal are drawn uniformly from 0 to this value: 2 pi in
                the paper, which gives very fast planes.
            seed: Seed of the initial parameters.

        Raises:
            ValueError: `block` does not divide `head_dim`, or `uniform` is not positive.
        """
        super().__init__(heads, head_dim, axes, share_heads=share_heads)
        if block < 2 or head_dim % block:
            raise ValueError(f"block is {block}; allowed: divisors of head_dim {head_dim} from 2.")
        POSITIVE.check(uniform=uniform)
        self.block = block
        self.uniform = uniform
        self.entries = nn.Parameter(
            torch.empty(self.sets, axes, head_dim // block, block * (block - 1) // 2)
        )
        self.reset_parameters(seed)

    def generators(self) -> Tensor:
        """Returns A_k in blocks, (heads | 1, axes, blocks, block, block)."""
        rows, columns = torch.triu_indices(
            self.block, self.block, offset=1, device=self.entries.device
        )
        return antisymmetric(self.entries, self.block, rows, columns)

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns R(r) as matrices (B, heads | 1, N, head_dim, head_dim)."""
        blocks = self._exponential(coordinates)
        identity = torch.eye(blocks.shape[-3], dtype=blocks.dtype, device=blocks.device)
        dense = blocks.unsqueeze(-2) * identity[:, None, :, None]
        return dense.reshape(*blocks.shape[:3], self.head_dim, self.head_dim)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the generators."""
        generator = torch.Generator().manual_seed(seed)
        self.entries.copy_(
            self.uniform * torch.rand(self.entries.shape, dtype=torch.float64, generator=generator)
        )

    @torch.no_grad()
    def zero_(self) -> Self:
        """Sets the generators to zero, with nonzero gradients."""
        self.entries.zero_()
        return self

    def _places(self, coordinates: Tensor) -> MatrixPlaces:
        return MatrixPlaces(rotations=self._of_each_grid_once(coordinates))

    def _of_each_grid_once(self, coordinates: Tensor) -> Tensor:
        """Returns rotations (B, heads | 1, N, blocks, block, block), once for equal grids."""
        if coordinates.requires_grad or values_are_hidden(coordinates):
            return self._exponential(coordinates)
        if len(coordinates) > 1 and bool((coordinates == coordinates[:1]).all()):
            return self._exponential(coordinates[:1]).expand(len(coordinates), -1, -1, -1, -1, -1)
        return self._exponential(coordinates)

    def _exponential(self, coordinates: Tensor) -> Tensor:
        weights = coordinates[:, None, :, :, None, None, None]
        exponent = (weights * self.generators().to(coordinates.dtype).unsqueeze(1)).sum(dim=3)
        rotations: Tensor = torch.linalg.matrix_exp(exponent)
        return rotations
