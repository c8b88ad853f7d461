"""Transformer blocks of timm with positional attention: the same weights, and positions."""

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from stringline.encoders.positions.places import Places
from stringline.encoders.vision.attention import PositionalAttention


class TimmAttention(Protocol):
    """The common attributes of timm's `Attention` and `EvaAttention`."""

    num_heads: int
    head_dim: int
    qkv: nn.Linear | None
    q_norm: nn.Module
    k_norm: nn.Module
    norm: nn.Module
    proj: nn.Linear
    attn_drop: nn.Dropout
    proj_drop: nn.Dropout


class ChannelScale(nn.Module):
    """Multiplies each channel by a learned factor, as `gamma` does in timm's Eva blocks."""

    def __init__(self, gamma: nn.Parameter) -> None:
        super().__init__()
        self.gamma = gamma

    def forward(self, x: Tensor) -> Tensor:
        """Returns x (B, N, dim) times gamma."""
        return x * self.gamma


class PretrainedBlock(nn.Module):
    """A pre-norm block of timm: all modules but the attention are timm's own."""

    def __init__(self, block: nn.Module, *, values: bool = False) -> None:
        """Takes the modules of timm's `Block` or `EvaBlock`, which is not usable afterwards."""
        super().__init__()
        _check_kind(block, "Block", "EvaBlock")
        part = block.get_submodule
        self.attention_norm = part("norm1")
        self.mlp_norm = part("norm2")
        self.mlp = part("mlp")
        self.attention = adopted(cast(TimmAttention, block.attn), values=values)
        self.attention_scale = _scale(block, 1)
        self.mlp_scale = _scale(block, 2)
        self.attention_drop = part("drop_path1")
        self.mlp_drop = part("drop_path2")

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """Returns tokens (B, N, dim) of the same places."""
        x = x + self.attention_drop(
            self.attention_scale(self.attention(self.attention_norm(x), places))
        )
        y: Tensor = x + self.mlp_drop(self.mlp_scale(self.mlp(self.mlp_norm(x))))
        return y


def adopted(attention: TimmAttention, *, values: bool = False) -> PositionalAttention:
    """Returns positional attention with the weights of timm's, shared if they have the same form.

    A bias of keys that timm fixes at zero becomes a parameter that starts at zero.
    """
    _check(attention)
    norms = iter((attention.q_norm, attention.k_norm))
    made = PositionalAttention(
        attention.proj.in_features,
        attention.num_heads,
        values=values,
        qkv_bias=False,
        qk_norm=lambda _: next(norms),
    )
    made.qkv = _stacked(attention)
    made.out = attention.proj
    return made


def _stacked(attention: TimmAttention) -> nn.Linear:
    """Returns the projections of queries, keys and values as one."""
    if attention.qkv is not None and getattr(attention, "q_bias", None) is None:
        return attention.qkv
    biases: Sequence[Tensor | None]
    if attention.qkv is not None:
        weight = attention.qkv.weight
        biases = [getattr(attention, f"{kind}_bias") for kind in "qkv"]
    else:
        apart: list[nn.Linear] = [getattr(attention, f"{kind}_proj") for kind in "qkv"]
        weight = torch.cat([each.weight for each in apart])
        biases = [each.bias for each in apart]
    rows, width = weight.shape
    known = any(bias is not None for bias in biases)
    made = nn.Linear(width, rows, bias=known, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        made.weight.copy_(weight)
        if known:
            made.bias.copy_(
                torch.cat(
                    [weight.new_zeros(rows // 3) if bias is None else bias for bias in biases]
                )
            )
    return made


def _check_kind(module: object, *allowed: str) -> None:
    """Checks the class: other blocks of timm have parts of the same names with another meaning."""
    kind = type(module)
    if kind.__name__ not in allowed or not kind.__module__.startswith("timm."):
        raise ValueError(
            f"The model has a {kind.__name__}, which does not support positions; allowed: "
            f"{', '.join(allowed)} of timm."
        )


def _check(attention: TimmAttention) -> None:
    _check_kind(attention, "Attention", "AttentionRope", "EvaAttention")
    width = attention.proj.in_features
    reasons = {
        "heads times channels is not its width": attention.num_heads * attention.head_dim
        != attention.proj.out_features,
        "heads share keys": getattr(attention, "num_kv_groups", 1) != 1,
        "its output has a gate": getattr(attention, "gate", None) is not None,
        "its output is normalised": not isinstance(attention.norm, nn.Identity),
        "it has dropout": attention.attn_drop.p > 0 or attention.proj_drop.p > 0,
        f"{attention.num_heads} heads of {width // attention.num_heads} channels": width
        % (2 * attention.num_heads)
        != 0,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise ValueError(
            f"{type(attention).__name__} does not support positions: {'; '.join(found)}. "
            f"Allowed: plain attention to all tokens."
        )


def _scale(block: nn.Module, number: int) -> nn.Module:
    """Returns the scale of a branch: `ls1` or `ls2` of a Block, `gamma_1` or `gamma_2` of Eva's."""
    if hasattr(block, f"ls{number}"):
        return block.get_submodule(f"ls{number}")
    gamma = getattr(block, f"gamma_{number}")
    return nn.Identity() if gamma is None else ChannelScale(gamma)
