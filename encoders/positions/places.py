"""Places: the positions of tokens, prepared once per forward pass for all layers of an encoding."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from stringline.encoders.positions.folding import project, project_back
from stringline.encoders.positions.precision import at_least_float32, without_autocast


@dataclass(frozen=True, kw_only=True)
class Places:
    """Places without rotation, and the interface of all kinds of places.

    Attributes:
        basis_blocks: Blocks (heads | 1, head_dim / b, b, b) of the orthogonal P in which
            `rotate_in_basis` expects its input; None: the identity. Attention folds P into its
            projections, at no cost per token.
        embedding: Embedding that an absolute encoding adds to the tokens, (B, N, heads head_dim),
            or None.
    """

    basis_blocks: Tensor | None = None
    embedding: Tensor | None = None

    def embed(self, x: Tensor) -> Tensor:
        """Adds the absolute embedding to tokens x (B, N, heads head_dim), before layer 1."""
        return x if self.embedding is None else x + self.embedding.to(x.dtype)

    def rotate_in_basis(self, x: Tensor) -> Tensor:
        """Rotates x (B, ..., heads, N, head_dim), given in the basis P."""
        return x

    def rotate_inverse_in_basis(self, y: Tensor) -> Tensor:
        """Undoes `rotate_in_basis`; the result is still in the basis P."""
        return y

    def rotate(self, x: Tensor) -> Tensor:
        """Returns `rotate_in_basis` of P^T x, for x (B, ..., heads, N, head_dim)."""
        return self.rotate_in_basis(
            x if self.basis_blocks is None else project(x, self.basis_blocks)
        )

    def rotate_inverse(self, y: Tensor) -> Tensor:
        """Undoes `rotate`."""
        y = self.rotate_inverse_in_basis(y)
        return y if self.basis_blocks is None else project_back(y, self.basis_blocks)

    def expand(self, x: Tensor) -> Tensor:
        """Returns features (B, heads, N, F) whose products include `logit_factor`."""
        return x

    def logit_factor(self, keys: "Places") -> Tensor | None:
        """Returns the factor of the logits for `keys`, (B, heads | 1, N_q, N_k); None: 1."""
        return None


@dataclass(frozen=True, kw_only=True)
class RotaryPlaces(Places):
    """Places as rotation angles of the planes (n, n + head_dim / 2), n = 0 ... head_dim / 2 - 1.

    Those of an uncertain place are damped: cos^2 + sin^2 is below 1, and the inverse rotation is
    the transpose.

    Attributes:
        cos: (B, heads | 1, N, head_dim / 2), float32 also under autocast, float64 for float64
            coordinates.
        sin: The same shape and type.
    """

    cos: Tensor
    sin: Tensor

    def rotate_in_basis(self, x: Tensor) -> Tensor:
        """Rotates every plane of x (B, ..., heads, N, head_dim) by its angle."""
        return _rotate(x, self.cos, self.sin)

    def rotate_inverse_in_basis(self, y: Tensor) -> Tensor:
        """Rotates every plane of y (B, ..., heads, N, head_dim) by minus its angle."""
        return _rotate(y, self.cos, -self.sin)


@dataclass(frozen=True, kw_only=True)
class MatrixPlaces(Places):
    """Places as orthogonal matrices of blocks of channels, (B, heads | 1, N, blocks, b, b)."""

    rotations: Tensor

    def rotate_in_basis(self, x: Tensor) -> Tensor:
        """Multiplies every block of x (B, ..., heads, N, head_dim) by its matrix."""
        return _multiply(self.rotations, x)

    def rotate_inverse_in_basis(self, y: Tensor) -> Tensor:
        """Multiplies every block of y (B, ..., heads, N, head_dim) by its transposed matrix."""
        return _multiply(self.rotations.mT, y)


@dataclass(frozen=True, kw_only=True)
class FactorPlaces(Places):
    """Places as features (B, heads | 1, N, F), unit vectors, whose products multiply the logits."""

    features: Tensor

    def expand(self, x: Tensor) -> Tensor:
        """Returns vec(f z^T), (B, heads, N, F head_dim), for x (B, heads, N, head_dim)."""
        return (self.features.to(x.dtype).unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)

    def logit_factor(self, keys: Places) -> Tensor:
        """Returns the products of the features, (B, heads | 1, N_q, N_k)."""
        if not isinstance(keys, FactorPlaces):
            raise ValueError(
                f"Keys have {type(keys).__name__}; allowed: FactorPlaces of the queries' encoding."
            )
        with without_autocast(self.features):
            return self.features @ keys.features.mT


def side_by_side(parts: Sequence[Places], heads: Sequence[int]) -> Places:
    """Returns places whose heads are those of all parts in turn, `heads[n]` of part n.

    All parts are of one kind, with the same tokens.
    """
    joined: dict[str, Tensor | None] = {}
    for field in fields(parts[0]):
        known = [value for part in parts if (value := getattr(part, field.name)) is not None]
        if not known:
            joined[field.name] = None
        elif field.name == "embedding":
            joined[field.name] = torch.cat(known, dim=-1)
        else:
            axis = 0 if field.name == "basis_blocks" else 1
            joined[field.name] = torch.cat(
                [
                    value.expand(*value.shape[:axis], size, *value.shape[axis + 1 :])
                    for value, size in zip(known, heads, strict=True)
                ],
                dim=axis,
            )
    return type(parts[0])(**joined)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Returns x with its planes rotated, rounded to its type at the end."""
    if x.shape[-2] != cos.shape[-2]:
        raise ValueError(
            f"Tokens {tuple(x.shape)} at {cos.shape[-2]} places; allowed: one place per token."
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
    """Returns the blocks of x (B, ..., heads, N, head_dim), each multiplied by its rotation.

    Rotations are (B, heads | 1, N, blocks, b, b); the result is rounded to the type of x.
    """
    kind = x.dtype
    x = at_least_float32(x)
    batch = x.shape[0]
    heads = x.shape[-3]
    tokens = x.shape[-2]
    sets = rotations.shape[1]
    blocks = rotations.shape[-3]
    block = rotations.shape[-1]
    # All vectors with the same matrix, such as those of heads that share it, become columns of one
    # product.
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


def centroid(coordinates: Tensor, has_position: Tensor | None = None) -> Tensor:
    """Returns the mean position of each example's tokens, (B, axes); zero without any position."""
    if has_position is None:
        return coordinates.mean(dim=-2)
    inside = has_position.unsqueeze(-1)
    known = torch.where(inside, coordinates, torch.zeros_like(coordinates))
    return known.sum(dim=-2) / inside.sum(dim=-2).clamp(min=1)


def complete(
    coordinates: Tensor, has_position: Tensor | None, fallback_position: Tensor | None = None
) -> Tensor:
    """Puts tokens without a position at the centroid of the others.

    At the origin instead they would break translation invariance. Their entries in coordinates
    (B, N, axes) are ignored, NaN included. Arguments as for `PositionEncoding.prepare`.
    """
    if has_position is None:
        return coordinates
    middle = centroid(coordinates, has_position)
    if fallback_position is not None:
        middle = torch.where(has_position.any(dim=-1, keepdim=True), middle, fallback_position)
    return torch.where(has_position.unsqueeze(-1), coordinates, middle.unsqueeze(-2))
