"""Absolute encodings, for comparison: they add to the tokens what belongs to a place, and a common shift changes it."""

from collections.abc import Sequence
from itertools import product
from typing import Self

import torch
from torch import Tensor, nn

from stringline.datasets.contract.arguments import FINITE
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.frequencies import AxialFrequencies
from stringline.encoders.positions.places import Places
from stringline.encoders.positions.precision import phases


class SinusoidalEncoding(PositionEncoding):
    """Cosines and sines of each coordinate, constant (Vaswani et al., 2017; for images Chen et al., MoCo v3, 2021)."""

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

        Args:
            heads: Attention heads.
            head_dim: Channels per head; tokens have heads head_dim.
            axes: Coordinates per place.
            theta: Base of the geometric series, 10000 in the papers.
            wavelengths: In its stead, the shortest and longest wavelength in the unit of the
                coordinates.
        """
        super().__init__(heads, head_dim, axes)
        self.frequency_model = AxialFrequencies(
            1, axes, heads * head_dim // 2, theta=theta, wavelengths=wavelengths
        )

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns identities: nothing is rotated."""
        return self._identity(coordinates)

    def reset_parameters(self, seed: int) -> None:
        """Does nothing."""

    def _places(self, coordinates: Tensor) -> Places:
        phase = phases(coordinates, self.frequency_model()).squeeze(1)
        return Places(embedding=torch.cat((phase.cos(), phase.sin()), dim=-1))


class LearnedEncoding(PositionEncoding):
    """A learned table over a grid of cells (Dosovitskiy et al., ViT, 2021), read by linear interpolation between their centres.

    So it serves places between the cells, and images of another resolution, as ViT's interpolated
    tables do.
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
        """Draws the table.

        Args:
            heads: Attention heads.
            head_dim: Channels per head; tokens have heads head_dim.
            axes: Coordinates per place.
            cells: Number of cells along each axis, or along all.
            low: Where the first cell of each axis, or of all, begins.
            high: Where the last cell ends. Places outside count as being in the nearest cell.
            seed: Of the start.

        Raises:
            ValueError: Not one entry per axis, no cells, or a range that is empty or has no end.
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
        self.register_buffer("low", torch.tensor(low, dtype=torch.float64), persistent=False)
        self.register_buffer(
            "cell",
            (torch.tensor(high, dtype=torch.float64) - self.low) / torch.tensor(cells),
            persistent=False,
        )
        self.table = nn.Parameter(torch.empty(*self.cells, heads * head_dim))
        self.reset_parameters(seed)

    low: Tensor
    cell: Tensor

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns identities: nothing is rotated."""
        return self._identity(coordinates)

    @torch.no_grad()
    def reset_parameters(self, seed: int) -> None:
        """Draws the table anew, with ViT's standard deviation of 0.02."""
        drawn = torch.randn(
            self.table.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        self.table.copy_(0.02 * drawn)

    @torch.no_grad()
    def zero_(self) -> Self:
        """Sets the table to zero, from where it can learn."""
        self.table.zero_()
        return self

    def _places(self, coordinates: Tensor) -> Places:
        highest = torch.tensor(self.cells, device=coordinates.device) - 1
        where = (
            (coordinates - self.low.to(coordinates.dtype)) / self.cell.to(coordinates.dtype) - 0.5
        ).clamp(min=0)
        where = torch.minimum(where, highest.to(where.dtype))
        lower = where.detach().floor()
        share = where - lower
        first = lower.long()
        corners = []
        for corner in product((0, 1), repeat=self.axes):
            step = torch.tensor(corner, device=coordinates.device)
            index = torch.minimum(first + step, highest)
            weight = torch.where(step > 0, share, 1 - share).prod(dim=-1, keepdim=True)
            corners.append(weight * self.table[index.unbind(-1)].to(weight.dtype))
        return Places(embedding=torch.stack(corners).sum(dim=0))
