"""Attention over tokens with positions: queries, keys and optionally values are rotated.

Softmax attention uses the fastest available kernel, with logits in float32 at least. The cost
of linear attention is linear in the number of tokens.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import COUNT, SHARE
from stringline.encoders.positions.bases import (
    check_foldable,
    commutes_with_bases,
    into_input,
    into_output,
)
from stringline.encoders.positions.encoding import Places
from stringline.encoders.positions.precision import at_least_float32, rounded, without_autocast


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    logit_factor: Tensor | None = None,
    present: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Returns softmax(q k^T / sqrt(d)) v for (B, heads, N, d), by the fastest available kernel.

    Logits and weights are float32 at least, whatever the type of the tokens: rounded to bfloat16, a
    logit of 10 is off by up to 0.03. The result has the type of the values; under autocast on a GPU
    that of autocast.

    Args:
        q: Queries.
        k: Keys (B, heads, M, d).
        v: Values (B, heads, M, d).
        logit_factor: Factor of the logits, (B, heads | 1, N, M); if None, 1.
        present: (B, M) bool, which keys exist; if None, all.
        mask: (B | 1, heads | 1, N, M) bool, which keys each query attends to; if None, all.
        dropout: Share of the weights that are set to zero.
    """
    if present is not None:
        existing = present[:, None, None, :]
        mask = existing if mask is None else mask & existing
    if logit_factor is None and q.device.type != "cpu":
        # Its kernels keep logits in float32.
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    kind = v.dtype
    with without_autocast(q):
        q, k, v = (at_least_float32(x) for x in (q, k, v))
        if logit_factor is None:
            return functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout
            ).to(kind)
        logits = (q / math.sqrt(q.shape[-1])) @ k.mT * at_least_float32(logit_factor)
        logits = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
        weights = functional.dropout(torch.softmax(logits, dim=-1), dropout, dropout > 0)
        return (weights @ v).to(kind)


@dataclass(frozen=True, kw_only=True)
class KeyValues:
    """Precomputed keys and values, for any number of sets of queries.

    Attributes:
        keys: (B, heads, M, head_dim), rotated; float32 at least.
        values: The same shape; rotated too if values are relative.
        places: The places of the tokens.
    """

    keys: Tensor
    values: Tensor
    places: Places


class PositionalAttention(nn.Module):
    """Multi-head attention over tokens with positions, to the same or another set of tokens.

    The basis is folded into the projections in every forward pass, so it costs nothing per token
    and is never stale. Autocast is off inside: positions are distinguished by small differences of
    large numbers. With projections, rotations and logits in bfloat16 policies learned to localise
    objects late or not at all (docs/lab/depth-inputs.md).

    Attributes:
        attention_type: Type to which rotated queries, keys and values are rounded before logits and
            sums, torch.float32 (not rounded) or torch.bfloat16; `trainer.attention` sets it.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        values: bool = True,
        qkv_bias: bool = True,
        qk_norm: Callable[[int], nn.Module] | None = None,
        dropout: float = 0.0,
    ) -> None:
        """Builds the projections.

        Args:
            dim: Channels of the tokens, a multiple of 2 `heads`.
            heads: Number of attention heads.
            values: Relative values: values are rotated like keys and outputs are rotated back by
                the position of the query, out_i = sum_j a_ij R(r_j - r_i) v_j (Miyato et al., GTA,
                ICLR 2024, arXiv 2310.10375). False: positions act on the weights only, as in RoPE
                and STRING.
            qkv_bias: Whether the input projections have a bias.
            qk_norm: Makes a normalisation of head_dim channels, for queries and for keys before the
                rotation. If it does not commute with a basis, the basis is applied to each token
                and cannot be folded.
            dropout: Share of the attention weights that are set to zero in training, from 0 to
                below 1.
        """
        super().__init__()
        check_heads(dim, heads)
        SHARE.check(dropout=dropout)
        self.dropout = dropout
        self.attention_type = torch.float32
        self.heads = heads
        self.values = values
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.out = nn.Linear(dim, dim)
        self.q_norm, self.k_norm = (
            qk_norm(dim // heads) if qk_norm else nn.Identity() for _ in "qk"
        )
        self.folds = commutes_with_bases(self.q_norm) and commutes_with_bases(self.k_norm)

    def forward(
        self,
        x: Tensor,
        places: Places,
        context: Tensor | KeyValues | None = None,
        context_places: Places | None = None,
        *,
        present: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Attends.

        Args:
            x: (B, N, dim), the tokens that attend.
            places: Their places, from `PositionEncoding.prepare`.
            context: (B, M, dim), the tokens attended to, or `precompute` of them; if None, `x`
                itself.
            context_places: Their places, of the same encoding; not needed after `precompute`.
            present: (B, M) bool, which of the tokens attended to exist, at least one per example;
                if None, all.
            mask: (B | 1, heads | 1, N, M) bool, which of them each token attends to, at least one;
                if None, all.
            causal: Whether token i attends to the tokens up to i of `x` only.

        Returns:
            (B, N, dim), in the type of the weights.

        Raises:
            ValueError: The mask is not boolean, or the attention to a context is causal.
        """
        if causal and context is not None:
            raise ValueError("causal is True with a context; allowed: attention of x to itself.")
        mask = _joined(mask, x.shape[1] if causal else None, x.device)
        dropout = self.dropout if self.training else 0.0
        with without_autocast(x):
            if context is None:
                q, k, v = self._project(x, places, 0, 3)
                key_places = places
            else:
                known = (
                    context
                    if isinstance(context, KeyValues)
                    else self.precompute(context, context_places)
                )
                k = known.keys
                v = known.values
                key_places = known.places
                (q,) = self._project(x, places, 0, 1)
            factor = places.logit_factor(key_places)
            q, k, v = (rounded(one, self.attention_type) for one in (q, k, v))
            y = at_least_float32(attend(q, k, v, factor, present, mask=mask, dropout=dropout))
            y = (places.rotate_inverse_in_basis(y) if self.values else y).transpose(1, 2).flatten(2)
            return functional.linear(
                y.to(self.out.weight.dtype), self._output(places.basis_blocks), self.out.bias
            )

    def precompute(self, context: Tensor, places: Places | None) -> KeyValues:
        """Computes keys and values once, for any number of sets of queries.

        Args:
            context: (B, M, dim).
            places: The places of these tokens.
        """
        if places is None:
            raise ValueError(
                "A context needs context_places. If none of its tokens has a position, prepare "
                "them with has_position=False and fallback_position at the centroid of the queries."
            )
        with without_autocast(context):
            keys, values = self._project(context, places, 1, 3)
        return KeyValues(keys=keys, values=values, places=places)

    def weights(self, x: Tensor, places: Places, *, present: Tensor | None = None) -> Tensor:
        """Returns the attention weights (B, heads, N, N), for visualisation; rows sum to one.

        Args:
            x: (B, N, dim), the tokens.
            places: Their places.
            present: (B, N) bool, which of them exist; if None, all.
        """
        with without_autocast(x):
            q, k = self._project(x, places, 0, 2)
            every = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device).expand(
                *k.shape[:-2], -1, -1
            )
            return attend(q, k, every, places.logit_factor(places), present)

    @torch.no_grad()
    def fold_(self, basis: Tensor | None) -> None:
        """Folds a basis into the weights for good; afterwards use places without a basis."""
        if basis is None:
            return
        check_foldable(self.q_norm)
        check_foldable(self.k_norm)
        basis = basis.double().unsqueeze(1)
        self.out.weight.copy_(self._output(basis))
        turned = slice(0, (3 if self.values else 2) * self.qkv.in_features)
        for parameter in (self.qkv.weight, self.qkv.bias):
            if parameter is not None:
                parameter[turned] = self._in_basis(basis, parameter[turned])

    def _output(self, basis: Tensor | None) -> Tensor:
        """Returns the output projection, with the basis folded in if values are relative."""
        weight: Tensor = self.out.weight
        if basis is None or not self.values:
            return weight
        with without_autocast(basis):
            precise = torch.promote_types(basis.dtype, weight.dtype)
            return into_output(basis.to(precise), weight.to(precise), self.heads).to(weight.dtype)

    def _project(self, x: Tensor, places: Places, first: int, last: int) -> tuple[Tensor, ...]:
        """Returns the projections `first` to before `last` of queries (0), keys (1) and values (2).

        Each is (B, heads, N, head_dim), rotated, float32 at least. They are projected together:
        copying a weight to join it with one that a basis was folded into costs less than a second
        product and, in the backward pass, the sum of two gradients of x.
        """
        basis = places.basis_blocks
        parts = range(first, last)
        weight = self._folded(self.qkv.weight, basis, parts)
        bias = None if self.qkv.bias is None else self._folded(self.qkv.bias, basis, parts)
        x = x.to(torch.promote_types(x.dtype, weight.dtype))
        # Not -1, which is undefined without tokens.
        head_dim = self.qkv.in_features // self.heads
        projected = functional.linear(x, weight, bias).reshape(
            *x.shape[:2], len(parts), self.heads, head_dim
        )
        return tuple(
            self._placed(one.transpose(1, 2), places, part)
            for part, one in zip(parts, projected.unbind(2), strict=True)
        )

    def _folded(self, parameter: Tensor, basis: Tensor | None, parts: range) -> Tensor:
        """Returns the rows of the weight or bias of some parts, in the basis if possible."""
        folds = [
            basis is not None and (self.folds if part < 2 else self.values) for part in range(3)
        ]
        runs = [
            list(run) for _, run in groupby(range(3), key=lambda part: (folds[part], part in parts))
        ]
        # Not slices: the gradient of each would be as large as the whole weight.
        rows = torch.split(parameter, [len(run) * self.qkv.in_features for run in runs])
        kept = [
            self._in_basis(basis, some) if basis is not None and folds[run[0]] else some
            for run, some in zip(runs, rows, strict=True)
            if run[0] in parts
        ]
        return kept[0] if len(kept) == 1 else torch.cat(kept)

    def _placed(self, x: Tensor, places: Places, part: int) -> Tensor:
        """Returns projected queries (0), keys (1) or values (2), (B, heads, N, head_dim), rotated.

        From here to the inverse rotation all numbers are float32 at least, also in half-precision
        networks.
        """
        if part == 2:
            return (
                places.rotate_in_basis(at_least_float32(x)) if self.values else at_least_float32(x)
            )
        x = at_least_float32((self.q_norm, self.k_norm)[part](x))
        return (
            places.rotate_in_basis(x)
            if self.folds or places.basis_blocks is None
            else places.rotate(x)
        )

    def _in_basis(self, basis: Tensor, weight: Tensor) -> Tensor:
        """Returns P^T W for projections or biases, in the more precise of both types."""
        with without_autocast(weight):
            precise = torch.promote_types(basis.dtype, weight.dtype)
            return into_input(basis.to(precise), weight.to(precise), self.heads).to(weight.dtype)


def check_heads(dim: int, heads: int) -> None:
    """Raises a ValueError unless tokens divide into attention heads of even size."""
    COUNT.check(dim=dim, heads=heads)
    if dim % (2 * heads):
        raise ValueError(f"dim is {dim} with {heads} heads; allowed: multiples of {2 * heads}.")


def _joined(mask: Tensor | None, causal: int | None, device: torch.device) -> Tensor | None:
    """Returns a mask (B | 1, heads | 1, N, M), without the tokens after each of `causal` tokens."""
    if mask is not None and (mask.dtype != torch.bool or mask.ndim != 4):
        raise ValueError(
            f"mask is {tuple(mask.shape)} {mask.dtype}; allowed: (B | 1, heads | 1, N, M) "
            "torch.bool."
        )
    if causal is None:
        return mask
    before = torch.ones(1, 1, causal, causal, dtype=torch.bool, device=device).tril()
    return before if mask is None else mask & before


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
