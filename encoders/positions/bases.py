"""Orthogonal bases of the STRING family, and how a basis is folded into the projections of attention."""

import math

import torch
from torch import Tensor


def antisymmetric(entries: Tensor, size: int) -> Tensor:
    """Returns S (..., size, size), S^T = -S, from its strict upper triangle (..., size (size - 1) / 2), row by row."""
    rows, columns = torch.triu_indices(size, size, offset=1, device=entries.device)
    upper = entries.new_zeros(*entries.shape[:-1], size * size).index_copy(-1, rows * size + columns, entries)
    upper = upper.reshape(*entries.shape[:-1], size, size)
    return upper - upper.mT


def cayley(entries: Tensor, size: int) -> Tensor:
    """Returns P = (I - S)(I + S)^-1 (Schenck et al., STRING, 2025, arXiv 2502.02562, eq. 10).

    Args:
        entries: Strict upper triangle of S, (..., size (size - 1) / 2); zero gives the identity, with a gradient of -2 dS.
        size: Rows of P.

    Returns:
        (..., size, size), orthogonal, at least float32 whatever autocast says.
    """
    with torch.autocast(entries.device.type, enabled=False):
        skew = antisymmetric(entries.to(torch.promote_types(entries.dtype, torch.float32)), size)
        identity = torch.eye(size, dtype=skew.dtype, device=skew.device)
        basis: Tensor = torch.linalg.solve(identity + skew, identity - skew)  # Functions of S, so their order is free.
        return basis


def sine_transform(block: int, device: torch.device | None = None) -> Tensor:
    """Returns W (block / 2, block) float64, W_jn = 2 sin(2 pi j n / block): frequencies of a circulant block from its column.

    The first row (j = 0) is zero. It stands for the plane of the constant and the alternating vector, which an
    antisymmetric circulant matrix cannot turn. On the others W W^T = 2 block I.
    """
    j, n = (torch.arange(count, dtype=torch.float64, device=device) for count in (block // 2, block))
    return 2 * torch.sin(2 * math.pi / block * j[:, None] * n)


def real_fourier(block: int, blocks: int, device: torch.device | None = None) -> Tensor:
    """Returns the block-diagonal real Fourier basis P, (block blocks, block blocks) float64, orthogonal.

    Plane j of a block is spanned by the columns n and n + size / 2 with n = block_index * block / 2 + j: the normalised
    cosine and sine of frequency j, for j = 0 the constant and the alternating vector.
    """
    j, n = (torch.arange(count, dtype=torch.float64, device=device) for count in (block // 2, block))
    angle = 2 * math.pi / block * n[:, None] * j
    cosine, sine = (math.sqrt(2 / block) * wave for wave in (angle.cos(), angle.sin()))
    cosine[:, 0] = math.sqrt(1 / block)
    sine[:, 0] = math.sqrt(1 / block) * torch.cos(math.pi * n)
    identity = torch.eye(blocks, dtype=torch.float64, device=device)
    return torch.cat((torch.kron(identity, cosine), torch.kron(identity, sine)), dim=1)


def into_input(basis: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns P^T W: what projects straight into the basis.

    Args:
        basis: (heads | 1, head_dim, head_dim).
        weight: (k heads head_dim, C) for k stacked projections, or their bias (k heads head_dim,).
        heads: Attention heads.
    """
    stacked = weight.reshape(-1, heads, basis.shape[-1], weight[0].numel())
    return (basis.mT @ stacked).reshape(weight.shape)


def into_output(basis: Tensor, weight: Tensor, heads: int) -> Tensor:
    """Returns W_o P, (C, heads head_dim): what projects straight out of the basis; biases of the output stay."""
    by_head = weight.reshape(-1, heads, basis.shape[-1]).transpose(0, 1)  # Else matmul would copy P for each row of W_o.
    return (by_head @ basis).transpose(0, 1).reshape(weight.shape)
