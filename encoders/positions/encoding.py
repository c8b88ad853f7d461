"""What every position encoding offers: frequencies and a basis, and from them the rotation of queries, keys and values.

Theorem 3.4 of STRING (Schenck et al., 2025, arXiv 2502.02562): every translation-invariant encoding by matrices is
R(r) = P RoPE(Omega r) P^T with an orthogonal P. A method is therefore two small things, `frequencies` and `basis`.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self, cast, overload

import torch
from torch import Tensor, nn

from stringline.encoders.positions.bases import into_input, into_output
from stringline.encoders.positions.places import Places, RotaryPlaces, complete


class PositionEncoding(nn.Module, ABC):
    """Turns queries and keys (and values) so that attention sees places only by their difference.

    Attributes:
        heads: Attention heads.
        head_dim: Channels per head, even; plane n is made of the channels n and n + head_dim / 2.
        axes: Coordinates per place.
        sets: Independent parameter sets: `heads`, or 1 when the heads share theirs.
    """

    def __init__(self, heads: int, head_dim: int, axes: int, *, share_heads: bool) -> None:
        """Remembers the sizes.

        Raises:
            ValueError: A size is not positive, or `head_dim` is odd.
        """
        super().__init__()
        if min(heads, head_dim, axes) < 1 or head_dim % 2:
            raise ValueError(f"heads {heads}, head_dim {head_dim}, axes {axes}; allowed: positive, and head_dim even.")
        self.heads, self.head_dim, self.axes = heads, head_dim, axes
        self.sets = 1 if share_heads else heads

    @abstractmethod
    def frequencies(self) -> Tensor:
        """Returns Omega, (heads | 1, axes, head_dim / 2), in radians per unit of the coordinates."""

    def basis(self) -> Tensor | None:
        """Returns the orthogonal P, (heads | 1, head_dim, head_dim), or None for the identity."""
        return None

    @abstractmethod
    def reset_parameters(self, seed: int) -> None:
        """Draws the start of all parameters anew."""

    def redrawn(self, seed: int) -> Self:
        """Returns an independent encoding of the same kind with its own random start, as for another layer."""
        other = copy.deepcopy(self)
        other.reset_parameters(seed)
        return other

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify: all, since zero is no neutral frequency."""
        return {name for name, _ in self.named_parameters()}

    def prepare(self, coordinates: Tensor, placed: Tensor | None = None) -> Places:
        """Computes what all layers with this encoding need, once per forward.

        Nothing is kept between calls, so places are never older than the parameters.

        Args:
            coordinates: (B, N, axes) floating point, in the unit that the wavelengths were given in; differentiable.
            placed: (B, N) bool; tokens without a place stand at the centroid of the placed ones. None: all have one.

        Raises:
            ValueError: The shapes do not fit.
        """
        self._check(coordinates, placed)
        with torch.autocast(coordinates.device.type, enabled=False):
            phase = self._phase(complete(_at_least_float32(coordinates), placed))
            return RotaryPlaces(cos=phase.cos(), sin=phase.sin(), basis=self.basis())

    @overload
    def apply(self, fn: Callable[[nn.Module], None]) -> Self: ...
    @overload
    def apply(self, x: Tensor, /, places: Places) -> Tensor: ...
    def apply(self, fn: Tensor | Callable[[nn.Module], None], places: Places | None = None) -> Tensor | Self:
        """Returns RoPE(Omega r) P^T x for queries, keys or values x (B, heads, N, head_dim) at their places.

        With a function alone it is `torch.nn.Module.apply`, which would otherwise break for every network that holds one.
        """
        if places is None:
            return super().apply(cast(Callable[[nn.Module], None], fn))
        x = cast(Tensor, fn)
        return places.turn(x if places.basis is None else x @ places.basis.to(x.dtype))

    def invert(self, y: Tensor, places: Places) -> Tensor:
        """Undoes `apply`: with relative values, turns the output (B, heads, N, head_dim) back by the places of the queries."""
        y = places.turn_back(y)
        return y if places.basis is None else y @ places.basis.mT.to(y.dtype)

    def logit_factor(self, places_q: Places, places_k: Places) -> Tensor | None:
        """Returns what multiplies the logits, (B, heads | 1, N_q, N_k), or None."""
        return places_q.logit_factor(places_k)

    @torch.no_grad()
    def fold_(self, w_q: Tensor, w_k: Tensor, w_v: Tensor | None = None, w_o: Tensor | None = None) -> None:
        """Multiplies the basis into projections, in place and exactly; afterwards use `folded()` in this one's stead.

        Only projections that reach the rotation without a normalisation or other non-linearity in between may be folded.

        Args:
            w_q: (heads head_dim, C), or its bias (heads head_dim,).
            w_k: The same for keys.
            w_v: The same for values, where they are turned too.
            w_o: Output projection (C, heads head_dim), where values are turned; its bias stays as it is.
        """
        basis = self.basis()
        if basis is None:
            return
        basis = basis.double()
        for weight in (w_q, w_k, w_v):
            if weight is not None:
                weight.copy_(into_input(basis, weight.double(), self.heads))
        if w_o is not None:
            w_o.copy_(into_output(basis, w_o.double(), self.heads))

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns R(r) = P RoPE(Omega r) P^T as matrices (B, heads | 1, N, head_dim, head_dim): a reference for tests."""
        phase = self._phase(coordinates)
        cos, sin = phase.cos().diag_embed(), phase.sin().diag_embed()
        turn = torch.cat((torch.cat((cos, -sin), dim=-1), torch.cat((sin, cos), dim=-1)), dim=-2)
        basis = self.basis()
        if basis is None:
            return turn
        basis = basis.to(turn.dtype).unsqueeze(1)
        return basis @ turn @ basis.mT

    def _phase(self, coordinates: Tensor) -> Tensor:
        """Returns Omega r, (B, heads | 1, N, head_dim / 2), without matmul, which TF32 or autocast would round."""
        omega = self.frequencies().to(coordinates.dtype)
        phase = coordinates[:, None, :, 0, None] * omega[:, 0, None]
        for axis in range(1, self.axes):
            phase = torch.addcmul(phase, coordinates[:, None, :, axis, None], omega[:, axis, None])
        return phase

    def _check(self, coordinates: Tensor, placed: Tensor | None) -> None:
        if coordinates.ndim != 3 or coordinates.shape[-1] != self.axes or not coordinates.is_floating_point():
            got = f"{tuple(coordinates.shape)} {coordinates.dtype}"
            raise ValueError(f"Coordinates are {got}; allowed: (B, N, {self.axes}) floating point.")
        if placed is not None and (placed.shape != coordinates.shape[:2] or placed.dtype != torch.bool):
            got = f"{tuple(placed.shape)} {placed.dtype}"
            raise ValueError(f"placed is {got}; allowed: {tuple(coordinates.shape[:2])} torch.bool.")


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
