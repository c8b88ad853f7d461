"""How a basis is multiplied into the projections around attention."""

import torch
from torch import Tensor, nn

from stringline.encoders.positions.precision import at_least_float32, without_autocast


def spread(blocks: Tensor) -> Tensor:
    """Returns P (sets, size, size) of which the blocks (sets, size / b, b, b) act on neighbouring channels.

    Column j of the first half of a block becomes column `block_index` b / 2 + j of P, its partner
    the one size / 2 further: so the planes of all blocks lie where a rotation expects them. A
    single block is P itself.
    """
    sets, count, block = blocks.shape[:3]
    identity = torch.eye(count, dtype=blocks.dtype, device=blocks.device)
    # (sets, block_index, row, half, plane) -> (sets, block_index, row, half, column's block_index,
    # plane)
    halves = blocks.reshape(sets, count, block, 2, 1, block // 2) * identity[:, None, None, :, None]
    return halves.reshape(sets, count * block, count * block)


def into_input(blocks: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns P^T W: what projects straight into the basis.

    Args:
        blocks: Of P, (heads | 1, head_dim / b, b, b).
        weight: (k heads head_dim, C) for k stacked projections, or their bias (k heads head_dim,).
        heads: Attention heads.
    """
    count, block = blocks.shape[1:3]
    turned = blocks.mT @ weight.reshape(-1, heads, count, block, weight[0].numel())
    if count > 1:
        turned = turned.reshape(-1, heads, count, 2, block // 2, turned.shape[-1]).transpose(2, 3)
    return turned.reshape(weight.shape)


def into_output(blocks: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns W_o P, (C, heads head_dim): what projects straight out of the basis; biases of the output stay.

    Args:
        blocks: Of P, (heads | 1, head_dim / b, b, b).
        weight: (C, heads head_dim).
        heads: Attention heads.
    """
    count, block = blocks.shape[1:3]
    by_block = weight.reshape(-1, heads, count, block).permute(
        1, 2, 0, 3
    )  # Else matmul would copy P for each row of W_o.
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
    """Returns x P, rounded to the type of x only at the end."""
    kind = x.dtype
    x = at_least_float32(x)
    with without_autocast(x):
        return (x @ basis.to(x.dtype)).to(kind)


def commutes_with_bases(norm: nn.Module | None) -> bool:
    """Says whether a normalisation of each head's channels commutes with every orthogonal matrix.

    None and the identity do, and a root-mean-square norm without gains; a gain per channel or a
    subtracted mean does not.
    """
    return (
        norm is None
        or isinstance(norm, nn.Identity)
        or (isinstance(norm, nn.RMSNorm) and norm.weight is None)
    )


def require_foldable(norm: nn.Module | None) -> None:
    """Refuses to fold through a normalisation that stands between projection and rotation.

    Raises:
        ValueError: It does not commute with the basis.
    """
    if not commutes_with_bases(norm):
        raise ValueError(
            f"Between the projection and the rotation stands {norm}, which does not commute with "
            f"a basis, so folding would "
            "change the outputs; allowed: no normalisation, or an RMSNorm without gains. Deploy "
            "this model unfolded."
        )
