"""Multiplies a basis into the projections of attention."""

import torch
from torch import Tensor, nn

from stringline.encoders.positions.precision import at_least_float32, without_autocast


def spread(blocks: Tensor) -> Tensor:
    """Returns P (sets, size, size) from blocks (sets, size / b, b, b) of neighbouring channels.

    Column j of the first half of a block becomes column `block_index` b / 2 + j of P, and its
    partner the column size / 2 further, where a rotation expects the planes. A single block is P
    itself.
    """
    sets, count, block = blocks.shape[:3]
    identity = torch.eye(count, dtype=blocks.dtype, device=blocks.device)
    # (sets, block_index, row, half, plane) -> (sets, block_index, row, half, column's block_index,
    # plane)
    halves = blocks.reshape(sets, count, block, 2, 1, block // 2) * identity[:, None, None, :, None]
    return halves.reshape(sets, count * block, count * block)


def into_input(blocks: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns P^T W, a projection into the basis with blocks (heads | 1, head_dim / b, b, b).

    `weight` is (k heads head_dim, C) for k stacked projections, or their bias (k heads head_dim,).
    """
    count, block = blocks.shape[1:3]
    turned = blocks.mT @ weight.reshape(-1, heads, count, block, weight[0].numel())
    if count > 1:
        turned = turned.reshape(-1, heads, count, 2, block // 2, turned.shape[-1]).transpose(2, 3)
    return turned.reshape(weight.shape)


def into_output(blocks: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns W_o P, a projection out of the basis with blocks (heads | 1, head_dim / b, b, b).

    `weight` is (C, heads head_dim); its bias is unchanged.
    """
    count, block = blocks.shape[1:3]
    # In this order matmul does not copy P for each row of W_o.
    by_block = weight.reshape(-1, heads, count, block).permute(1, 2, 0, 3)
    turned = (by_block @ blocks).permute(2, 0, 1, 3)
    if count > 1:
        turned = turned.reshape(-1, heads, count, 2, block // 2).transpose(2, 3)
    return turned.reshape(weight.shape)


def project(x: Tensor, blocks: Tensor) -> Tensor:
    """Returns P^T x for tokens x (..., heads, N, head_dim), in their type."""
    return _times(x, spread(blocks))


def project_back(y: Tensor, blocks: Tensor) -> Tensor:
    """Undoes `project`."""
    return _times(y, spread(blocks).mT)


def _times(x: Tensor, basis: Tensor) -> Tensor:
    """Returns x P, computed in float32 at least and rounded to the type of x at the end."""
    kind = x.dtype
    x = at_least_float32(x)
    with without_autocast(x):
        return (x @ basis.to(x.dtype)).to(kind)


def commutes_with_bases(norm: nn.Module | None) -> bool:
    """Returns whether a normalisation of the channels of a head commutes with orthogonal matrices.

    None, the identity and an RMSNorm without gains do; gains per channel or a subtracted mean do
    not.
    """
    return (
        norm is None
        or isinstance(norm, nn.Identity)
        or (isinstance(norm, nn.RMSNorm) and norm.weight is None)
    )


def check_foldable(norm: nn.Module | None) -> None:
    """Raises a ValueError if a norm between projection and rotation forbids folding."""
    if not commutes_with_bases(norm):
        raise ValueError(
            f"{norm} between projection and rotation does not commute with a basis, so folding "
            f"would change the outputs; allowed: no normalisation, or an RMSNorm without gains. "
            f"Deploy this model unfolded."
        )
