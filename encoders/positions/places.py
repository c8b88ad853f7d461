"""Where tokens stand, ready for attention: computed once per forward, read by every layer that shares the encoding."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from stringline.encoders.positions.folding import project, project_back
from stringline.encoders.positions.precision import at_least_float32, without_autocast


@dataclass(frozen=True, kw_only=True)
class Places:
    """Places that turn nothing, and the face of all others.

    Attributes:
        basis_blocks: Blocks (heads | 1, head_dim / b, b, b) of the orthogonal P that `turn` expects
            to be applied to its input already; None for the identity. Attention folds it into its
            projections, which costs nothing per token.
        embedding: What an absolute encoding adds to the tokens, (B, N, heads head_dim), or None.
    """

    basis_blocks: Tensor | None = None
    embedding: Tensor | None = None

    def embed(self, x: Tensor) -> Tensor:
        """Returns the tokens x (B, N, heads head_dim) with the absolute embedding added; before the first layer."""
        return x if self.embedding is None else x + self.embedding.to(x.dtype)

    def turn(self, x: Tensor) -> Tensor:
        """Rotates x (B, ..., heads, N, head_dim), given in the basis P, to the places of its tokens."""
        return x

    def turn_back(self, y: Tensor) -> Tensor:
        """Undoes `turn`; the result is still in the basis P."""
        return y

    def rotate(self, x: Tensor) -> Tensor:
        """Returns what attention compares, `turn` of P^T x, for x (B, ..., heads, N, head_dim)."""
        return self.turn(x if self.basis_blocks is None else project(x, self.basis_blocks))

    def rotate_back(self, y: Tensor) -> Tensor:
        """Undoes `rotate`."""
        y = self.turn_back(y)
        return y if self.basis_blocks is None else project_back(y, self.basis_blocks)

    def expand(self, x: Tensor) -> Tensor:
        """Returns features (B, heads, N, F) whose products are those of x times `logit_factor`, for linear attention."""
        return x

    def logit_factor(self, keys: "Places") -> Tensor | None:
        """Returns what multiplies the logits of these queries and `keys`, (B, heads | 1, N_q, N_k), or None for one."""
        return None


@dataclass(frozen=True, kw_only=True)
class RotaryPlaces(Places):
    """Places as rotation angles of the planes (n, n + head_dim / 2), n = 0 ... head_dim / 2 - 1.

    Attributes:
        cos: (B, heads | 1, N, head_dim / 2), float32 whatever autocast says, float64 for float64
            coordinates.
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


@dataclass(frozen=True, kw_only=True)
class MatrixPlaces(Places):
    """Places as rotation matrices of blocks of neighbouring channels.

    Attributes:
        rotations: (B, heads | 1, N, blocks, block, block), orthogonal.
    """

    rotations: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """Multiplies every block of x (B, ..., heads, N, head_dim) by its matrix."""
        return _multiply(self.rotations, x)

    def turn_back(self, y: Tensor) -> Tensor:
        """Multiplies every block of y (B, ..., heads, N, head_dim) by the transpose of its matrix."""
        return _multiply(self.rotations.mT, y)


@dataclass(frozen=True, kw_only=True)
class FactorPlaces(Places):
    """Places as features whose products multiply the logits.

    Attributes:
        features: (B, heads | 1, N, F), of length one.
    """

    features: Tensor

    def expand(self, x: Tensor) -> Tensor:
        """Returns vec(f z^T), (B, heads, N, F head_dim), for x (B, heads, N, head_dim)."""
        return (self.features.to(x.dtype).unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)

    def logit_factor(self, keys: Places) -> Tensor:
        """Returns the products of the features, (B, heads | 1, N_q, N_k).

        Raises:
            ValueError: The keys were prepared by another encoding.
        """
        if not isinstance(keys, FactorPlaces):
            raise ValueError(
                f"Keys have {type(keys).__name__}; allowed: FactorPlaces, prepared by the "
                f"queries' encoding."
            )
        with without_autocast(self.features):
            return self.features @ keys.features.mT


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Returns x with its planes rotated, rounded to its type only at the end."""
    if x.shape[-2] != cos.shape[-2]:
        raise ValueError(
            f"Tokens {tuple(x.shape)} at {cos.shape[-2]} places; allowed: a place for each."
        )
    between = (slice(None), *(None,) * (x.ndim - cos.ndim))
    kind = x.dtype
    x = at_least_float32(x)
    cos = cos.to(x.dtype)[between]
    sin = sin.to(x.dtype)[between]
    if not torch.compiler.is_compiling():
        x = x.contiguous()  # A copy, but uncompiled the rotation runs twice as fast on it.
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(kind)


def _multiply(rotations: Tensor, x: Tensor) -> Tensor:
    """Returns x (B, ..., heads, N, head_dim), each block multiplied by its rotation (B, heads | 1, N, blocks, b, b).

    Like `_rotate` it rounds to the type of x only at the end.
    """
    kind = x.dtype
    x = at_least_float32(x)
    batch = x.shape[0]
    heads = x.shape[-3]
    tokens = x.shape[-2]
    sets = rotations.shape[1]
    blocks = rotations.shape[-3]
    block = rotations.shape[-1]
    # All vectors that share a matrix become columns of one product: those of every head, where
    # heads share.
    more = math.prod(x.shape[1:-3])
    alike = heads // sets
    columns = x.reshape(batch, more, sets, alike, tokens, blocks, block).permute(
        0, 2, 4, 5, 6, 1, 3
    )
    with without_autocast(x):
        turned = rotations.to(x.dtype) @ columns.reshape(
            batch, sets, tokens, blocks, block, more * alike
        )
    turned = turned.reshape(batch, sets, tokens, blocks, block, more, alike)
    return turned.permute(0, 5, 1, 6, 2, 3, 4).reshape(x.shape).to(kind)


def centroid(coordinates: Tensor, placed: Tensor | None = None) -> Tensor:
    """Returns the mean place of the placed tokens of each example, (B, axes); zero where there are none."""
    if placed is None:
        return coordinates.mean(dim=-2)
    inside = placed.unsqueeze(-1)
    known = torch.where(inside, coordinates, torch.zeros_like(coordinates))
    return known.sum(dim=-2) / inside.sum(dim=-2).clamp(min=1)


def complete(coordinates: Tensor, placed: Tensor | None, nowhere: Tensor | None = None) -> Tensor:
    """Gives every token a place that moves with the others, whatever shift is common to all.

    Args:
        coordinates: (B, N, axes); entries of tokens without a place may hold anything, NaN
            included.
        placed: (B, N) bool, False for tokens without a place (CLS, registers, holes in depth,
            cameras without geometry); None when all have one.
        nowhere: (B, axes), where the tokens of an example stand of which none has a place; None: at
            zero.

    Returns:
        (B, N, axes) in which tokens without a place stand at the centroid of the example's placed
        tokens. At the origin instead they would break translation invariance.
    """
    if placed is None:
        return coordinates
    middle = centroid(coordinates, placed)
    if nowhere is not None:
        middle = torch.where(placed.any(dim=-1, keepdim=True), middle, nowhere)
    return torch.where(placed.unsqueeze(-1), coordinates, middle.unsqueeze(-2))
