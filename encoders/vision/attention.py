"""Attention whose tokens have places: queries, keys and, by choice, values are turned."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.encoders.positions.folding import (
    commutes_with_bases,
    into_input,
    into_output,
    require_foldable,
)
from stringline.encoders.positions.places import Places
from stringline.encoders.positions.precision import at_least_float32, without_autocast


@dataclass(frozen=True, kw_only=True)
class KeyValues:
    """Tokens ready to be attended to, by as many sets of queries as there may be.

    Attributes:
        keys: (B, heads, M, head_dim), turned to their places; float32 at least.
        values: The same shape; turned too where values are relative.
        places: Those of the tokens.
    """

    keys: Tensor
    values: Tensor
    places: Places


class PositionalAttention(nn.Module):
    """Multi-head attention over tokens with places, of one set of tokens to itself or to another.

    The basis of the places is folded into the projections in every forward, so it costs nothing per
    token and is never stale. Autocast is off inside: what tells a place from the next one is a
    small difference of large numbers. With projections, rotations and logits in bfloat16 policies
    learned to find things late or not at all (docs/results.md).
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
            values: Relative values: values are turned like keys and outputs turned back by the
                place of the query, out_i = sum_j a_ij R(r_j - r_i) v_j (Miyato et al., GTA, ICLR
                2024, arXiv 2310.10375). False: as in RoPE and STRING, places only steer the
                weights.
            qkv_bias: Whether the input projections have a bias.
            qk_norm: Makes a normalisation of head_dim channels for queries and one for keys, before
                they are turned. With one that does not commute with a basis, the basis is applied
                to each token and cannot be folded.

        Raises:
            ValueError: `dim` does not divide into heads of even size.
        """
        super().__init__()
        if heads < 1 or dim % (2 * heads):
            raise ValueError(
                f"dim is {dim} with {heads} heads; allowed: multiples of {2 * max(heads, 1)}."
            )
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
        memory: Tensor | KeyValues | None = None,
        memory_places: Places | None = None,
        *,
        present: Tensor | None = None,
    ) -> Tensor:
        """Attends.

        Args:
            x: (B, N, dim), the tokens that ask.
            places: Theirs, as `PositionEncoding.prepare` gives them.
            memory: (B, M, dim), the tokens that answer, or what `remember` made of them; None: `x`
                itself.
            memory_places: Theirs, by the same encoding as `places`; not needed after `remember`.
            present: (B, M) bool, which of the tokens that answer exist, at least one in each
                example; None: all.

        Returns:
            (B, N, dim), in the type of the weights.

        Raises:
            ValueError: A memory without places.
        """
        with without_autocast(x):
            if memory is None:
                q, k, v = self._project(x, places, 0, 3)
                key_places = places
            else:
                known = (
                    memory
                    if isinstance(memory, KeyValues)
                    else self.remember(memory, memory_places)
                )
                k = known.keys
                v = known.values
                key_places = known.places
                (q,) = self._project(x, places, 0, 1)
            y = attend(q, k, v, places.logit_factor(key_places), present)
            y = (places.turn_back(y) if self.values else y).transpose(1, 2).flatten(2)
            return functional.linear(
                y.to(self.out.weight.dtype), self._output(places.basis_blocks), self.out.bias
            )

    def remember(self, memory: Tensor, places: Places | None) -> KeyValues:
        """Computes keys and values once, for many sets of queries.

        Args:
            memory: (B, M, dim).
            places: Those of its tokens.

        Raises:
            ValueError: There are no places.
        """
        if places is None:
            raise ValueError(
                "A memory needs memory_places. If none of its tokens has a place, prepare them as "
                "unplaced, with `nowhere` at "
                "the centroid of the tokens that ask."
            )
        with without_autocast(memory):
            keys, values = self._project(memory, places, 1, 3)
        return KeyValues(keys=keys, values=values, places=places)

    def weights(self, x: Tensor, places: Places, *, present: Tensor | None = None) -> Tensor:
        """Returns how much each token attends to each, (B, heads, N, N) with rows that add up to one: for people to look at.

        Args:
            x: (B, N, dim), the tokens.
            places: Theirs.
            present: (B, N) bool, which of them exist; None: all.
        """
        with without_autocast(x):
            q, k = self._project(x, places, 0, 2)
            every = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device).expand(
                *k.shape[:-2], -1, -1
            )
            return attend(q, k, every, places.logit_factor(places), present)

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
        basis = basis.double().unsqueeze(1)
        self.out.weight.copy_(self._output(basis))
        turned = slice(0, (3 if self.values else 2) * self.qkv.in_features)
        for parameter in (self.qkv.weight, self.qkv.bias):
            if parameter is not None:
                parameter[turned] = self._in_basis(basis, parameter[turned])

    def _output(self, basis: Tensor | None) -> Tensor:
        """Returns the weight of the output projection, with the basis folded in where values are relative."""
        weight: Tensor = self.out.weight
        if basis is None or not self.values:
            return weight
        with without_autocast(basis):
            precise = torch.promote_types(basis.dtype, weight.dtype)
            return into_output(basis.to(precise), weight.to(precise), self.heads).to(weight.dtype)

    def _project(self, x: Tensor, places: Places, first: int, last: int) -> tuple[Tensor, ...]:
        """Returns queries (0), keys (1) and values (2), or those from `first` to before `last`, at their places.

        Each is (B, heads, N, head_dim), float32 at least. They are projected together: copying a
        weight to join it with one that a basis was folded into costs less than a second product
        and, on the way back, adding up two gradients of x.
        """
        basis = places.basis_blocks
        parts = range(first, last)
        weight = self._folded(self.qkv.weight, basis, parts)
        bias = None if self.qkv.bias is None else self._folded(self.qkv.bias, basis, parts)
        x = x.to(torch.promote_types(x.dtype, weight.dtype))
        projected = functional.linear(x, weight, bias).reshape(
            *x.shape[:2], len(parts), self.heads, -1
        )
        return tuple(
            self._placed(one.transpose(1, 2), places, part)
            for part, one in zip(parts, projected.unbind(2), strict=True)
        )

    def _folded(self, parameter: Tensor, basis: Tensor | None, parts: range) -> Tensor:
        """Returns the rows of the weight or bias that make some parts, in the basis where it folds into them."""
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
        """Returns projected queries (0), keys (1) or values (2), (B, heads, N, head_dim), at their places.

        From here to `turn_back` all is float32 at least, in a network of half the precision too.
        """
        if part == 2:
            return places.turn(at_least_float32(x)) if self.values else at_least_float32(x)
        x = at_least_float32((self.q_norm, self.k_norm)[part](x))
        return places.turn(x) if self.folds or places.basis_blocks is None else places.rotate(x)

    def _in_basis(self, basis: Tensor, weight: Tensor) -> Tensor:
        """Returns P^T W for projections or biases, computed as precisely as the more precise of both."""
        with without_autocast(weight):
            precise = torch.promote_types(basis.dtype, weight.dtype)
            return into_input(basis.to(precise), weight.to(precise), self.heads).to(weight.dtype)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    logit_factor: Tensor | None = None,
    present: Tensor | None = None,
) -> Tensor:
    """Returns softmax(q k^T / sqrt(d)) v for (B, heads, N, d), by the way that is fastest where it runs.

    Logits and weights are float32 at least, whatever type the tokens have: rounded to bfloat16 a
    logit of 10 is off by up to 0.03.

    Args:
        q: Queries.
        k: Keys (B, heads, M, d).
        v: Values (B, heads, M, d).
        logit_factor: Multiplies the logits, (B, heads | 1, N, M); None for one.
        present: (B, M) bool, which keys exist; None: all.

    Returns:
        (B, heads, N, d) in the type of the values, under autocast on a GPU in autocast's.
    """
    mask = None if present is None else present[:, None, None, :]
    if logit_factor is None and q.device.type != "cpu":
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask
        )  # Its kernels keep logits in float32.
    kind = v.dtype
    with without_autocast(q):
        q, k, v = (at_least_float32(x) for x in (q, k, v))
        if logit_factor is None:
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).to(kind)
        logits = (q / math.sqrt(q.shape[-1])) @ k.mT * at_least_float32(logit_factor)
        logits = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
        return (torch.softmax(logits, dim=-1) @ v).to(kind)
