"""LieRE: rotations with generators that need not commute, one matrix exponential per place."""

import math
from typing import Self

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.encoders.positions.bases import antisymmetric
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.places import MatrixPlaces
from stringline.encoders.positions.precision import values_are_hidden


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
            heads: Number of attention heads.
            head_dim: Channels per head, a multiple of `block`.
            axes: Coordinates per place.
            block: Size of the blocks: `head_dim` for the paper's full form, 8 for its cheap one.
            uniform: Entries above the diagonal are drawn uniformly from 0 to this value: 2 pi in
                the paper, which gives very fast planes.
            share_heads: One set of generators for all heads, as in the paper.
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
