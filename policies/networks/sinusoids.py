"""Sines and cosines of positions in sequences and images, added to tokens."""

import math

import torch
from torch import Tensor


def sequence_positions(length: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Returns the table of Vaswani et al. (2017, section 3.5), (length, dim).

    Even channels are sines, odd channels cosines; their number is even.
    """
    return _waves(torch.arange(length, dtype=torch.float32, device=device), dim)


def image_positions(
    rows: int, columns: int, dim: int, device: torch.device | None = None
) -> Tensor:
    """Returns DETR's table of a feature map (Carion et al., ECCV 2020), (rows, columns, dim).

    After appendix A.4: the first half of the channels encodes the row, the second the column; both
    run to 2 pi at the end of the image. The number of channels is a multiple of 4.
    """
    if dim % 4:
        raise ValueError(f"Positions in images have {dim} channels; allowed: multiples of 4.")
    down, right = (
        _waves(
            2 * math.pi * torch.arange(1, count + 1, dtype=torch.float32, device=device) / count,
            dim // 2,
        )
        for count in (rows, columns)
    )
    return torch.cat(
        (down[:, None].expand(-1, columns, -1), right[None].expand(rows, -1, -1)), dim=-1
    )


def _waves(position: Tensor, dim: int) -> Tensor:
    """Returns alternating sines and cosines of positions (N,), frequencies 1 to 10^-4, (N, dim)."""
    if dim < 2 or dim % 2:
        raise ValueError(f"Positions have {dim} channels; allowed: even numbers.")
    falling = torch.arange(0, dim, 2, dtype=torch.float32, device=position.device) / dim
    phase = position[:, None] * torch.exp(-math.log(10000.0) * falling)
    return torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(1)
