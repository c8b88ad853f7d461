"""Sines and cosines of positions in sequences and images, added to tokens of networks that know no places."""

import math

import torch
from torch import Tensor


def sequence_positions(length: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Returns the table of Vaswani et al. (2017, section 3.5), (length, dim): sines in even channels, cosines in odd ones.

    Args:
        length: Positions 0, 1, ...
        dim: Channels, even.
        device: Where to make it.

    Raises:
        ValueError: The channels are not even.
    """
    return _waves(torch.arange(length, dtype=torch.float32, device=device), dim)


def image_positions(
    rows: int, columns: int, dim: int, device: torch.device | None = None
) -> Tensor:
    """Returns the table of DETR for a feature map (Carion et al., ECCV 2020, appendix A.4), (rows, columns, dim).

    The first half of the channels tells the row, the second the column; both count to 2 pi at the
    end of the image.

    Args:
        rows: Of the map.
        columns: Of the map.
        dim: Channels, a multiple of 4.
        device: Where to make it.

    Raises:
        ValueError: The channels do not divide.
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
    """Returns sines and cosines, by turns, of positions (N,) at frequencies 1 to almost 10^-4, (N, dim)."""
    if dim < 2 or dim % 2:
        raise ValueError(f"Positions have {dim} channels; allowed: even numbers.")
    falling = torch.arange(0, dim, 2, dtype=torch.float32, device=position.device) / dim
    phase = position[:, None] * torch.exp(-math.log(10000.0) * falling)
    return torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(1)
