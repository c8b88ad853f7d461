"""What every position encoding offers to attention, whatever its kind."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, Self, cast, overload

import torch
from torch import Tensor, nn

from stringline.encoders.positions.folding import into_input, into_output, require_foldable
from stringline.encoders.positions.places import Places, complete
from stringline.encoders.positions.precision import (
    at_least_float32,
    values_are_hidden,
    without_autocast,
)


class PositionEncoding(nn.Module, ABC):
    """Lets places enter attention.

    Attributes:
        heads: Attention heads.
        head_dim: Channels per head, even; plane n is made of the channels n and n + head_dim / 2.
        axes: Coordinates per place.
        sets: Independent parameter sets: `heads`, or 1 when the heads share theirs.
        relative: Whether attention sees places only by their difference, so that a common shift of
            all changes nothing.
        in_every_layer: Whether places act in every layer, not only before the first.
    """

    relative = True
    in_every_layer = True

    def __init__(self, heads: int, head_dim: int, axes: int, *, share_heads: bool = True) -> None:
        """Remembers the sizes.

        Raises:
            ValueError: A size is not positive, or `head_dim` is odd.
        """
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
        """Returns the places of tokens at coordinates (B, N, axes) float32 or float64; autocast is off."""

    def basis(self) -> Tensor | None:
        """Returns the orthogonal P, (heads | 1, head_dim, head_dim), or None for the identity."""
        return None

    @abstractmethod
    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns what multiplies queries, keys and values as matrices (B, heads | 1, N, head_dim, head_dim): a reference."""

    @abstractmethod
    def reset_parameters(self, seed: int) -> None:
        """Draws the start of all parameters anew."""

    def redrawn(self, seed: int) -> Self:
        """Returns an independent encoding of the same kind with its own random start, as for another layer."""
        other = copy.deepcopy(self)
        other.reset_parameters(seed)
        return other

    def zero_(self) -> Self:
        """Starts again where attention is what it would be without places, as for a pre-trained network.

        Raises:
            ValueError: The encoding could not learn from there.
        """
        raise ValueError(f"{type(self).__name__} cannot start at zero.")

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify: all, since zero is no neutral frequency."""
        return {name for name, _ in self.named_parameters()}

    def prepare(
        self, coordinates: Tensor, placed: Tensor | None = None, nowhere: Tensor | None = None
    ) -> Places:
        """Computes what all layers with this encoding need, once per forward.

        Nothing is kept between calls, so places are never older than the parameters.

        Args:
            coordinates: (B, N, axes) floating point, in the unit that the wavelengths were given
                in; differentiable.
            placed: (B, N) bool; tokens without a place stand at the centroid of the placed ones.
                None: all have one.
            nowhere: (B, axes), where they stand in an example that has no placed one; None: at
                zero. In cross-attention it is to be the `centroid` of the other tokens, or a common
                shift would matter there.

        Raises:
            ValueError: The shapes do not fit, or a placed token has a coordinate that is not finite
                (not looked for while compiling, exporting or capturing a graph).
        """
        self._check(coordinates, placed)
        with without_autocast(coordinates):
            complete_coordinates = complete(at_least_float32(coordinates), placed, nowhere)
            if not values_are_hidden(coordinates) and not complete_coordinates.isfinite().all():
                raise ValueError(
                    "A placed token has a coordinate that is NaN or infinite; say placed=False "
                    "for such tokens."
                )
            return self._places(complete_coordinates)

    @overload
    def apply(self, fn: Callable[[nn.Module], None]) -> Self: ...
    @overload
    def apply(self, x: Tensor, /, places: Places) -> Tensor: ...
    def apply(
        self, fn: Tensor | Callable[[nn.Module], None], places: Places | None = None
    ) -> Tensor | Self:
        """Returns queries, keys or values x (B, heads, N, head_dim) turned to their places, in the basis.

        With a function alone it is `torch.nn.Module.apply`, which would otherwise break for every
        network that holds one.
        """
        if places is None and not isinstance(fn, Tensor):
            return super().apply(fn)
        if places is None:
            raise ValueError("apply(x, places) needs places, as prepare gives them.")
        return places.rotate(self._of_heads(cast(Tensor, fn)))

    def invert(self, y: Tensor, places: Places) -> Tensor:
        """Undoes `apply`: with relative values, turns the output (B, heads, N, head_dim) back by the places of the queries."""
        return places.rotate_back(self._of_heads(y))

    def logit_factor(self, places_q: Places, places_k: Places) -> Tensor | None:
        """Returns what multiplies the logits, (B, heads | 1, N_q, N_k), or None."""
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
        """Multiplies the basis into projections, in place and exactly; afterwards use `folded()` in this one's stead.

        Args:
            w_q: (heads head_dim, C), or its bias (heads head_dim,).
            w_k: The same for keys.
            w_v: The same for values, where they are turned too.
            w_o: Output projection (C, heads head_dim), where values are turned; its bias stays as
                it is.
            norm: What normalises queries and keys between projection and rotation, if anything
                does.

        Raises:
            ValueError: The basis does not commute with `norm`.
        """
        basis = self.basis()
        if basis is None:
            return
        require_foldable(norm)
        basis = basis.double().unsqueeze(1)
        for weight in (w_q, w_k, w_v):
            if weight is not None:
                weight.copy_(into_input(basis, weight.double(), self.heads))
        if w_o is not None:
            w_o.copy_(into_output(basis, w_o.double(), self.heads))

    def folded(self) -> "PositionEncoding":
        """Returns what is left of this encoding once its basis lies in the projections: itself, where it has none."""
        return self

    def without_constant_basis(self) -> "PositionEncoding":
        """Returns what projections in a basis need that nothing learns: itself, where that is all there is.

        It holds the same parameters, which go on learning.
        """
        return self

    def _check(self, coordinates: Tensor, placed: Tensor | None) -> None:
        if (
            coordinates.ndim != 3
            or coordinates.shape[-1] != self.axes
            or not coordinates.is_floating_point()
        ):
            got = f"{tuple(coordinates.shape)} {coordinates.dtype}"
            raise ValueError(f"Coordinates are {got}; allowed: (B, N, {self.axes}) floating point.")
        if placed is not None and (
            placed.shape != coordinates.shape[:2] or placed.dtype != torch.bool
        ):
            got = f"{tuple(placed.shape)} {placed.dtype}"
            raise ValueError(
                f"placed is {got}; allowed: {tuple(coordinates.shape[:2])} torch.bool."
            )

    def _of_heads(self, x: Tensor) -> Tensor:
        if x.ndim < 4 or x.shape[-1] != self.head_dim or x.shape[-3] != self.heads:
            got = tuple(x.shape)
            raise ValueError(
                f"Tokens have shape {got}; allowed: (B, {self.heads} heads, N, {self.head_dim} "
                f"channels)."
            )
        return x

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keeps what it holds in float32 at least, whatever the model is cast to: else phases would be off by tenths."""

        def precise(tensor: Tensor) -> Tensor:
            new = fn(tensor)
            return tensor.to(new.device) if new.dtype in (torch.float16, torch.bfloat16) else new

        super()._apply(precise, recurse)  # type: ignore[no-untyped-call]
        return self

    def _identity(self, coordinates: Tensor) -> Tensor:
        """Returns the rotation of an encoding that turns nothing, (B, 1, N, head_dim, head_dim)."""
        identity = torch.eye(self.head_dim, dtype=coordinates.dtype, device=coordinates.device)
        return identity.expand(coordinates.shape[0], 1, coordinates.shape[1], -1, -1)


class EncodingFactory(Protocol):
    """Makes an encoding for given sizes, as `functools.partial(CayleyString, wavelengths=(0.04, 2.0))` does."""

    def __call__(self, *, heads: int, head_dim: int, axes: int) -> PositionEncoding:
        """Returns it with its starting parameters."""
        ...
