"""A small vision transformer over tokens that have places, whatever they are tokens of."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stringline.encoders.attention import PositionalAttention
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.places import Places
from stringline.encoders.positions.rotary import FixedRotary


class Block(nn.Module):
    """Attention and a two-layer perceptron, each after a layer norm and around a residual (Dosovitskiy et al., 2021)."""

    def __init__(self, dim: int, heads: int, *, values: bool = True, mlp_ratio: float = 4.0) -> None:
        """Makes the layers.

        Args:
            dim: Channels of the tokens.
            heads: Attention heads.
            values: Relative values, see `PositionalAttention`.
            mlp_ratio: Hidden width of the perceptron, in units of `dim`.
        """
        super().__init__()
        hidden = round(dim * mlp_ratio)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = PositionalAttention(dim, heads, values=values)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """Returns tokens (B, N, dim) of the same places."""
        x = x + self.attention(self.attention_norm(x), places)
        y: Tensor = x + self.mlp(self.mlp_norm(x))
        return y


class VisionTransformer(nn.Module):
    """Pre-norm blocks over tokens with places; tokens without a place bear a learned mark."""

    def __init__(
        self,
        encoding: PositionEncoding,
        dim: int = 128,
        depth: int = 4,
        *,
        values: bool = True,
        mlp_ratio: float = 4.0,
        share_layers: bool = True,
        seed: int = 0,
    ) -> None:
        """Makes the blocks.

        Args:
            encoding: How places act; it also says the number of heads.
            dim: Channels of the tokens, heads times head_dim of the encoding.
            depth: Number of blocks.
            values: Relative values, see `PositionalAttention`.
            mlp_ratio: Hidden width of the perceptrons, in units of `dim`.
            share_layers: One encoding for all blocks, whose places are computed once; else each block has its own.
            seed: Of the starts of the other blocks' encodings.

        Raises:
            ValueError: `dim` does not fit the encoding.
        """
        super().__init__()
        if dim != encoding.heads * encoding.head_dim:
            asked = f"{encoding.heads} heads of {encoding.head_dim}"
            raise ValueError(f"dim is {dim}; the encoding has {asked}, so it must be their product.")
        others = 0 if share_layers else depth - 1
        self.encodings: Sequence[PositionEncoding] = nn.ModuleList(  # type: ignore[assignment]
            [encoding, *(encoding.redrawn(seed + 1 + layer) for layer in range(others))]
        )
        self.blocks = nn.ModuleList(Block(dim, encoding.heads, values=values, mlp_ratio=mlp_ratio) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.unplaced_mark = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, coordinates: Tensor, placed: Tensor | None = None) -> Tensor:
        """Encodes.

        Args:
            x: (B, N, dim) tokens.
            coordinates: (B, N, axes), their places in the unit of the encoding's wavelengths.
            placed: (B, N) bool, False for tokens that have none; None: all have one.

        Returns:
            (B, N, dim), normalised.
        """
        if placed is not None:
            x = x + torch.where(placed.unsqueeze(-1), 0.0, self.unplaced_mark).to(x.dtype)
        places = [encoding.prepare(coordinates, placed) for encoding in self.encodings]
        for layer, block in enumerate(self.blocks):
            x = block(x, places[layer % len(places)])
        y: Tensor = self.norm(x)
        return y

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify, those of the encodings included."""
        inside = {f"encodings.{i}.{name}" for i, encoding in enumerate(self.encodings) for name in encoding.no_weight_decay()}
        return inside | {"unplaced_mark"}

    @torch.no_grad()
    def fold_(self) -> None:
        """Folds all bases into the weights, for deployment: the same outputs to rounding, and nothing left to learn in them."""
        folded = [FixedRotary(encoding.heads, encoding.frequencies()) for encoding in self.encodings]
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, Block)  # For the type checker: ModuleList forgets.
            block.attention.fold_(self.encodings[layer % len(folded)].basis())
        self.encodings = nn.ModuleList(folded)  # type: ignore[assignment]
