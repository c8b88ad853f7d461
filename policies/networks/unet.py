"""The U-Net over time of diffusion policy, conditioned on one vector: for comparison."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT
from stringline.encoders.vision.attention import attend
from stringline.policies.networks.denoiser import Precomputed, join_heads, split_heads

PUBLISHED_LEVELS = 100
"""Noise levels of the published policies, whose networks get the index of the level, 0 to 99."""


@dataclass(frozen=True, kw_only=True)
class UnetSettings:
    """Settings of the network, with defaults as published, and of the pooling of tokens.

    Attributes:
        down_dims: Channels at each resolution in time, each half the previous one; multiples of
            groups.
        kernel: Length of the convolutions over time, odd.
        groups: Number of groups of the group norms; must divide all of `down_dims`.
        level_dim: Length of the embedding of the noise level, even, from 4.
        condition_dim: Length of the observation's vector, to which tokens are pooled. If None, it
            is the only token, as published; for encoders of one token.
        heads: Attention queries that pool the tokens to this vector; a divisor of condition_dim.
    """

    down_dims: Sequence[int] = (512, 1024, 2048)
    kernel: int = 5
    groups: int = 8
    level_dim: int = 128
    condition_dim: int | None = 256
    heads: int = 8

    def __post_init__(self) -> None:
        COUNT.check(kernel=self.kernel, groups=self.groups, level_dim=self.level_dim)
        COUNT.check(heads=self.heads)
        if self.condition_dim is not None:
            COUNT.check(condition_dim=self.condition_dim)
        widths = list(self.down_dims)
        if len(widths) < 2 or any(width not in COUNT or width % self.groups for width in widths):
            raise ValueError(
                f"down_dims is {widths}; allowed: at least two multiples of groups = {self.groups}."
            )
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel is {self.kernel}; allowed: odd numbers.")
        if self.level_dim < 4 or self.level_dim % 2:
            raise ValueError(f"level_dim is {self.level_dim}; allowed: even numbers from 4.")
        if self.condition_dim is not None and self.condition_dim % self.heads:
            raise ValueError(
                f"condition_dim is {self.condition_dim}; allowed: multiples of heads = "
                f"{self.heads}."
            )


class ConditionalUnet(nn.Module):
    """The network of Chi et al., Diffusion Policy, RSS 2023 (arXiv 2303.04137), layer by layer.

    Convolutions over time after Janner et al., Diffuser (ICML 2022). Each residual block is
    modulated per channel by the noise level and a vector of the observation (Perez et al., FiLM,
    AAAI 2018), scale and shift. As in the published code the finest resolution has no skip
    connection: the upward path begins above it.
    """

    def __init__(self, settings: UnetSettings, action_dim: int) -> None:
        super().__init__()
        down_dims = settings.down_dims
        kernel = settings.kernel
        groups = settings.groups
        level_dim = settings.level_dim
        pairs = list(pairwise((action_dim, *down_dims)))
        if settings.condition_dim is None:
            raise ValueError("The network needs a condition_dim, the length of its condition.")
        context = level_dim + settings.condition_dim
        stage = partial(_Stage, context=context, kernel=kernel, groups=groups)
        self.level_dim = level_dim
        self.embed_level = nn.Sequential(
            nn.Linear(level_dim, 4 * level_dim), nn.Mish(), nn.Linear(4 * level_dim, level_dim)
        )
        self.down = nn.ModuleList(stage(inputs, outputs) for inputs, outputs in pairs)
        self.shrink = nn.ModuleList(
            nn.Conv1d(width, width, 3, stride=2, padding=1) for width in down_dims[:-1]
        )
        self.middle = stage(down_dims[-1], down_dims[-1])
        self.up = nn.ModuleList(stage(2 * wide, narrow) for narrow, wide in reversed(pairs[1:]))
        widths = reversed(down_dims[:-1])
        self.grow = nn.ModuleList(
            nn.ConvTranspose1d(width, width, 4, stride=2, padding=1) for width in widths
        )
        self.read_action = nn.Sequential(
            *_convolution(down_dims[0], down_dims[0], kernel, groups),
            nn.Conv1d(down_dims[0], action_dim, 1),
        )

    def forward(self, noisy: Tensor, level: Tensor, condition: Tensor) -> Tensor:
        """Returns the prediction (N, T, A) for normalised actions with noise (N, T, A).

        T is a multiple of 2^(resolutions - 1), the noise levels (N,) are in [0, 1], and the vectors
        of the observations are (N, condition_dim).
        """
        context = torch.cat(
            (self.embed_level(level_features(level, self.level_dim)), condition), dim=-1
        )
        x = noisy.mT
        skips = list[Tensor]()
        for stage, shrink in zip(self.down, [*self.shrink, nn.Identity()], strict=True):
            skips.append(stage(x, context))
            x = shrink(skips[-1])
        x = self.middle(x, context)
        for stage, grow in zip(self.up, self.grow, strict=True):
            x = grow(stage(torch.cat((x, skips.pop()), dim=1), context))
        out: Tensor = self.read_action(x)
        return out.mT


class UnetDenoiser(nn.Module):
    """The published U-Net with the interface of `Denoiser`.

    Conditioning tokens become the observation's vector by attention with one learned query per head
    (Lee et al., Set Transformer, ICML 2019, section 3.2, with one seed). For a single token, as
    from `KeypointEncoder` in the published form, that is a linear map, which the published network
    lacks; with `condition_dim` None there is none.
    """

    def __init__(
        self,
        settings: UnetSettings,
        *,
        action_dim: int,
        chunk: int,
        conditioning_dim: int,
        state_dim: int = 0,
    ) -> None:
        """Builds the network.

        Args:
            settings: Settings of network and pooling.
            action_dim: Numbers per action, A.
            chunk: Actions per chunk, T; a multiple of 2^(levels - 1).
            conditioning_dim: Width of the conditioning tokens.
            state_dim: Numbers of the state beside the conditioning tokens; 0: there is none.
        """
        super().__init__()
        levels = len(settings.down_dims)
        condition_dim = settings.condition_dim or conditioning_dim
        pooled = settings.condition_dim is not None
        shortest = 2 ** (levels - 1)
        if chunk % shortest:
            raise ValueError(
                f"chunk is {chunk}; allowed for {levels} levels: multiples of {shortest}."
            )
        self.heads = settings.heads
        self.query = nn.Parameter(torch.randn(condition_dim)) if pooled else None
        self.conditioning_kv = nn.Linear(conditioning_dim, 2 * condition_dim) if pooled else None
        self.embed_state = nn.Linear(state_dim, condition_dim) if state_dim else None
        sized = settings if pooled else replace(settings, condition_dim=condition_dim, heads=1)
        self.network = ConditionalUnet(sized, action_dim)

    def precompute(
        self, conditioning: Tensor, state: Tensor | None = None
    ) -> list[tuple[Tensor, ...]]:
        """Projects tokens to keys and values, (B, heads, N, condition_dim / heads), and the state.

        Without pooling, the token (B, conditioning_dim) takes their place. The last tensor, (B,
        condition_dim), is there only if the network reads states.
        """
        known: tuple[Tensor, ...]
        if self.conditioning_kv is None:
            if conditioning.shape[1] != 1:
                raise ValueError(
                    f"The observation encoder returns {conditioning.shape[1]} tokens; allowed with "
                    "policy.denoiser.condition_dim=null: one, as of dp3 or resnet18_keypoints."
                )
            known = (conditioning[:, 0],)
        else:
            keys, values = self.conditioning_kv(conditioning).chunk(2, dim=-1)
            known = (split_heads(keys, self.heads), split_heads(values, self.heads))
        if self.embed_state is None:
            return [known]
        if state is None:
            raise ValueError("A denoiser with a state_dim needs the states of the observations.")
        return [(*known, self.embed_state(state.to(self.embed_state.weight.dtype)))]

    def forward(
        self, noisy: Tensor, level: Tensor, precomputed: Precomputed, present: Tensor | None = None
    ) -> Tensor:
        """Denoises K samples per observation; see `Denoiser`."""
        condition = self.pool(precomputed, present).repeat_interleave(noisy.shape[1], dim=0)
        out: Tensor = self.network(noisy.flatten(0, 1), level.flatten(), condition)
        return out.reshape(noisy.shape)

    def pool(self, precomputed: Precomputed, present: Tensor | None = None) -> Tensor:
        """Returns vectors (B, condition_dim) of the tokens that are `present` (B, N)."""
        vector: Tensor
        if self.query is None:
            ((vector, *states),) = precomputed
        else:
            ((keys, values, *states),) = precomputed
            query = self.query.to(keys.dtype).reshape(1, self.heads, 1, -1)
            query = query.expand(len(keys), -1, -1, -1)
            vector = join_heads(attend(query, keys, values, present=present))[:, 0]
        return vector + states[0] if states else vector


class _Stage(nn.Module):
    """Two residual blocks with one context, the unit of the network at every resolution."""

    def __init__(
        self, inputs: int, outputs: int, *, context: int, kernel: int, groups: int
    ) -> None:
        super().__init__()
        self.first = _ModulatedBlock(inputs, outputs, context, kernel, groups)
        self.second = _ModulatedBlock(outputs, outputs, context, kernel, groups)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, context), context)
        return out


class _ModulatedBlock(nn.Module):
    """Two convolutions, modulated by the context in between, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, context: int, kernel: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Sequential(*_convolution(inputs, outputs, kernel, groups))
        self.second = nn.Sequential(*_convolution(outputs, outputs, kernel, groups))
        self.modulation = nn.Sequential(nn.Mish(), nn.Linear(context, 2 * outputs))
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Maps (N, inputs, T) to (N, outputs, T) under a context (N, C)."""
        scale, shift = self.modulation(context).unsqueeze(-1).chunk(2, dim=1)
        out: Tensor = self.second(scale * self.first(x) + shift) + self.shortcut(x)
        return out


def level_features(level: Tensor, dim: int) -> Tensor:
    """Embeds noise levels as in the published code: sines, then cosines, in a new last axis.

    They are of the level's index among 100, with frequencies from 1 to 10^-4 rad; `dim` is even, at
    least 4.
    """
    falling = torch.arange(dim // 2, device=level.device) / (dim // 2 - 1)
    phase = PUBLISHED_LEVELS * level[..., None] * torch.exp(-math.log(10000.0) * falling)
    return torch.cat((phase.sin(), phase.cos()), dim=-1)


def _convolution(inputs: int, outputs: int, kernel: int, groups: int) -> Iterable[nn.Module]:
    return (
        nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2),
        nn.GroupNorm(groups, outputs),
        nn.Mish(),
    )
