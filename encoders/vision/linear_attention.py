"""Attention with positions at a cost linear in the number of tokens."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.encoders.positions.places import Places
from stringline.encoders.positions.precision import at_least_float32, without_autocast
from stringline.encoders.vision.attention import check_heads


class LinearAttention(nn.Module):
    """Linear attention with positions in RoFormer's form (Su et al., 2021, eq. 19).

    out_i = sum_j (R_i f(q_i))^T (R_j f(k_j)) v_j / sum_j f(q_i)^T f(k_j), f(x) = ReLU(x) + 1e-6
    (Katharopoulos et al., 2020)

    Features are rotated in the numerator only, so the denominator stays positive. Weights may be
    negative: with random features and places, almost half of them are. The basis acts on the
    features, after the ReLU: it adds capacity (Schenck et al., STRING, 2025, section 3.2) and
    cannot be folded. Tensor-product STRING expands the features instead. Self-attention only, with
    the interface of `PositionalAttention` except `mask`, `causal` and `dropout`.
    """

    def __init__(self, dim: int, heads: int, *, values: bool = True) -> None:
        """Builds the projections.

        Args:
            dim: Channels of the tokens, a multiple of 2 `heads`.
            heads: Number of attention heads.
            values: Relative values, see `PositionalAttention`.
        """
        super().__init__()
        check_heads(dim, heads)
        self.heads = heads
        self.values = values
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, places: Places, *, present: Tensor | None = None) -> Tensor:
        """Returns (B, N, dim) for tokens x (B, N, dim), of which those `present` (B, N) exist."""
        # In half precision products of small features vanish, and positions become equal.
        with without_autocast(x):
            x = x.to(torch.promote_types(x.dtype, self.qkv.weight.dtype))
            split = (
                at_least_float32(self.qkv(x))
                .reshape(*x.shape[:2], 3, self.heads, self.qkv.in_features // self.heads)
                .permute(2, 0, 3, 1, 4)
            )
            q = functional.relu(split[0]) + 1e-6
            k = functional.relu(split[1]) + 1e-6
            if present is not None:
                # In numerator and denominator, so other tokens have no effect.
                k = k * present[:, None, :, None].to(k.dtype)
            v = places.rotate(split[2]) if self.values else split[2]
            placed_q = places.expand(places.rotate(q))
            placed_k = places.expand(places.rotate(k))
            y = placed_q @ (placed_k.mT @ v) / (q @ k.sum(dim=-2).unsqueeze(-1))
            y = (places.rotate_inverse(y) if self.values else y).transpose(1, 2).flatten(2)
            z: Tensor = self.out(y.to(self.out.weight.dtype))
        return z

    @torch.no_grad()
    def fold_(self, basis: Tensor | None) -> None:
        """Raises a ValueError for a basis: a ReLU separates projection and rotation."""
        if basis is not None:
            raise ValueError(
                "In linear attention a ReLU separates projection and rotation, so a basis cannot "
                "be folded; deploy this model unfolded."
            )
