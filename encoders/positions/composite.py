"""Encodings composed of others: groups of heads with encodings of their own, and an axis of time.

With divided heads each group of heads reads its own slice of the coordinates.

In space and time the last axis is in seconds, with wavelengths of its own. By theorem 3.4 of
STRING (Schenck et al., 2025, arXiv 2502.02562) an axis is one more row of the frequencies:
R(r, t) = P RoPE(Omega r + omega t) P^T depends on differences of positions and of times, in the
same basis.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from stringline.encoders.positions.encoding import (
    EncodingFactory,
    Places,
    PositionEncoding,
    complete,
    side_by_side,
)
from stringline.encoders.positions.frequencies import FrequencyInitialisation
from stringline.encoders.positions.precision import at_least_float32
from stringline.encoders.positions.rotary import NoEncoding, Rotary


class DividedHeads(PositionEncoding):
    """Groups of attention heads, each with an encoding over its own axes.

    Coordinates consist of the own axes of each group in turn, and of common axes at the end, such
    as time. All groups have the same number of own axes, and encodings of the same kind.
    """

    def __init__(self, parts: Sequence[PositionEncoding], *, common: int = 0) -> None:
        """Joins the encodings of the groups, which become parts of this one.

        Args:
            parts: An encoding per group, over its own axes and the common ones.
            common: Number of common axes.
        """
        first = parts[0]
        own = first.axes - common
        super().__init__(
            sum(part.heads for part in parts),
            first.head_dim,
            own * len(parts) + common,
            share_heads=False,
        )
        self.parts: Sequence[PositionEncoding] = nn.ModuleList(parts)  # type: ignore[assignment]
        self.own = own
        self.common = common
        self.relative = first.relative
        self.in_every_layer = first.in_every_layer

    def prepare(
        self,
        coordinates: Tensor,
        has_position: Tensor | None = None,
        fallback_position: Tensor | None = None,
        *,
        spread: Tensor | None = None,
        like: Places | None = None,
    ) -> Places:
        """Computes places; see `PositionEncoding.prepare`."""
        self._check(coordinates, has_position, spread)
        placed = [
            part.prepare(
                self._own(coordinates, group),
                has_position,
                None if fallback_position is None else self._own(fallback_position, group),
                spread=None if spread is None else self._own(spread, group),
                like=None if like is None else self._basis_of(group, like),
            )
            for group, part in enumerate(self.parts)
        ]
        return side_by_side(placed, self._sizes)

    def basis(self) -> Tensor | None:
        """Returns the orthogonal P, (heads, head_dim, head_dim); None means the identity."""
        bases = [part.basis() for part in self.parts]
        known = [basis for basis in bases if basis is not None]
        if not known:
            return None
        return torch.cat(
            [basis.expand(size, -1, -1) for basis, size in zip(known, self._sizes, strict=True)]
        )

    def rotation(self, coordinates: Tensor) -> Tensor:
        """Returns rotations (B, heads, N, head_dim, head_dim)."""
        rotations = [
            part.rotation(self._own(coordinates, group)).expand(-1, part.heads, -1, -1, -1)
            for group, part in enumerate(self.parts)
        ]
        return torch.cat(rotations, dim=1)

    def reset_parameters(self, seed: int) -> None:
        """Draws the initial values of all groups, from a seed of their own each."""
        for group, part in enumerate(self.parts):
            part.reset_parameters(seed * len(self.parts) + group)

    def zero_(self) -> Self:
        """Resets all groups; see `PositionEncoding.zero_`."""
        for part in self.parts:
            part.zero_()
        return self

    def folded(self) -> "DividedHeads":
        """Returns the rest of all groups after folding their bases."""
        return self._each(lambda part: part.folded())

    def without_constant_basis(self) -> "DividedHeads":
        """Returns the groups without bases that have no parameters."""
        return self._each(lambda part: part.without_constant_basis())

    def _each(self, change: Callable[[PositionEncoding], PositionEncoding]) -> "DividedHeads":
        return DividedHeads([change(part) for part in self.parts], common=self.common)

    def _places(self, coordinates: Tensor) -> Places:
        return self.prepare(coordinates)

    def _own(self, coordinates: Tensor, group: int) -> Tensor:
        """Returns the own and the common axes of a group."""
        own = coordinates[..., group * self.own : (group + 1) * self.own]
        if not self.common:
            return own
        return torch.cat((own, coordinates[..., -self.common :]), dim=-1)

    def _basis_of(self, group: int, places: Places) -> Places:
        """Returns the basis of the heads of a group, without places."""
        blocks = places.basis_blocks
        if blocks is None:
            return places
        return Places(basis_blocks=torch.split(blocks, self._sizes)[group])

    @property
    def _sizes(self) -> list[int]:
        return [part.heads for part in self.parts]


def divided(
    factory: EncodingFactory, *, heads: int, head_dim: int, axes: int, groups: int
) -> list[PositionEncoding]:
    """Returns an encoding per group of heads, with different initial parameters.

    Args:
        factory: Factory of the encodings.
        heads: Number of all attention heads. If the number of groups does not divide it, the first
            groups have one head more.
        head_dim: Channels per head.
        axes: Coordinates of each group.
        groups: Number of groups, at most `heads`.
    """
    if not 1 <= groups <= heads:
        raise ValueError(f"{heads} heads for {groups} frames; allowed: at least one head for each.")
    sizes = [heads // groups + (group < heads % groups) for group in range(groups)]
    parts = [factory(heads=size, head_dim=head_dim, axes=axes) for size in sizes]
    for group, part in enumerate(parts[1:], start=1):
        part.reset_parameters(group)
    return parts


class SpaceTime(Rotary):
    """An encoding by frequencies, with time as its last axis.

    Tokens without a position are put at the centroid of the others in space; they keep their own
    time.

    The planes that are fastest in space start as the slowest in time and vice versa: some compare
    positions at any time, others compare times at any position. In the same order each plane would
    mix both.
    """

    scale: Tensor
    scaled: Tensor

    def __init__(self, space: Rotary, wavelengths: tuple[float, float]) -> None:
        """Adds the axis, with the shortest and longest wavelength in seconds.

        Its frequencies are learned if those of space are. `space` becomes a part of this encoding.
        """
        super().__init__(space.heads, space.head_dim, space.axes + 1, share_heads=space.sets == 1)
        self.space = space
        self.wavelengths = (float(wavelengths[0]), float(wavelengths[1]))
        self.initialisation = FrequencyInitialisation(wavelengths=self.wavelengths)
        self.register_buffer("scale", torch.tensor(self.initialisation.unit))
        scaled = torch.empty(space.sets, space.head_dim // 2)
        if any(parameter.requires_grad for parameter in space.parameters()):
            self.scaled = nn.Parameter(scaled)
        else:
            self.register_buffer("scaled", scaled)
        self._start_time()

    def frequencies(self) -> Tensor:
        """Returns Omega, (heads | 1, axes, head_dim / 2), in radians per unit, last per second."""
        omega = self.space.frequencies()
        time = (self.scaled * self.scale).to(omega.dtype).unsqueeze(1)
        return torch.cat((omega, time), dim=1)

    def basis_blocks(self) -> Tensor | None:
        """Returns the basis of space."""
        return self.space.basis_blocks()

    def prepare(
        self,
        coordinates: Tensor,
        has_position: Tensor | None = None,
        fallback_position: Tensor | None = None,
        *,
        spread: Tensor | None = None,
        like: Places | None = None,
    ) -> Places:
        """Computes places; see `PositionEncoding.prepare`. All tokens keep their time."""
        self._check(coordinates, has_position, spread)
        if has_position is not None:
            known = at_least_float32(coordinates)
            here = complete(
                known[..., :-1],
                has_position,
                None if fallback_position is None else fallback_position[..., :-1],
            )
            coordinates = torch.cat((here, known[..., -1:]), dim=-1)
            if spread is not None:
                spread = torch.where(has_position.unsqueeze(-1), spread, 0.0)
        return super().prepare(coordinates, spread=spread, like=like)

    # As `FixedRotary` it would move tokens without a position to the mean time.
    def folded(self) -> "SpaceTime":  # type: ignore[override]
        """Returns the frequencies alone, no longer learned."""
        folded = SpaceTime(self.space.folded(), self.wavelengths).to(self.scaled.device)
        folded.scaled = self.scaled.detach().clone()
        return folded

    def without_constant_basis(self) -> "SpaceTime":
        """Returns this encoding without a basis that has no parameters."""
        bare = self.space.without_constant_basis()
        if bare is self.space:
            return self
        other = copy.copy(self)  # Shares its modules, but not the dictionary that names them.
        other._modules = dict(self._modules) | {"space": bare}
        return other

    @torch.no_grad()
    def zero_(self) -> Self:
        """Sets all frequencies of space and time to zero; see `PositionEncoding.zero_`."""
        self.space.zero_()
        self.scaled.zero_()
        return self

    def reset_parameters(self, seed: int) -> None:
        """Draws the frequencies of space and resets those of time."""
        self.space.reset_parameters(seed)
        self._start_time()

    @torch.no_grad()
    def _start_time(self) -> None:
        slowest_first = self.space.frequencies().detach().norm(dim=1).argsort(dim=-1, stable=True)
        magnitudes = (
            self.initialisation.magnitudes(self.scaled.shape[-1]) / self.initialisation.unit
        )
        self.scaled.scatter_(
            1, slowest_first, magnitudes.to(self.scaled).expand_as(self.scaled).contiguous()
        )


def with_time(encoding: PositionEncoding, wavelengths: tuple[float, float]) -> PositionEncoding:
    """Adds a time axis to an encoding of positions; wavelengths as for `SpaceTime`."""
    if isinstance(encoding, NoEncoding):
        return NoEncoding(encoding.heads, encoding.head_dim, encoding.axes + 1)
    if not isinstance(encoding, Rotary):
        raise ValueError(
            f"Time cannot be added to {type(encoding).__name__}; allowed: encodings by "
            f"frequencies, such as CayleyString, CirculantString, RopeMixed or Rope, and "
            f"NoEncoding."
        )
    return SpaceTime(encoding, wavelengths)
