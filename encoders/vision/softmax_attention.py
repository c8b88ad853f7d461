"""Softmax attention by the fastest available kernel, with logits in float32 at least."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from stringline.encoders.positions.precision import at_least_float32, without_autocast


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
        logit_factor: Factor of the logits, (B, heads | 1, N, M); None: 1.
        present: (B, M) bool, which keys exist; None: all.
        mask: (B | 1, heads | 1, N, M) bool, which keys each query attends to; None: all.
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
