"""Heads with encodings of their own: each group of heads reads its own slice of the coordinates."""

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.places import Places, side_by_side


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
        """Returns the orthogonal P, (heads, head_dim, head_dim); None: the identity."""
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
