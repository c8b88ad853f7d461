"""Patches in space: tokens of the voxels of a point cloud.

A patch of an image spans all that happens to lie behind it; a patch of space is at one place, which
is known to a centimetre. Voxels are drawn by rarity, since a scene is mostly table: the weight of a
voxel falls with the number of voxels of its height and colour (3D FlowMatch Actor, Gkanatsios et
al., 2025, arXiv 2508.11002, samples where features are sparse, for the same reason). The feature of
a voxel is the maximum and the mean over its points of a small shared network (PointNet, Qi et al.,
2017, arXiv 1612.00593).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, NOT_NEGATIVE, POSITIVE

_SHADES = 5


@dataclass(frozen=True, kw_only=True)
class VoxelSettings:
    """How a cloud is divided into tokens.

    Attributes:
        tokens: Number of drawn voxels, N.
        size_m: Side of a voxel, m.
        points: Largest number of points that are read of a voxel.
        rarity: Exponent of the weights in the draw: 0 draws all voxels alike, larger ones rare
            heights and colours.
        support_weight: Factor of the weights of voxels at or below the height of the support.
        hidden: Width of the network over points.
    """

    tokens: int = 128
    size_m: float = 0.025
    points: int = 8
    rarity: float = 0.6
    support_weight: float = 0.3
    hidden: int = 64

    def __post_init__(self) -> None:
        COUNT.check(tokens=self.tokens, points=self.points, hidden=self.hidden)
        POSITIVE.check(size_m=self.size_m, support_weight=self.support_weight)
        NOT_NEGATIVE.check(rarity=self.rarity)


@dataclass(frozen=True)
class PointTokens:
    """Tokens of voxels.

    Attributes:
        features: (B, N, dim).
        place: (B, N, 3) means of the read points, m.
        present: (B, N) bool, False where a cloud has fewer voxels.
    """

    features: Tensor
    place: Tensor
    present: Tensor


class VoxelTokens(nn.Module):
    """Divides clouds into voxels, draws N of them by rarity, and embeds each by its points.

    In training, borders between voxels have a random horizontal offset, and the draw differs each
    time. Otherwise both are functions of the cloud and of `draw`, alike for any batch size.
    """

    def __init__(
        self,
        dim: int,
        low: Sequence[float],
        high: Sequence[float],
        settings: VoxelSettings | None = None,
        *,
        spare_m: float = 0.15,
    ) -> None:
        """Builds the network.

        Args:
            dim: Width of the tokens.
            low: Lower corner (3,) of the box of all clouds, m.
            high: Upper corner.
            settings: See `VoxelSettings`.
            spare_m: Space around the box for clouds that training moves, m.
        """
        super().__init__()
        self.settings = settings or VoxelSettings()
        size = self.settings.size_m
        self.register_buffer("low", torch.tensor(low).float() - spare_m, persistent=False)
        spans = [(b - a + 2 * spare_m) / size for a, b in zip(low, high, strict=True)]
        self._size = [math.ceil(span) + 2 for span in spans]
        hidden = self.settings.hidden
        self.point = nn.Sequential(nn.Linear(7, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.join = nn.Sequential(nn.LayerNorm(2 * hidden), nn.Linear(2 * hidden, dim))

    low: Tensor

    def forward(
        self,
        points: Tensor,
        colours: Tensor,
        count: Tensor,
        support: Tensor,
        draw: Tensor | None = None,
    ) -> PointTokens:
        """Returns the tokens of clouds.

        Args:
            points: (B, P, 3) m.
            colours: (B, P, 3) from 0 to 255.
            count: (B,) number of points; those behind are ignored.
            support: (B,) height of the support, m.
            draw: (B,) number of the draw outside of training; if None, 0.
        """
        with torch.no_grad():
            index, exists = self._drawn(points, colours, count, support, draw)
        batch, tokens, slots = index.shape
        flat = index.flatten(1)[..., None].expand(-1, -1, 3)
        place = points.gather(1, flat).reshape(batch, tokens, slots, 3)
        shade = colours.gather(1, flat).reshape(batch, tokens, slots, 3).to(place.dtype)
        mask = exists[..., None]
        number = exists.sum(dim=2, keepdim=True).clamp(min=1)
        centre = torch.where(mask, place, 0.0).sum(dim=2) / number
        inputs = torch.cat(
            (
                (place - centre[:, :, None]) / self.settings.size_m,
                shade * (1 / 64) - 2,
                (place[..., 2:] - support[:, None, None, None]) * 10,
            ),
            dim=-1,
        )
        seen = self.point(inputs.to(next(self.point.parameters()).dtype))
        highest = seen.masked_fill(~mask, -30.0).amax(dim=2)
        mean = torch.where(mask, seen, 0.0).sum(dim=2) / number
        return PointTokens(self.join(torch.cat((highest, mean), dim=-1)), centre, exists.any(dim=2))

    def _drawn(
        self,
        points: Tensor,
        colours: Tensor,
        count: Tensor,
        support: Tensor,
        draw: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Returns points (B, N, K) of the drawn voxels, and which of them exist."""
        settings = self.settings
        batch, most, _ = points.shape
        device = points.device
        wide, deep, layers = self._size
        # A border between two layers is at the height of the support.
        low = self.low.expand(batch, 3).clone()
        below = torch.ceil((support - low[:, 2]) / settings.size_m)
        low[:, 2] = support - below * settings.size_m
        at = (points - low[:, None]) / settings.size_m
        if self.training:
            at[..., :2] += torch.rand(batch, 1, 2, device=device)
        cell = at.long()
        limits = torch.tensor(self._size, device=device)
        inside = torch.arange(most, device=device) < count[:, None]
        inside &= ((at >= 0) & (cell < limits)).all(dim=-1)
        row, point = inside.nonzero(as_tuple=True)
        cell = cell[row, point]
        voxels = wide * deep * layers
        key = (cell[:, 0] * deep + cell[:, 1]) * layers + cell[:, 2] + row * voxels
        unique, inverse = torch.unique(key, return_inverse=True)
        weight = self._weights(colours[row, point], cell[:, 2], row, inverse, below, len(unique))
        token = self._ranked(unique, voxels, weight, batch, draw)
        token = token[inverse]
        chosen = token >= 0
        token = token[chosen]
        point = point[chosen]
        # Each point takes one of the slots of its token; of several in a slot, one stays.
        slot = (
            torch.randint(settings.points, point.shape, device=device)
            if self.training
            else (_hashed(point, torch.zeros_like(point)) * settings.points).long()
        )
        index = torch.full((batch * settings.tokens * settings.points,), -1, device=device)
        index.scatter_reduce_(0, token * settings.points + slot, point, "amax")
        index = index.reshape(batch, settings.tokens, settings.points)
        return index.clamp(min=0), index >= 0

    def _weights(
        self,
        colours: Tensor,
        layer: Tensor,
        row: Tensor,
        inverse: Tensor,
        below: Tensor,
        count: int,
    ) -> Tensor:
        """Returns the weights of all voxels, by the number of voxels of their height and colour."""
        settings = self.settings
        offset = (
            torch.randint(64, (3,), device=layer.device)
            if self.training
            else torch.full((3,), 32, device=layer.device)
        )
        shade = (colours.long() + offset) >> 6
        shade = (shade[:, 0] * _SHADES + shade[:, 1]) * _SHADES + shade[:, 2]
        kinds = self._size[2] * _SHADES**3
        # One point of a voxel gives its colour: the lowest number, alike in any order of points.
        of_point = layer * _SHADES**3 + shade + row * kinds
        kind = layer.new_full((count,), len(below) * kinds).scatter_reduce_(
            0, inverse, of_point, "amin"
        )
        often = torch.bincount(kind, minlength=len(below) * kinds)[kind]
        weight = often.float().pow(-settings.rarity)
        of_support = (kind % kinds) // _SHADES**3 < below[kind // kinds]
        return torch.where(of_support, weight * settings.support_weight, weight)

    def _ranked(
        self, unique: Tensor, voxels: int, weight: Tensor, batch: int, draw: Tensor | None
    ) -> Tensor:
        """Returns the token of each voxel, B N numbers, or -1: a draw without replacement.

        The N largest of weight / Exponential(1) (Efraimidis and Spirakis, 2006).
        """
        tokens = self.settings.tokens
        row = unique // voxels
        if self.training:
            random = torch.empty_like(weight).exponential_()
        else:
            number = torch.zeros_like(row) if draw is None else draw.to(row)[row]
            random = -torch.log(_hashed(unique % voxels, number + 1).clamp(min=1e-9))
        order = torch.argsort(weight / random, descending=True, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        counts = torch.bincount(row, minlength=batch)
        first = torch.cumsum(counts, 0) - counts
        rank = torch.arange(len(unique), device=unique.device) - first[row[order]]
        token = torch.full_like(unique, -1)
        drawn = rank < tokens
        token[order[drawn]] = rank[drawn] + row[order[drawn]] * tokens
        return token


def _hashed(keys: Tensor, salt: Tensor) -> Tensor:
    """Returns numbers in [0, 1) that look random, functions of keys and salts (integers)."""
    mixed = (keys * 2654435761 + salt * 2246822519 + 374761393) & 0xFFFFFFFF
    for _ in range(2):
        mixed = (((mixed >> 16) ^ mixed) * 0x45D9F3B) & 0xFFFFFFFF
    return ((mixed >> 16) ^ mixed).float() / 2.0**32


def place_features(place: Tensor, wavelengths: Tensor) -> Tensor:
    """Returns sines and cosines of places (..., 3) at some wavelengths (W,), (..., 6 W)."""
    angle = place[..., None] * (2 * math.pi / wavelengths)
    return torch.cat((angle.sin(), angle.cos()), dim=-1).flatten(-2)
