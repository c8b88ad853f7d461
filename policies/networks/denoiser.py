"""The interface of denoisers of action chunks, and a transformer."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.vision.attention import attend

Precomputed = Any
"""The precomputed tensors of B observations; their content is private to the denoiser."""


STEPS_PER_TOKEN = 2
"""Consecutive actions that share a token of the transformer."""


class Denoiser(Protocol):
    """A network over noisy chunks, a `torch.nn.Module`; policies interpret its output."""

    def precompute(self, conditioning: Tensor) -> Precomputed:
        """Precomputes tensors of conditioning tokens (B, N, conditioning_dim).

        They are computed once per observation, for all samples and steps.
        """
        ...

    def __call__(
        self, noisy: Tensor, level: Tensor, precomputed: Precomputed, present: Tensor | None = None
    ) -> Tensor:
        """Maps noisy normalised actions (B, K, T, A), K samples per observation, to predictions.

        Args:
            noisy: The actions.
            level: (B, K) noise levels from 0, no noise, to 1, pure noise.
            precomputed: The result of `precompute` for the B observations.
            present: (B, N) bool, which conditioning tokens exist; if None, all.
        """
        ...


@runtime_checkable
class EncoderOfPlaces(Protocol):
    """An observation encoder whose conditioning tokens have `places`."""

    def encoding_of_places(
        self, factory: EncodingFactory, *, heads: int, head_dim: int
    ) -> PositionEncoding:
        """Returns a new encoding of the coordinates of its tokens, for another network.

        Raises:
            ValueError: Its coordinates are not metric.
        """
        ...


class DenoiserOfStates(Protocol):
    """A denoiser that was made with `state_dim` above 0."""

    def precompute(self, conditioning: Tensor, state: Tensor | None = None) -> Precomputed:
        """Precomputes tensors of conditioning tokens and states (B, state_dim)."""
        ...


DenoiserFactory = Callable[..., Denoiser]
"""Makes a denoiser, given `action_dim` (A), `chunk` (T) and `conditioning_dim`.

`state_dim` is given as well if there are states beside the conditioning tokens.
"""


@dataclass(frozen=True, kw_only=True)
class Conditioned:
    """What a `TransformerDenoiser` precomputes of B observations.

    Attributes:
        memories: What each block reads.
        state: (B, 1, 1, dim) embedded states; if None, there are none.
    """

    memories: list[Any]
    state: Tensor | None


class TransformerDenoiser(nn.Module):
    """Self-attention over action tokens, cross-attention to conditioning tokens, adaptive norms.

    The noise level, and the state of the joints if there is one, drive the adaptive norms, which
    start at zero, so every block begins as the identity (Peebles and Xie, ICCV 2023, section 3.2;
    the state as in Ke et al., 3D Diffuser Actor, 2024). Keys and values of the conditioning tokens
    are computed once per observation by `precompute`.
    """

    def __init__(
        self,
        *,
        action_dim: int,
        chunk: int,
        conditioning_dim: int,
        dim: int = 128,
        depth: int = 3,
        heads: int = 4,
        steps_per_token: int = STEPS_PER_TOKEN,
        state_dim: int = 0,
    ) -> None:
        """Builds the network.

        Args:
            action_dim: Numbers per action, A.
            chunk: Actions per chunk, T; a multiple of `steps_per_token`.
            conditioning_dim: Width of the conditioning tokens.
            dim: Width of the action tokens.
            depth: Number of blocks.
            heads: Number of attention heads; must divide `dim`.
            steps_per_token: Consecutive actions that share a token.
            state_dim: Numbers of the state beside the conditioning tokens; 0: there is none.
        """
        super().__init__()
        if chunk % steps_per_token:
            raise ValueError(
                f"chunk is {chunk}; allowed: multiples of steps_per_token = {steps_per_token}."
            )
        if dim % heads:
            raise ValueError(f"dim is {dim}; allowed: multiples of heads = {heads}.")
        self.steps_per_token = steps_per_token
        self.embed_action = nn.Linear(action_dim * steps_per_token, dim)
        self.position = nn.Parameter(torch.randn(chunk // steps_per_token, dim) * 0.02)
        self.embed_level = nn.Sequential(
            nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU()
        )
        self.embed_state = (
            nn.Sequential(nn.Linear(state_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
            if state_dim
            else None
        )
        self.blocks = nn.ModuleList(self._block(dim, conditioning_dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.modulation = nn.Linear(dim, 2 * dim)
        self.read_action = nn.Linear(dim, action_dim * steps_per_token)
        for zero in (self.modulation, self.read_action):
            nn.init.zeros_(zero.weight)
            nn.init.zeros_(zero.bias)

    def precompute(self, conditioning: Tensor, state: Tensor | None = None) -> Precomputed:
        """Projects conditioning tokens to each block's keys and values, and embeds the state."""
        memories = [block.precompute(conditioning) for block in self._blocks()]
        return Conditioned(memories=memories, state=self._embedded(state))

    def _embedded(self, state: Tensor | None) -> Tensor | None:
        """Returns the embedding (B, 1, 1, dim) of states (B, state_dim)."""
        if self.embed_state is None:
            return None
        if state is None:
            raise ValueError("A denoiser with a state_dim needs the states of the observations.")
        kind = next(self.embed_state.parameters()).dtype
        embedded: Tensor = self.embed_state(state.to(kind))
        return embedded[:, None, None]

    def forward(
        self, noisy: Tensor, level: Tensor, precomputed: Precomputed, present: Tensor | None = None
    ) -> Tensor:
        """Denoises K samples per observation; see `Denoiser`."""
        batch, samples, chunk, _ = noisy.shape
        grouped = noisy.reshape(batch, samples, chunk // self.steps_per_token, -1)
        known: Conditioned = precomputed
        return self._denoised(grouped, level, known.memories, known.state, present).reshape(
            noisy.shape
        )

    def _denoised(
        self,
        grouped: Tensor,
        level: Tensor,
        memories: Sequence[Any],
        state: Tensor | None,
        present: Tensor | None,
    ) -> Tensor:
        """Maps the numbers of action tokens (B, K, L, n) to predictions of the same shape.

        `memories` are what each block reads, `state` is the embedded state.
        """
        tokens = self.embed_action(grouped) + self.position
        condition = self.embed_level(sinusoidal_embedding(level, tokens.shape[-1]))[:, :, None]
        condition = condition if state is None else condition + state
        for block, memory in zip(self._blocks(), memories, strict=True):
            tokens = block(tokens, condition, memory, present)
        shift, scale = self.modulation(condition).chunk(2, dim=-1)
        out: Tensor = self.read_action(self.norm(tokens) * (1 + scale) + shift)
        return out

    def _block(self, dim: int, conditioning_dim: int, heads: int) -> "DenoiserBlock":
        return DenoiserBlock(dim, conditioning_dim, heads)

    def _blocks(self) -> Iterator["DenoiserBlock"]:
        for block in self.blocks:
            assert isinstance(block, DenoiserBlock)  # The type of ModuleList is not generic.
            yield block


class DenoiserBlock(nn.Module):
    """Self-attention, cross-attention and a feed-forward layer, each with an adaptive norm."""

    def __init__(self, dim: int, conditioning_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.modulation = nn.Linear(dim, 9 * dim)
        self.self_qkv = nn.Linear(dim, 3 * dim)
        self.self_out = nn.Linear(dim, dim)
        self.conditioning_norm = nn.LayerNorm(conditioning_dim)
        self.cross_q = nn.Linear(dim, dim)
        self.cross_kv = nn.Linear(conditioning_dim, 2 * dim)
        self.cross_out = nn.Linear(dim, dim)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim)
        )
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def precompute(self, conditioning: Tensor) -> tuple[Tensor, Tensor]:
        """Returns keys and values, each (B, heads, N, dim / heads)."""
        keys, values = self.cross_kv(self.conditioning_norm(conditioning)).chunk(2, dim=-1)
        return split_heads(keys, self.heads), split_heads(values, self.heads)

    def forward(
        self,
        tokens: Tensor,
        condition: Tensor,
        memory: Any,
        present: Tensor | None = None,
    ) -> Tensor:
        """Maps (B, K, L, dim) to the same shape, under a condition (B, K, 1, dim).

        `memory` is precomputed from the conditioning tokens, of which `present` (B, N) exist.
        """
        batch, samples, length, dim = tokens.shape
        parts = self.modulation(condition).chunk(9, dim=-1)
        shifts = parts[:3]
        scales = parts[3:6]
        gates = parts[6:]

        x = self.norm(tokens) * (1 + scales[0]) + shifts[0]
        q, k, v = (
            split_heads(part, self.heads)
            for part in self.self_qkv(x.reshape(-1, length, dim)).chunk(3, dim=-1)
        )
        tokens = tokens + gates[0] * self.self_out(join_heads(attend(q, k, v))).reshape(
            tokens.shape
        )

        # All samples of one observation share its keys and values, so they are concatenated as
        # queries.
        x = self.norm(tokens) * (1 + scales[1]) + shifts[1]
        read = self._read(x.reshape(batch, samples * length, dim), memory, present)
        tokens = tokens + gates[1] * read.reshape(tokens.shape)

        x = self.norm(tokens) * (1 + scales[2]) + shifts[2]
        out: Tensor = tokens + gates[2] * self.feed_forward(x)
        return out

    def _read(self, x: Tensor, memory: Any, present: Tensor | None) -> Tensor:
        """Returns what action tokens x (B, K L, dim) read from the conditioning tokens."""
        keys, values = memory
        q = split_heads(self.cross_q(x), self.heads)
        read: Tensor = self.cross_out(join_heads(attend(q, keys, values, present=present)))
        return read


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Maps (B, N, heads d) to (B, heads, N, d)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Maps (B, heads, N, d) to (B, N, heads d)."""
    return x.transpose(1, 2).flatten(2)


def sinusoidal_embedding(level: Tensor, dim: int) -> Tensor:
    """Embeds noise levels in [0, 1] by sines and cosines of 1 to 1000 rad, in a new last axis.

    Vaswani et al., 2017, section 3.5; `dim` is even.
    """
    frequencies = torch.exp(torch.linspace(0.0, math.log(1000.0), dim // 2, device=level.device))
    phase = level[..., None] * frequencies
    return torch.cat([phase.cos(), phase.sin()], dim=-1)
