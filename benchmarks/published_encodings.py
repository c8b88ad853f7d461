"""The papers' algorithms and timm's layers, as peers in `encodings.py`: a class for each.

They follow the papers' text, unlike ours: an exponential or a basis for each token, or an FFT.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.encoders.pretrained.initial_weights import declare_torchvision_operators

declare_torchvision_operators()  # timm imports torchvision.
from timm.layers.pos_embed_sincos import (  # noqa: E402
    RotaryEmbeddingCat,
    RotaryEmbeddingMixed,
    apply_rot_embed_cat,
)


class PublishedLayer(nn.Module):
    """Attention as in timm, with rotated queries and keys."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_dim = head_dim
        self.qkv = nn.Linear(heads * head_dim, 3 * heads * head_dim)
        self.out = nn.Linear(heads * head_dim, heads * head_dim)

    def turned(self, q: Tensor, k: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """Returns queries and keys (B, heads, N, head_dim) at coordinates (B, N, axes)."""
        return q, k

    def forward(self, x: Tensor, coordinates: Tensor) -> Tensor:
        """Attends."""
        q, k, v = (
            self.qkv(x)
            .reshape(*x.shape[:2], 3, self.heads, self.head_dim)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        q, k = self.turned(q, k, coordinates)
        y = functional.scaled_dot_product_attention(q, k, v)
        z: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return z


class TimmAxial(PublishedLayer):
    """timm's axial RoPE: two axes, one grid for the whole batch, sines and cosines cached."""

    def turned(self, q: Tensor, k: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """Uses cached angles."""
        if not hasattr(self, "table"):
            side = round(coordinates.shape[1] ** 0.5)
            made = RotaryEmbeddingCat(
                self.head_dim, in_pixels=False, temperature=100, feat_shape=[side, side]
            )
            self.table = made.get_embed().to(q)
        return apply_rot_embed_cat(q, self.table), apply_rot_embed_cat(k, self.table)


class TimmMixed(PublishedLayer):
    """timm's RoPE-Mixed: two axes, one grid for the whole batch, frequencies learned."""

    def turned(self, q: Tensor, k: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the angles of the grid."""
        if not hasattr(self, "rope"):
            side = round(coordinates.shape[1] ** 0.5)
            self.rope = RotaryEmbeddingMixed(
                self.heads * self.head_dim, 1, self.heads, feat_shape=[side, side]
            ).to(q)
        table = self.rope.get_embed()[0]
        return apply_rot_embed_cat(q, table), apply_rot_embed_cat(k, table)


class CirculantByFft(PublishedLayer):
    """Circulant-STRING by complex FFTs of each token (theorem 3.5)."""

    def __init__(self, heads: int, head_dim: int, block: int = 16) -> None:
        super().__init__(heads, head_dim)
        self.c = nn.Parameter(torch.randn(3, head_dim // block, block))

    def turned(self, q: Tensor, k: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """Multiplies in the Fourier domain."""
        with torch.autocast(q.device.type, enabled=False):  # FFTs on GPUs need float32.
            angle = 2 * (coordinates @ torch.fft.fft(self.c).imag.flatten(1)).unflatten(
                -1, self.c.shape[1:]
            )
            turn = torch.polar(torch.ones_like(angle), angle).unsqueeze(1)

            def by_fft(z: Tensor) -> Tensor:
                return torch.fft.ifft(
                    turn * torch.fft.fft(z.to(self.c.dtype).unflatten(-1, self.c.shape[1:]))
                ).real.flatten(-2)

            return by_fft(q), by_fft(k)


class CayleyPerToken(PublishedLayer):
    """Cayley-STRING with (I - S)(I + S)^-1 solved for each token, then RoPE (equation 10)."""

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__(heads, head_dim)
        self.s = nn.Parameter(0.1 * torch.randn(head_dim, head_dim))
        self.omega = nn.Parameter(torch.randn(3, head_dim // 2))

    def turned(self, q: Tensor, k: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """Solves and rotates."""
        skew, identity = self.s - self.s.mT, torch.eye(self.head_dim, device=q.device)
        angle = (coordinates.unsqueeze(-1) * self.omega).sum(-2).unsqueeze(1)
        cos, sin = angle.cos(), angle.sin()

        def by_solving(z: Tensor) -> Tensor:
            a, b = (
                torch.linalg.solve(identity + skew, z.to(self.s.dtype).flatten(0, 2).mT).mT
                @ (identity - skew).mT
            ).chunk(2, -1)
            a, b = a.reshape(*z.shape[:3], -1), b.reshape(*z.shape[:3], -1)
            return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)

        return by_solving(q), by_solving(k)


class ExponentialPerToken(PublishedLayer):
    """One matrix exponential per token and block: LieRE and ComRoPE."""

    def __init__(self, heads: int, head_dim: int, block: int, *, comrope: bool) -> None:
        super().__init__(heads, head_dim)
        self.block, self.comrope, sets = block, comrope, heads if comrope else 1
        shape = (sets, 1 if comrope else 3, head_dim // block, block, block)
        # The initial values of the papers' code; the time of an exponential depends on them.
        self.a = nn.Parameter(
            torch.randn(shape) if comrope else (2 * math.pi * torch.rand(shape)).triu(1)
        )
        self.factors = nn.Parameter(torch.randn(1, 3, head_dim // block, 1, 1)) if comrope else None

    def turned(self, q: Tensor, k: Tensor, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        """Exponentiates and multiplies."""
        generators = self.a - self.a.mT
        generators = generators if self.factors is None else generators * self.factors
        exponent = (coordinates[:, None, :, :, None, None, None] * generators.unsqueeze(1)).sum(3)
        turn = torch.matrix_exp(exponent)
        if self.comrope:
            which = torch.eye(turn.shape[3], device=q.device)
            dense = (turn.unsqueeze(-2) * which[:, None, :, None]).reshape(
                *turn.shape[:3], self.head_dim, self.head_dim
            )
            return (dense @ q.unsqueeze(-1)).squeeze(-1), (dense @ k.unsqueeze(-1)).squeeze(-1)

        def by_matrices(z: Tensor) -> Tensor:
            return (turn @ z.unflatten(-1, (-1, self.block, 1))).flatten(-3)

        return by_matrices(q), by_matrices(k)
