"""Attention whose tokens have places: queries, keys and, by choice, values are turned."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.encoders.positions.folding import commutes_with_bases, into_input, into_output, require_foldable
from stringline.encoders.positions.places import Places


@dataclass(frozen=True, kw_only=True)
class KeyValues:
    """Tokens ready to be attended to, by as many sets of queries as there may be.

    Attributes:
        keys: (B, heads, M, head_dim), turned to their places.
        values: The same shape; turned too where values are relative.
        places: Those of the tokens.
    """

    keys: Tensor
    values: Tensor
    places: Places


class PositionalAttention(nn.Module):
    """Multi-head attention over tokens with places, of one set of tokens to itself or to another.

    The basis of the places is folded into the projections in every forward, so it costs nothing per token and is never stale.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        values: bool = True,
        qkv_bias: bool = True,
        qk_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        """Makes the projections.

        Args:
            dim: Channels of the tokens, a multiple of 2 `heads`.
            heads: Attention heads.
            values: Relative values: values are turned like keys and outputs turned back by the place of the query,
                out_i = sum_j a_ij R(r_j - r_i) v_j (Miyato et al., GTA, ICLR 2024, arXiv 2310.10375). False: as in RoPE
                and STRING, places only steer the weights.
            qkv_bias: Whether the input projections have a bias.
            qk_norm: Makes a normalisation of head_dim channels for queries and one for keys, before they are turned. With one
                that does not commute with a basis, the basis is applied to each token and cannot be folded.

        Raises:
            ValueError: `dim` does not divide into heads of even size.
        """
        super().__init__()
        if heads < 1 or dim % (2 * heads):
            raise ValueError(f"dim is {dim} with {heads} heads; allowed: multiples of {2 * max(heads, 1)}.")
        self.heads, self.values = heads, values
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.out = nn.Linear(dim, dim)
        self.q_norm, self.k_norm = (qk_norm(dim // heads) if qk_norm else nn.Identity() for _ in "qk")
        self.folds = commutes_with_bases(self.q_norm) and commutes_with_bases(self.k_norm)

    def forward(
        self,
        x: Tensor,
        places: Places,
        memory: Tensor | KeyValues | None = None,
        memory_places: Places | None = None,
        *,
        present: Tensor | None = None,
    ) -> Tensor:
        """Attends.

        Args:
            x: (B, N, dim), the tokens that ask.
            places: Theirs, as `PositionEncoding.prepare` gives them.
            memory: (B, M, dim), the tokens that answer, or what `remember` made of them; None: `x` itself.
            memory_places: Theirs, by the same encoding as `places`; not needed after `remember`.
            present: (B, M) bool, which of the tokens that answer exist, at least one in each example; None: all.

        Returns:
            (B, N, dim).

        Raises:
            ValueError: A memory without places.
        """
        weight, bias, out_weight = self._projections(places.basis)
        if memory is None:
            q, k, v = self._placed(functional.linear(x, weight, bias), places, first=0)
            key_places = places
        else:
            known = memory if isinstance(memory, KeyValues) else self.remember(memory, memory_places)
            k, v, key_places = known.keys, known.values, known.places
            dim = x.shape[-1]
            (q,) = self._placed(functional.linear(x, weight[:dim], None if bias is None else bias[:dim]), places, first=0)
        y = attend(q, k, v, places.logit_factor(key_places), present)
        y = places.turn_back(y) if self.values else y
        return functional.linear(y.transpose(1, 2).flatten(2), out_weight, self.out.bias)

    def remember(self, memory: Tensor, places: Places | None) -> KeyValues:
        """Computes keys and values once, for many sets of queries.

        Args:
            memory: (B, M, dim).
            places: Those of its tokens.

        Raises:
            ValueError: There are no places.
        """
        if places is None:
            raise ValueError("A memory needs memory_places; prepare them with all tokens unplaced if it has none.")
        weight, bias, _ = self._projections(places.basis)
        dim = memory.shape[-1]
        kv = functional.linear(memory, weight[dim:], None if bias is None else bias[dim:])
        keys, values = self._placed(kv, places, first=1)
        return KeyValues(keys=keys, values=values, places=places)

    @torch.no_grad()
    def fold_(self, basis: Tensor | None) -> None:
        """Folds a basis into the weights for good; from then on use places without one.

        Raises:
            ValueError: A normalisation of queries and keys stands in between.
        """
        if basis is None:
            return
        require_foldable(self.q_norm)
        require_foldable(self.k_norm)
        weight, bias, out_weight = self._projections(basis.double())
        self.qkv.weight.copy_(weight)
        if bias is not None:
            self.qkv.bias.copy_(bias)
        self.out.weight.copy_(out_weight)

    def _projections(self, basis: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
        """Returns weight and bias of the input and weight of the output projection, with the basis folded in where it may."""
        if basis is None:
            return self.qkv.weight, self.qkv.bias, self.out.weight
        with torch.autocast(basis.device.type, enabled=False):
            basis = basis.to(torch.promote_types(basis.dtype, self.qkv.weight.dtype))
            weight = self._into_rows(basis, self.qkv.weight)
            bias = None if self.qkv.bias is None else self._into_rows(basis, self.qkv.bias)
            out_weight: Tensor = self.out.weight
            if self.values:
                out_weight = into_output(basis, out_weight.to(basis.dtype), self.heads)
            return weight, bias, out_weight

    def _into_rows(self, basis: Tensor, weight: Tensor) -> Tensor:
        """Returns P^T W for those rows of the stacked projections whose results are turned straight away."""
        weight, dim = weight.to(basis.dtype), len(weight) // 3
        start, stop = 0 if self.folds else 2 * dim, 3 * dim if self.values else 2 * dim
        if start == stop:
            return weight
        return torch.cat((weight[:start], into_input(basis, weight[start:stop], self.heads), weight[stop:]))

    def _placed(self, projected: Tensor, places: Places, *, first: int) -> tuple[Tensor, ...]:
        """Returns queries, keys and values, or some of them in this order, each (B, heads, N, head_dim) at its place.

        Args:
            projected: (B, N, k dim), what the projections gave.
            places: Of the tokens.
            first: Which one comes first: 0 queries, 1 keys.
        """
        parts = projected.reshape(*projected.shape[:2], -1, self.heads, self.qkv.weight.shape[1] // self.heads)
        parts = parts.permute(0, 2, 3, 1, 4)
        if not isinstance(self.q_norm, nn.Identity):
            parts = self._normalised(parts, places.basis, first)
        if type(places) is Places:
            return parts.unbind(1)
        turned = (3 if self.values else 2) - first
        placed = places.turn(parts[:, :turned].contiguous())  # A copy, but the rotation runs twice as fast on it.
        return (*placed.unbind(1), *parts[:, turned:].unbind(1))

    def _normalised(self, parts: Tensor, basis: Tensor | None, first: int) -> Tensor:
        """Returns parts (B, k, heads, N, head_dim), of which queries and keys are normalised and stand in the basis."""
        norms = (self.q_norm, self.k_norm)[first : first + parts.shape[1]]
        changed = [norm(part) for norm, part in zip(norms, parts.unbind(1), strict=False)]
        if basis is not None and not self.folds:
            changed = [part @ basis.to(part.dtype) for part in changed]
        return torch.stack((*changed, *parts[:, len(norms) :].unbind(1)), dim=1)


def attend(q: Tensor, k: Tensor, v: Tensor, logit_factor: Tensor | None = None, present: Tensor | None = None) -> Tensor:
    """Returns softmax(q k^T / sqrt(d)) v for (B, heads, N, d), by the way that is fastest where it runs.

    In bfloat16 on a CPU that is the plain formula (batch 48, 194 tokens, 4 heads of 32, forward and backward: 10 ms against
    36 ms through `scaled_dot_product_attention`); in float32 it is the latter (22 ms against 26 ms), on a GPU always.

    Args:
        q: Queries.
        k: Keys (B, heads, M, d).
        v: Values (B, heads, M, d).
        logit_factor: Multiplies the logits, (B, heads | 1, N, M); None for one.
        present: (B, M) bool, which keys exist; None: all.
    """
    mask = None if present is None else present[:, None, None, :]
    if logit_factor is None and not (q.device.type == "cpu" and q.dtype == torch.bfloat16):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    logits = (q / math.sqrt(q.shape[-1])) @ k.mT
    logits = logits if logit_factor is None else logits * logit_factor.to(logits.dtype)
    logits = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
    return torch.softmax(logits, dim=-1).to(v.dtype) @ v
