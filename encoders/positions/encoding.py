"""The interface of all position encodings, and the places of tokens that they prepare.

An encoding turns the positions of tokens into places once per forward pass, for all layers that
share it. Places rotate queries and keys, multiply them by matrices, or multiply the logits.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor, nn

from stringline.encoders.positions.bases import (
    check_foldable,
    into_input,
    into_output,
    project,
    project_back,
)
from stringline.encoders.positions.precision import (
    at_least_float32,
    values_are_hidden,
    without_autocast,
)


@dataclass(frozen=True, kw_only=True)
class Places:
    """Places without rotation, and the interface of all kinds of places.

    Attributes:
        basis_blocks: Blocks (heads | 1, head_dim / b, b, b) of the orthogonal P in which
            `rotate_in_basis` expects its input; if None, the identity. Attention folds P into its
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
        """Returns the factor of the logits for `keys`, (B, heads | 1, N_q, N_k); None means 1."""
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


class PositionEncoding(nn.Module, ABC):
    """Makes attention depend on the positions of tokens.

    Attributes:
        heads: Number of attention heads.
        head_dim: Channels per head, even; plane n consists of the channels n and n + head_dim / 2.
        axes: Coordinates per place.
        sets: Independent parameter sets: `heads`, or 1 if the heads share theirs.
        relative: Whether attention depends on differences of positions only, so that a common shift
            has no effect.
        in_every_layer: Whether positions act in every layer, or only before the first one.
    """

    relative = True
    in_every_layer = True

    def __init__(self, heads: int, head_dim: int, axes: int, *, share_heads: bool = True) -> None:
        super().__init__()
        if min(heads, head_dim, axes) < 1 or head_dim % 2:
            raise ValueError(
                f"heads {heads}, head_dim {head_dim}, axes {axes}; allowed: positive, and "
                f"head_dim even."
            )
        self.heads = heads
        self.head_dim = head_dim
        self.axes = axes
        self.sets = 1 if share_heads else heads

    @abstractmethod
    def _places(self, coordinates: Tensor) -> Places:
        """Returns the places of tokens at coordinates (B, N, axes) in float32 or float64."""

    def _expected_places(self, coordinates: Tensor, spread: Tensor) -> Places:
        """Returns the expected places of tokens with a spread (B, N, axes)."""
        raise ValueError(
            f"{type(self).__name__} got a spread of places, which needs rotations of planes; "
            f"allowed: encodings by frequencies, such as CayleyString, CirculantString, RopeMixed "
            f"or Rope, NoEncoding, and exact places (coordinates.places.spread=0)."
        )

    def _further_places(self, coordinates: Tensor, like: Places) -> Places:
        """Returns places with the basis of others, for encodings with one."""
        return self._places(coordinates)

    def basis(self) -> Tensor | None:
        """Returns the orthogonal P, (heads | 1, head_dim, head_dim); None means the identity."""
        return None

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns rotations (B, heads | 1, N, head_dim, head_dim), by default the identity."""
        identity = torch.eye(self.head_dim, dtype=coordinates.dtype, device=coordinates.device)
        return identity.expand(coordinates.shape[0], 1, coordinates.shape[1], -1, -1)

    @abstractmethod
    def reset_parameters(self, seed: int) -> None:
        """Draws the initial values of all parameters."""

    def redrawn(self, seed: int) -> Self:
        """Returns an independent copy with other initial parameters, as for another layer."""
        other = copy.deepcopy(self)
        other.reset_parameters(seed)
        return other

    def zero_(self) -> Self:
        """Resets the parameters to values without effect, as for a pre-trained network.

        Raises:
            ValueError: The encoding has no such values with nonzero gradients.
        """
        raise ValueError(
            f"{type(self).__name__} cannot start at zero: it could not learn from there."
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay: all of them."""
        return {name for name, _ in self.named_parameters()}

    def prepare(
        self,
        coordinates: Tensor,
        has_position: Tensor | None = None,
        fallback_position: Tensor | None = None,
        *,
        spread: Tensor | None = None,
        like: Places | None = None,
    ) -> Places:
        """Computes the places of tokens, once per forward pass for all layers with this encoding.

        Nothing is cached between calls, so places always match the parameters.

        With a spread, a token's place is uncertain: normal around its coordinates, along the
        vector `spread`, whose length is the standard deviation. Its rotation is then the expected
        one: the plane with frequency w is damped by exp(-(w spread)^2 / 2), the characteristic
        function of the normal distribution (Barron et al., mip-NeRF, 2021, arXiv 2103.13415,
        section 3.1, for features; here for rotations). Damped rotations are not orthogonal:
        relative values return by the transpose, so that between two tokens the rotation is the
        expected one of two independent places.

        Args:
            coordinates: (B, N, axes), floating point, in the unit of the wavelengths;
                differentiable.
            has_position: (B, N) bool; tokens without a position are put at the centroid of the
                others. If None, all have one.
            fallback_position: (B, axes), used for examples in which no token has a position; if
                None, zero. In cross-attention pass the `centroid` of the other tokens; otherwise a
                common shift has an effect there.
            spread: (B, N, axes), in the unit of the coordinates; ignored for tokens without a
                position. If None, all places are exact.
            like: Places of other tokens, prepared with the same parameters, whose basis is taken
                instead of computing it again; unused with a spread. If None, it is computed.

        Raises:
            ValueError: The shapes do not fit, the encoding does not rotate planes but there is a
                spread, or a coordinate or a spread is not finite although its token has a position
                (not checked during compilation, export and graph capture).
        """
        self._check(coordinates, has_position, spread)
        with without_autocast(coordinates):
            complete_coordinates = complete(
                at_least_float32(coordinates), has_position, fallback_position
            )
            if not values_are_hidden(coordinates) and not complete_coordinates.isfinite().all():
                raise ValueError(
                    "A token has a coordinate that is NaN or infinite; set has_position=False for "
                    "such tokens."
                )
            if spread is None:
                if like is None:
                    return self._places(complete_coordinates)
                return self._further_places(complete_coordinates, like)
            if has_position is not None:
                spread = torch.where(has_position.unsqueeze(-1), spread, 0.0)
            if not values_are_hidden(spread) and not spread.isfinite().all():
                raise ValueError("A token has a spread that is NaN or infinite; allowed: finite.")
            return self._expected_places(complete_coordinates, at_least_float32(spread))

    def rotate(self, x: Tensor, places: Places) -> Tensor:
        """Rotates queries, keys or values x (B, heads, N, head_dim) by the positions of tokens.

        The result is in the basis P: the rotation of P^T x. If all heads share frequencies and
        basis, x may have any number of heads, such as keys in grouped-query attention.
        """
        return places.rotate(self._of_heads(x, places))

    def rotate_inverse(self, y: Tensor, places: Places) -> Tensor:
        """Undoes `rotate`: for relative values, rotates outputs (B, heads, N, head_dim) back.

        Places with a spread multiply by the transpose of their damped rotation instead.
        """
        return places.rotate_inverse(self._of_heads(y, places))

    def logit_factor(self, places_q: Places, places_k: Places) -> Tensor | None:
        """Returns the factor of the logits, (B, heads | 1, N_q, N_k); None means 1."""
        return places_q.logit_factor(places_k)

    @torch.no_grad()
    def fold_(
        self,
        w_q: Tensor,
        w_k: Tensor,
        w_v: Tensor | None = None,
        w_o: Tensor | None = None,
        *,
        norm: nn.Module | None = None,
    ) -> None:
        """Multiplies the basis into projections, in place and exactly.

        Afterwards `folded()` replaces the encoding.

        Args:
            w_q: (heads head_dim, C), or its bias (heads head_dim,).
            w_k: The same for keys.
            w_v: The same for values, if they are rotated too.
            w_o: Output projection (C, heads head_dim), if values are rotated; its bias is
                unchanged.
            norm: Normalisation of queries and keys between projection and rotation.

        Raises:
            ValueError: The basis does not commute with `norm`.
        """
        basis = self.basis()
        if basis is None:
            return
        check_foldable(norm)
        basis = basis.double().unsqueeze(1)
        for weight in (w_q, w_k, w_v):
            if weight is not None:
                weight.copy_(into_input(basis, weight.double(), self.heads))
        if w_o is not None:
            w_o.copy_(into_output(basis, w_o.double(), self.heads))

    def folded(self) -> "PositionEncoding":
        """Returns the rest of this encoding after folding its basis; without a basis, itself."""
        return self

    def without_constant_basis(self) -> "PositionEncoding":
        """Returns this encoding without a basis that has no parameters, sharing the others."""
        return self

    def _check(
        self, coordinates: Tensor, has_position: Tensor | None, spread: Tensor | None = None
    ) -> None:
        if (
            coordinates.ndim != 3
            or coordinates.shape[-1] != self.axes
            or not coordinates.is_floating_point()
        ):
            got = f"{tuple(coordinates.shape)} {coordinates.dtype}"
            raise ValueError(f"Coordinates are {got}; allowed: (B, N, {self.axes}) floating point.")
        if has_position is not None and (
            has_position.shape != coordinates.shape[:2] or has_position.dtype != torch.bool
        ):
            got = f"{tuple(has_position.shape)} {has_position.dtype}"
            raise ValueError(
                f"has_position is {got}; allowed: {tuple(coordinates.shape[:2])} torch.bool."
            )
        if spread is not None and (
            spread.shape != coordinates.shape or not spread.is_floating_point()
        ):
            got = f"{tuple(spread.shape)} {spread.dtype}"
            raise ValueError(
                f"spread is {got}; allowed: {tuple(coordinates.shape)} floating point."
            )

    def _of_heads(self, x: Tensor, places: Places) -> Tensor:
        shared = self.sets == 1 and (places.basis_blocks is None or len(places.basis_blocks) == 1)
        fits = x.ndim >= 4 and (shared or x.shape[-3] == self.heads)
        if not fits or x.shape[-1] != self.head_dim:
            got = tuple(x.shape)
            heads = "any number of" if shared else self.heads
            raise ValueError(
                f"Tokens have shape {got}; allowed: (B, {heads} heads, N, {self.head_dim} "
                f"channels)."
            )
        return x

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keeps float32 at least: in half precision phases are off by tenths."""

        def precise(tensor: Tensor) -> Tensor:
            new = fn(tensor)
            return tensor.to(new.device) if new.dtype in (torch.float16, torch.bfloat16) else new

        super()._apply(precise, recurse)  # type: ignore[no-untyped-call]
        return self


EncodingFactory = Callable[..., PositionEncoding]
"""Makes an encoding, given `heads`, `head_dim` and `axes`, such as a `CayleyString` partial."""
