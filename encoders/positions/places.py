"""Where tokens stand, ready for attention: computed once per forward, read by every layer that shares the encoding."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Places:
    """Places that turn nothing: what `NoEncoding` prepares, and the face of all others.

    Attributes:
        basis: Orthogonal P, (heads | 1, head_dim, head_dim), that `turn` expects to be applied to its input already; None
            for the identity. Attention folds it into its projections, which costs nothing per token.
    """

    basis: Tensor | None = None

    def turn(self, x: Tensor) -> Tensor:
        """Rotates x (B, ..., heads, N, head_dim), given in the basis P, to the places of its tokens."""
        return x

    def turn_back(self, y: Tensor) -> Tensor:
        """Undoes `turn`; the result is still in the basis P."""
        return y

    def logit_factor(self, keys: Self) -> Tensor | None:
        """Returns what multiplies the logits of these queries and `keys`, (B, heads | 1, N_q, N_k), or None for one."""
        return None


@dataclass(frozen=True, kw_only=True)
class RotaryPlaces(Places):
    """Places as rotation angles of the planes (n, n + head_dim / 2), n = 0 ... head_dim / 2 - 1.

    Attributes:
        cos: (B, heads | 1, N, head_dim / 2), float32 whatever autocast says, float64 for float64 coordinates.
        sin: The same shape and type.
    """

    cos: Tensor
    sin: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """Rotates every plane of x (B, ..., heads, N, head_dim) by its angle."""
        return _rotate(x, self.cos, self.sin)

    def turn_back(self, y: Tensor) -> Tensor:
        """Rotates every plane of y (B, ..., heads, N, head_dim) by minus its angle."""
        return _rotate(y, self.cos, -self.sin)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    between = (slice(None), *(None,) * (x.ndim - cos.ndim))
    cos, sin = cos.to(x.dtype)[between], sin.to(x.dtype)[between]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def complete(coordinates: Tensor, placed: Tensor | None) -> Tensor:
    """Gives every token a place that moves with the others, whatever shift is common to all.

    Args:
        coordinates: (B, N, axes); entries of tokens without a place may hold anything, NaN included.
        placed: (B, N) bool, False for tokens without a place (CLS, registers, holes in depth, cameras without geometry);
            None when all have one.

    Returns:
        (B, N, axes) in which tokens without a place stand at the centroid of the example's placed tokens, or at zero in an
        example that has none. At the origin instead they would break translation invariance.
    """
    if placed is None:
        return coordinates
    inside = placed.unsqueeze(-1)
    known = torch.where(inside, coordinates, torch.zeros_like(coordinates))
    centroid = known.sum(dim=-2, keepdim=True) / inside.sum(dim=-2, keepdim=True).clamp(min=1)
    return torch.where(inside, known, centroid)
