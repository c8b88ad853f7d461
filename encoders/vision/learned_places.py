"""A place finer than a patch: a learned mean of the places of its cells."""

import torch
from torch import Tensor, nn

from stringline.encoders.positions.precision import without_autocast

STARTING_HEIGHT_M = 0.02
_OFFSET_M = 0.1


class LearnedPlaces(nn.Module):
    """Puts each patch at the softmax-weighted mean of the places of its cells.

    A patch of an overhead camera covers 10 cm of a table, so its centre may be far from the object
    that it shows. The scores are those of a small perceptron of the features of a cell and of its
    offset from the mean place of the patch, plus a learned multiple of the height of that offset.
    They start with the height alone: a cell that is 2 cm higher than another has e times its
    weight. Cells without a position have none. Offsets do not depend on shifts, so invariances of
    the coordinates remain.
    """

    def __init__(self, channels: int, *, axes: int = 3, hidden: int = 16) -> None:
        """Builds the perceptron.

        Args:
            channels: Channels of the features of a cell.
            axes: Coordinates per place, in metres, the last one upwards.
            hidden: Width of the perceptron.
        """
        super().__init__()
        self.features = nn.Linear(channels, hidden)
        self.offset = nn.Linear(axes, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)  # A bias would cancel in the softmax.
        # In units of the starting height: steps of an optimiser do not follow large parameters.
        self.height = nn.Parameter(torch.tensor(1.0))
        nn.init.zeros_(self.score.weight)

    def forward(
        self, maps: Tensor, places: Tensor, known: Tensor, spread: Tensor | None, side: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns places (B, N, axes) of patches, their existence (B, N), and their spread.

        Args:
            maps: Features of cells, (B, channels, rows, columns).
            places: Their places, (B, rows columns, axes), row by row.
            known: (B, rows columns) bool, whether a cell has a position.
            spread: Standard deviation of their places, (B, rows columns, axes); None: zero.
            side: Cells along a side of a patch.
        """
        size = maps.shape[2:]
        inside = _by_patch(known.unsqueeze(-1), size, side)
        cells = torch.where(inside, _by_patch(places, size, side), 0.0)
        middle = cells.sum(dim=2, keepdim=True) / inside.sum(dim=2, keepdim=True).clamp(min=1)
        features = _by_patch(maps.flatten(2).transpose(1, 2), size, side)
        with without_autocast(maps):
            scores = self._scores(features, torch.where(inside, cells - middle, 0.0))
            # Finite, so that a patch without any cell has neither NaN nor gradients.
            scores = scores.masked_fill(~inside, torch.finfo(scores.dtype).min)
            weights = torch.softmax(scores, dim=2).to(cells.dtype)
        spread = None if spread is None else (weights * _by_patch(spread, size, side)).sum(dim=2)
        return (weights * cells).sum(dim=2), inside.any(dim=2).squeeze(-1), spread

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"height"}

    def _scores(self, features: Tensor, offsets: Tensor) -> Tensor:
        """Returns the scores (B, N, cells, 1) of cells with offsets (B, N, cells, axes), metres."""
        kind = self.score.weight.dtype
        near = offsets.to(kind)
        seen = self.features(features.to(kind))
        scores: Tensor = self.score(nn.functional.gelu(seen + self.offset(near / _OFFSET_M)))
        return scores + self.height * near[..., -1:] / STARTING_HEIGHT_M


def _by_patch(cells: Tensor, size: torch.Size, side: int) -> Tensor:
    """Returns values of cells (B, rows columns, C) as (B, patches, cells of a patch, C)."""
    rows, columns = size
    split = cells.reshape(len(cells), rows // side, side, columns // side, side, -1)
    return split.transpose(2, 3).flatten(3, 4).flatten(1, 2)
