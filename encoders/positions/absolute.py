"""Absolute position encodings, for comparison: they add an embedding to each token."""

from collections.abc import Sequence
from itertools import product
from typing import Self

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import FINITE
from stringline.encoders.positions.encoding import Places, PositionEncoding
from stringline.encoders.positions.frequencies import AxialFrequencies
from stringline.encoders.positions.precision import phases


class SinusoidalEncoding(PositionEncoding):
    """Fixed cosines and sines of each coordinate (Vaswani et al., 2017; MoCo v3, 2021)."""

    relative = False
    in_every_layer = False

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        theta: float | None = None,
        wavelengths: tuple[float, float] | None = None,
    ) -> None:
        """Computes the frequencies.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head; tokens have heads head_dim.
            axes: Coordinates per place.
            theta: Base of the geometric series of frequencies, above 1, 10000 in the papers.
            wavelengths: Instead of theta: the shortest and longest wavelength in the unit of the
                coordinates.
        """
        super().__init__(heads, head_dim, axes)
        self.frequency_model = AxialFrequencies(
            1, axes, heads * head_dim // 2, theta=theta, wavelengths=wavelengths
        )

    def reset_parameters(self, seed: int) -> None:
        """Does nothing: the frequencies are fixed."""

    def _places(self, coordinates: Tensor) -> Places:
        phase = phases(coordinates, self.frequency_model()).squeeze(1)
        return Places(embedding=torch.cat((phase.cos(), phase.sin()), dim=-1))


class LearnedEncoding(PositionEncoding):
    """A learned table over a grid of cells (Dosovitskiy et al., ViT, 2021), interpolated linearly.

    Interpolation between the centres of the cells serves any position, and images of another
    resolution like ViT's resampled tables.
    """

    relative = False
    in_every_layer = False

    def __init__(
        self,
        heads: int,
        head_dim: int,
        axes: int,
        *,
        cells: int | Sequence[int],
        low: float | Sequence[float],
        high: float | Sequence[float],
        seed: int = 0,
    ) -> None:
        """Initialises the table.

        Args:
            cells: Cells of the table along every axis, or a number for each.
            low: Lower end of the table along every axis, in the unit of the coordinates, or a
                number for each.
            high: Upper end; positions outside of the table take the value of the nearest cell.

        Other Args:
            heads: Number of attention heads.
            head_dim: Channels per head; tokens have heads head_dim.
            axes: Coordinates per place.
            seed: Seed of the initial parameters.

        Raises:
            ValueError: The number of entries is not that of the axes, a count is not positive, or a
                range is empty or infinite.
        """
        super().__init__(heads, head_dim, axes)
        cells = [cells] * axes if isinstance(cells, int) else cells
        low, high = ([end] * axes if isinstance(end, int | float) else end for end in (low, high))
        sane = len(cells) == len(low) == len(high) == axes and min(cells) > 0
        if not sane or any(
            a not in FINITE or b not in FINITE or not a < b for a, b in zip(low, high, strict=True)
        ):
            got = f"cells {list(cells)}, low {list(low)}, high {list(high)}"
            raise ValueError(
                f"{got}; allowed: {axes} entries each, cells above 0, low below high, both finite."
            )
        self.cells = tuple(cells)
        self.register_buffer("low", _doubles(low), persistent=False)
        self.register_buffer(
            "cell",
            (_doubles(high) - _doubles(low)) / _doubles(cells),
            persistent=False,
        )
        self.table = nn.Parameter(torch.empty(*self.cells, heads * head_dim))
        self.reset_parameters(seed)

    low: Tensor
    cell: Tensor

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the table with ViT's standard deviation of 0.02."""
        drawn = torch.randn(
            self.table.shape,
            dtype=torch.float64,
            device="cpu",
            generator=torch.Generator().manual_seed(seed),
        )
        self.table.copy_(0.02 * drawn)

    @torch.no_grad()
    def zero_(self) -> Self:
        """Sets the table to zero, a starting point with nonzero gradients."""
        self.table.zero_()
        return self

    def _places(self, coordinates: Tensor) -> Places:
        highest = torch.tensor(self.cells).to(coordinates.device, non_blocking=True) - 1
        where = (
            (coordinates - self.low.to(coordinates.dtype)) / self.cell.to(coordinates.dtype) - 0.5
        ).clamp(min=0)
        where = torch.minimum(where, highest.to(where.dtype))
        lower = where.detach().floor()
        share = where - lower
        first = lower.long()
        corners = []
        for corner in product((0, 1), repeat=self.axes):
            step = torch.tensor(corner).to(coordinates.device, non_blocking=True)
            index = torch.minimum(first + step, highest)
            weight = torch.where(step > 0, share, 1 - share).prod(dim=-1, keepdim=True)
            corners.append(weight * self.table[index.unbind(-1)].to(weight.dtype))
        return Places(embedding=torch.stack(corners).sum(dim=0))


def _doubles(numbers: Sequence[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")
