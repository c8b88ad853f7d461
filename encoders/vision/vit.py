"""A vision transformer over tokens that have places, whatever they are tokens of."""

from collections.abc import Sequence
from typing import Literal, Protocol, cast

import torch
from torch import Tensor, nn

from stringline.datasets.contract.arguments import POSITIVE
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.places import Places
from stringline.encoders.vision.attention import PositionalAttention

Size = Literal["tiny", "small", "base", "large"]
# Width, depth and heads (Dosovitskiy et al., ViT, 2021; Touvron et al., DeiT, 2021).
SIZES: dict[Size, tuple[int, int, int]] = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
}


class Attention(Protocol):
    """Attention of a set of tokens to itself."""

    def __call__(self, x: Tensor, places: Places, *, present: Tensor | None = None) -> Tensor:
        """Returns (B, N, dim) for tokens x (B, N, dim) at their places, of which those `present` (B, N) bool answer."""
        ...

    def fold_(self, basis: Tensor | None) -> None:
        """Folds a basis into the weights."""
        ...


class AttentionFactory(Protocol):
    """Makes attention, as the classes `PositionalAttention` and `LinearAttention` do."""

    def __call__(self, dim: int, heads: int, *, values: bool) -> nn.Module:
        """Returns an `Attention` for tokens of `dim` channels."""
        ...


class Block(nn.Module):
    """Attention and a two-layer perceptron, each after a layer norm and around a residual (Dosovitskiy et al., 2021)."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        values: bool = True,
        mlp_ratio: float = 4.0,
        attention: AttentionFactory = PositionalAttention,
    ) -> None:
        """Makes the layers.

        Args:
            dim: Channels of the tokens.
            heads: Attention heads.
            values: Relative values, see `PositionalAttention`.
            mlp_ratio: Hidden width of the perceptron, in units of `dim`.
            attention: Such as `PositionalAttention` or `LinearAttention`.

        Raises:
            ValueError: The perceptron has no width.
        """
        super().__init__()
        POSITIVE.check(mlp_ratio=mlp_ratio)
        hidden = round(dim * mlp_ratio)
        self.attention_norm = nn.LayerNorm(dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.attention = attention(dim, heads, values=values)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor, places: Places, present: Tensor | None = None) -> Tensor:
        """Returns tokens (B, N, dim) of the same places; those not `present` (B, N) tell the others nothing."""
        x = x + self.attention(self.attention_norm(x), places, present=present)
        y: Tensor = x + self.mlp(self.mlp_norm(x))
        return y


class VisionTransformer(nn.Module):
    """Pre-norm blocks over tokens with places; tokens without a place bear a learned mark.

    Where a basis has nothing to learn, as Circulant-STRING's, the projections are kept in it from
    the start, and no forward has to multiply it in: P^T W of a random W is as random, with the same
    covariance. Departure from the paper: Adam then scales the entries of P^T W, not those of W.
    """

    def __init__(
        self,
        encoding: PositionEncoding,
        dim: int = 128,
        depth: int = 4,
        *,
        values: bool = True,
        mlp_ratio: float = 4.0,
        share_layers: bool = True,
        registers: int = 0,
        attention: AttentionFactory = PositionalAttention,
        seed: int = 0,
    ) -> None:
        """Makes the blocks.

        Args:
            encoding: How places act; it also says the number of heads.
            dim: Channels of the tokens, heads times head_dim of the encoding.
            depth: Number of blocks.
            values: Relative values, see `PositionalAttention`.
            mlp_ratio: Hidden width of the perceptrons, in units of `dim`.
            share_layers: One encoding for all blocks, whose places are computed once; else each
                block has its own.
            registers: Learned tokens without a place before all others (Darcet et al., 2024). The
                first may serve as CLS.
            attention: Such as `PositionalAttention` or `LinearAttention`.
            seed: Of the starts of the other blocks' encodings and of the registers.

        Raises:
            ValueError: `dim` does not fit the encoding.
        """
        super().__init__()
        if dim != encoding.heads * encoding.head_dim:
            asked = f"{encoding.heads} heads of {encoding.head_dim}"
            raise ValueError(
                f"dim is {dim}; the encoding has {asked}, so it must be their product."
            )
        encoding = encoding.without_constant_basis()
        others = depth - 1 if encoding.in_every_layer and not share_layers else 0
        self.encodings: Sequence[PositionEncoding] = nn.ModuleList(  # type: ignore[assignment]
            [
                encoding,
                *(encoding.redrawn(1_000_003 * (seed + 1) + layer) for layer in range(others)),
            ]
        )
        self.blocks = nn.ModuleList(
            Block(dim, encoding.heads, values=values, mlp_ratio=mlp_ratio, attention=attention)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.unplaced_mark = nn.Parameter(torch.zeros(dim))
        drawn = torch.randn(registers, dim, generator=torch.Generator().manual_seed(seed))
        self.registers = nn.Parameter(0.02 * drawn) if registers else None

    @classmethod
    def of_size(
        cls,
        size: Size,
        encoding: EncodingFactory,
        axes: int = 3,
        *,
        values: bool = True,
        registers: int = 1,
    ) -> "VisionTransformer":
        """Makes a ViT-Ti, -S, -B or -L.

        Args:
            size: One of `SIZES`.
            encoding: Such as `functools.partial(CayleyString, wavelengths=(0.04, 2.0))`.
            axes: Coordinates per place.
            values: Relative values.
            registers: Learned tokens without a place, of which the first is CLS.
        """
        dim, depth, heads = SIZES[size]
        made = encoding(heads=heads, head_dim=dim // heads, axes=axes)
        return cls(made, dim, depth, values=values, registers=registers)

    def forward(
        self,
        x: Tensor,
        coordinates: Tensor,
        placed: Tensor | None = None,
        present: Tensor | None = None,
    ) -> Tensor:
        """Encodes.

        Args:
            x: (B, N, dim) tokens.
            coordinates: (B, N, axes), their places in the unit of the encoding's wavelengths.
            placed: (B, N) bool, False for tokens that have none; None: all have one.
            present: (B, N) bool, False for tokens that are not there, such as those of a camera
                that an example lacks; None: all are. The others come out as if these were no
                tokens; what comes out in their stead means nothing. Each example needs a token that
                is there.

        Returns:
            (B, N, dim), normalised.
        """
        return self.encode(x, coordinates, placed, present)[1]

    def encode(
        self,
        x: Tensor,
        coordinates: Tensor,
        placed: Tensor | None = None,
        present: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Encodes; arguments as for `forward`.

        Returns:
            The registers (B, registers, dim) and the tokens (B, N, dim), normalised.
        """
        count = 0
        if present is not None:
            placed = present if placed is None else placed & present
        if self.registers is not None:
            count = len(self.registers)
            present = (
                None if present is None else nn.functional.pad(present, (count, 0), value=True)
            )
            x, coordinates, placed = self._with_registers(x, coordinates, placed)
        if placed is not None:
            x = x + torch.where(placed.unsqueeze(-1), 0.0, self.unplaced_mark).to(x.dtype)
        places = [encoding.prepare(coordinates, placed) for encoding in self.encodings]
        x = places[0].embed(x)
        for layer, block in enumerate(self.blocks):
            x = block(x, places[layer % len(places)], present)
        x = self.norm(x)
        return x[:, :count], x[:, count:]

    def _with_registers(
        self, x: Tensor, coordinates: Tensor, placed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        assert self.registers is not None  # The caller looked.
        batch = x.shape[0]
        count = len(self.registers)
        nowhere = coordinates.new_zeros(batch, count, coordinates.shape[-1])
        known = (
            torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if placed is None else placed
        )
        return (
            torch.cat((self.registers.to(x.dtype).expand(batch, -1, -1), x), dim=1),
            torch.cat((nowhere, coordinates), dim=1),
            nn.functional.pad(known, (count, 0), value=False),
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify, those of the encodings included."""
        inside = {
            f"encodings.{i}.{name}"
            for i, encoding in enumerate(self.encodings)
            for name in encoding.no_weight_decay()
        }
        return inside | {"unplaced_mark"} | ({"registers"} if self.registers is not None else set())

    @torch.no_grad()
    def fold_(self) -> None:
        """Folds all bases into the weights, for deployment: the same outputs to rounding, and nothing left to learn in them.

        Raises:
            ValueError: The attention cannot be folded; nothing has changed then.
        """
        for layer, block in enumerate(self.blocks):
            cast(Attention, block.attention).fold_(
                self.encodings[layer % len(self.encodings)].basis()
            )
        self.encodings = nn.ModuleList([encoding.folded() for encoding in self.encodings])  # type: ignore[assignment]
