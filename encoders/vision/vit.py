"""A vision transformer over tokens with positions, of any origin."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, cast

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.encoders.positions.encoding import EncodingFactory, Places, PositionEncoding
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
    """Self-attention of a set of tokens."""

    def __call__(self, x: Tensor, places: Places, *, present: Tensor | None = None) -> Tensor:
        """Returns (B, N, dim) for tokens x (B, N, dim), of which those `present` (B, N) exist."""
        ...

    def fold_(self, basis: Tensor | None) -> None:
        """Folds a basis into the weights."""
        ...


AttentionFactory = Callable[..., nn.Module]
"""Makes an `Attention`, given `dim`, `heads` and `values`, such as `PositionalAttention`."""


class Block(nn.Module):
    """Attention and a two-layer perceptron, pre-norm with residuals (Dosovitskiy et al., 2021)."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        values: bool = True,
        mlp_ratio: float = 4.0,
        attention: AttentionFactory = PositionalAttention,
    ) -> None:
        """Builds the layers; arguments as for `VisionTransformer`."""
        super().__init__()
        POSITIVE.check(mlp_ratio=mlp_ratio)
        hidden = round(dim * mlp_ratio)
        self.attention_norm = nn.LayerNorm(dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.attention = attention(dim, heads, values=values)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor, places: Places, present: Tensor | None = None) -> Tensor:
        """Returns tokens (B, N, dim) of the same places; those not `present` (B, N) are ignored."""
        x = x + self.attention(self.attention_norm(x), places, present=present)
        y: Tensor = x + self.mlp(self.mlp_norm(x))
        return y


class VisionTransformer(nn.Module):
    """Pre-norm blocks over tokens with positions; tokens without one have a learned mark.

    If a basis has no parameters, as in Circulant-STRING, the projections are stored in that basis,
    and no forward pass multiplies it in: P^T W of a random W has the same distribution. Departure
    from the paper: Adam then scales the entries of P^T W instead of those of W.
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
        """Builds the blocks.

        Args:
            encoding: The position encoding; it determines the number of heads.
            dim: Channels of the tokens, heads times head_dim of the encoding.
            depth: Number of blocks.
            values: Relative values, see `PositionalAttention`.
            mlp_ratio: Hidden width of the perceptrons, in units of `dim`.
            share_layers: One encoding for all blocks, whose places are computed once; otherwise one
                per block.
            registers: Learned tokens without a position before all others (Darcet et al., 2024).
                The first may serve as CLS.
            attention: Such as `PositionalAttention` or `LinearAttention`.
            seed: Seed of the registers and of the encodings of the other blocks.
        """
        super().__init__()
        if dim != encoding.heads * encoding.head_dim:
            raise ValueError(
                f"dim is {dim}; allowed: {encoding.heads * encoding.head_dim}, since the encoding "
                f"has {encoding.heads} heads of {encoding.head_dim} channels."
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
        """Builds a ViT-Ti, -S, -B or -L; the first of the registers is CLS."""
        dim, depth, heads = SIZES[size]
        made = encoding(heads=heads, head_dim=dim // heads, axes=axes)
        return cls(made, dim, depth, values=values, registers=registers)

    def forward(
        self,
        x: Tensor,
        coordinates: Tensor,
        has_position: Tensor | None = None,
        present: Tensor | None = None,
        *,
        spread: Tensor | None = None,
    ) -> Tensor:
        """Returns encoded tokens (B, N, dim), normalised.

        Args:
            x: (B, N, dim) tokens.
            coordinates: (B, N, axes), in the unit of the encoding's wavelengths.
            has_position: (B, N) bool, False for tokens without a position; if None, all have one.
            present: (B, N) bool, False for tokens that do not exist, such as those of a camera that
                an example lacks; if None, all exist. They have no effect on the others, and their
                output has no meaning. Each example needs an existing token.
            spread: (B, N, axes), the standard deviation of uncertain places, see
                `PositionEncoding.prepare`; if None, all are exact.
        """
        return self.encode(x, coordinates, has_position, present, spread=spread)[1]

    def encode(
        self,
        x: Tensor,
        coordinates: Tensor,
        has_position: Tensor | None = None,
        present: Tensor | None = None,
        *,
        spread: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns registers (B, registers, dim) and tokens (B, N, dim); see `forward`."""
        count = 0
        if present is not None:
            has_position = present if has_position is None else has_position & present
        if self.registers is not None:
            count = len(self.registers)
            present = (
                None if present is None else nn.functional.pad(present, (count, 0), value=True)
            )
            x, coordinates, has_position = self._with_registers(x, coordinates, has_position)
            if spread is not None:
                spread = nn.functional.pad(spread, (0, 0, count, 0))
        if has_position is not None:
            x = x + torch.where(has_position.unsqueeze(-1), 0.0, self.unplaced_mark).to(x.dtype)
        places = [
            encoding.prepare(coordinates, has_position, spread=spread)
            for encoding in self.encodings
        ]
        x = places[0].embed(x)
        for layer, block in enumerate(self.blocks):
            x = block(x, places[layer % len(places)], present)
        x = self.norm(x)
        return x[:, :count], x[:, count:]

    def _with_registers(
        self, x: Tensor, coordinates: Tensor, has_position: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        assert self.registers is not None  # Checked by the caller.
        batch = x.shape[0]
        count = len(self.registers)
        no_position = coordinates.new_zeros(batch, count, coordinates.shape[-1])
        known = (
            torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
            if has_position is None
            else has_position
        )
        return (
            torch.cat((self.registers.to(x.dtype).expand(batch, -1, -1), x), dim=1),
            torch.cat((no_position, coordinates), dim=1),
            nn.functional.pad(known, (count, 0), value=False),
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay, encodings included."""
        own = {"unplaced_mark"} | ({"registers"} if self.registers is not None else set())
        return own | encoding_parameters(self.encodings)

    @torch.no_grad()
    def fold_(self) -> None:
        """Folds all bases into the weights, for deployment, without changing the outputs.

        The basis cannot be learned afterwards. If the attention cannot be folded, a ValueError is
        raised and nothing changes.
        """
        for layer, block in enumerate(self.blocks):
            cast(Attention, block.attention).fold_(
                self.encodings[layer % len(self.encodings)].basis()
            )
        folded = [encoding.folded() for encoding in self.encodings]
        self.encodings = nn.ModuleList(folded)  # type: ignore[assignment]


def encoding_parameters(encodings: Sequence[PositionEncoding]) -> set[str]:
    """Returns the names of the parameters of `encodings` without weight decay."""
    return {
        f"encodings.{number}.{name}"
        for number, encoding in enumerate(encodings)
        for name in encoding.no_weight_decay()
    }
