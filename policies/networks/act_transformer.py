"""The transformer of ACT: DETR's layers, with positions added to queries and keys only.

Carion et al., DETR, ECCV 2020 (arXiv 2005.12872), appendix A.3; norms come after the residuals.
"""

import torch
from torch import Tensor, nn


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer."""

    def __init__(self, dim: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.feed_forward = _feed_forward(dim, feed_forward, dropout)
        self.attention_norm = nn.LayerNorm(dim)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, position: Tensor, absent: Tensor | None) -> Tensor:
        """Maps (B, N, dim) to the same shape; arguments as in `Encoder.forward`."""
        positioned = x + position
        found = self.attention(
            positioned, positioned, x, key_padding_mask=absent, need_weights=False
        )[0]
        x = self.attention_norm(x + self.dropout(found))
        out: Tensor = self.norm(x + self.feed_forward(x))
        return out


class DecoderLayer(nn.Module):
    """Self-attention of queries, cross-attention to encoded tokens, and a feed-forward layer."""

    def __init__(self, dim: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.self_attention = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.cross_attention = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.feed_forward = _feed_forward(dim, feed_forward, dropout)
        self.self_norm = nn.LayerNorm(dim)
        self.cross_norm = nn.LayerNorm(dim)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, queries: Tensor, memory: Tensor, position: Tensor, absent: Tensor | None
    ) -> Tensor:
        """Maps the tokens x of T actions (B, T, dim), at positions `queries` (T, dim).

        `memory` are the encoded tokens (B, N, dim); the others are as in `Encoder.forward`.
        """
        positioned = x + queries
        found = self.self_attention(positioned, positioned, x, need_weights=False)[0]
        x = self.self_norm(x + self.dropout(found))
        found = self.cross_attention(
            x + queries, memory + position, memory, key_padding_mask=absent, need_weights=False
        )[0]
        x = self.cross_norm(x + self.dropout(found))
        out: Tensor = self.norm(x + self.feed_forward(x))
        return out


class Encoder(nn.Module):
    """A sequence of encoder layers."""

    def __init__(
        self, dim: int, heads: int, feed_forward: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(dim, heads, feed_forward, dropout) for _ in range(layers)
        )

    def forward(self, x: Tensor, position: Tensor, absent: Tensor | None = None) -> Tensor:
        """Encodes tokens (B, N, dim), with positions (N, dim) that are added to queries and keys.

        `absent` (B, N) bool marks tokens that do not exist; None: all exist.
        """
        for layer in self.layers:
            x = layer(x, position, absent)
        return x


class ActTransformer(nn.Module):
    """Maps the tokens of an observation and a style to T action tokens."""

    def __init__(
        self,
        *,
        chunk: int,
        dim: int,
        heads: int,
        feed_forward: int,
        encoder_layers: int,
        decoder_layers: int,
        dropout: float,
    ) -> None:
        """Builds the network, with a learned query for each of the T actions of a chunk."""
        super().__init__()
        self.encoder = Encoder(dim, heads, feed_forward, encoder_layers, dropout)
        self.decoder = nn.ModuleList(
            DecoderLayer(dim, heads, feed_forward, dropout) for _ in range(decoder_layers)
        )
        self.norm = nn.LayerNorm(dim)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
        self.queries = nn.Parameter(torch.randn(chunk, dim))

    def forward(self, tokens: Tensor, position: Tensor, absent: Tensor | None = None) -> Tensor:
        """Returns (B, T, dim) for tokens (B, N, dim); see `Encoder.forward`."""
        memory = self.encoder(tokens, position, absent)
        x = torch.zeros_like(self.queries).expand(len(tokens), -1, -1)
        for layer in self.decoder:
            x = layer(x, self.queries, memory, position, absent)
        out: Tensor = self.norm(x)
        return out

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"queries"}


def _feed_forward(dim: int, hidden: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(dim, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, dim),
        nn.Dropout(dropout),
    )
