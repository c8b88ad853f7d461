"""ACT: chunks of actions from a conditional variational autoencoder, a common baseline.

Zhao et al., Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware, RSS 2023 (arXiv
2304.13705), section IV, and the published code. Its transformer has DETR's layers, with positions
added to queries and keys only, and norms after the residuals: Carion et al., ECCV 2020 (arXiv
2005.12872), appendix A.3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, NOT_NEGATIVE, SHARE
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.vision.attention import check_heads
from stringline.policies.algorithms.chunk_policy import ChunkPolicy, PolicySettings, masked_mean
from stringline.policies.algorithms.learned_policy import Batch, Generators
from stringline.policies.networks.inputs import NormalisedPrefix, sequence_positions
from stringline.policies.observation.interfaces import ConditioningTokens, state_width


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

        `absent` (B, N) bool marks tokens that do not exist; if None, all exist.
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


@dataclass(frozen=True, kw_only=True)
class ActSettings(PolicySettings):
    """Settings of ACT, as published except for the number of decoder layers.

    Attributes:
        dim: Width of the transformer, a multiple of 2 * heads.
        heads: Number of attention heads.
        feed_forward: Hidden width of the feed-forward layers.
        encoder_layers: Layers of the transformer's encoder and of the style encoder.
        decoder_layers: Layers of the decoder; the published code builds 7 and uses the output of
            the first.
        latent: Dimension of a style, the latent variable of the demonstrations.
        kl_weight: Weight of the divergence of the style from its prior in the loss.
        dropout: Dropout rate in training, 0 to 1.
    """

    chunk: int = 100
    dim: int = 512
    heads: int = 8
    feed_forward: int = 3200
    encoder_layers: int = 4
    decoder_layers: int = 1
    latent: int = 32
    kl_weight: float = 10.0
    dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.dim, self.heads)
        COUNT.check(
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            latent=self.latent,
            feed_forward=self.feed_forward,
        )
        NOT_NEGATIVE.check(kl_weight=self.kl_weight)
        SHARE.check(dropout=self.dropout)

    def encoder(self) -> Encoder:
        """Returns an encoder of tokens, for styles or observations."""
        return Encoder(self.dim, self.heads, self.feed_forward, self.encoder_layers, self.dropout)

    def transformer(self) -> ActTransformer:
        """Returns the transformer from tokens of an observation and a style to chunks."""
        return ActTransformer(
            chunk=self.chunk,
            dim=self.dim,
            heads=self.heads,
            feed_forward=self.feed_forward,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            dropout=self.dropout,
        )


class ActPolicy(ChunkPolicy):
    """Decodes chunks from an observation and a style, encoded from demonstrations in training.

    At run time the style is the mean of its prior, zero. So the policy is deterministic and returns
    about the median of the demonstrations: of two modes it takes the more frequent one, or an
    action between them.

    Two departures from the published code. Its decoder has 7 layers of which only the first is
    read; here the others do not exist. Its loss divides by the padded actions too, which reduces
    the weight of chunks at the end of an episode; here every action inside the episode counts the
    same, together with the divergence of its example, so that a loss is a mean over actions and
    parts of a batch add up to the whole.
    """

    def __init__(self, settings: ActSettings, contract: Contract, statistics: Statistics) -> None:
        super().__init__(settings, contract, statistics)
        dim = settings.dim
        joints = len(contract.joints)
        self.kl_weight = settings.kl_weight
        self.latent = settings.latent
        self.joint_range = settings.normalisation(statistics["joints/position"]) if joints else None
        self.style = StyleEncoder(
            action_dim=self.action_dim,
            joints=joints,
            latent=self.latent,
            encoder=settings.encoder(),
            dim=dim,
        )
        self.read_conditioning = (
            nn.Identity()
            if self.observation_encoder.dim == dim
            else nn.Linear(self.observation_encoder.dim, dim)
        )
        states = state_width(self.observation_encoder)
        self.read_state = nn.Linear(states, dim) if states else None
        self.read_style = nn.Linear(self.latent, dim)
        self.style_position = nn.Parameter(torch.randn(dim))
        self.transformer = settings.transformer()
        self.read_action = nn.Linear(dim, self.action_dim)

    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch; the style also depends on the joints."""
        joints = (
            None
            if self.joint_range is None
            else self.joint_range.normalise(batch["joints/position"].float())
        )
        action = self.normalised(batch["action"].float(), batch)
        return self.chunk_loss(
            self.observation_encoder(batch), action, batch["action_mask"], joints
        )

    def chunk_loss(
        self,
        conditioning: ConditioningTokens,
        action: Tensor,
        mask: Tensor,
        joints: Tensor | None = None,
    ) -> Tensor:
        """Returns the mean absolute error of the actions plus the weighted divergence of the style.

        Args:
            conditioning: Conditioning tokens of B observations.
            action: (B, T, action_dim) normalised actions.
            mask: (B, T) False beyond the end of the episode.
            joints: (B, J) normalised; if None, the style depends on the actions alone.
        """
        error, divergence = self.losses(conditioning, action, mask, joints)
        return error + self.kl_weight * divergence

    def losses(
        self,
        conditioning: ConditioningTokens,
        action: Tensor,
        mask: Tensor,
        joints: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns both unweighted parts of the loss, means over actions; see `chunk_loss`."""
        mean, log_variance = self.style(action, mask, joints)
        style = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        error = (self.decode(conditioning, style) - action).abs()
        count = mask.sum(dim=1).to(error.dtype)
        divergence = (divergence_from_prior(mean, log_variance) * count).sum() / count.sum().clamp(
            min=1
        )
        return masked_mean(error[:, None], mask), divergence

    def generate(
        self,
        conditioning: ConditioningTokens,
        generator: Generators,
        prefix: NormalisedPrefix | None = None,
    ) -> Tensor:
        """Decodes the mean of the prior; see `ChunkPolicy.generate`."""
        if prefix is not None:
            raise ValueError(
                "ACT generates a chunk in one step and supports no action prefix; allowed: "
                "DiffusionPolicy, FlowPolicy, EnergyPolicy."
            )
        return self.decode(
            conditioning, self.style_position.new_zeros(len(conditioning.tokens), self.latent)
        )

    def decode(self, conditioning: ConditioningTokens, style: Tensor) -> Tensor:
        """Returns normalised chunks (B, T, action_dim) of B observations in styles (B, latent)."""
        first = [self.read_style(style)[:, None]]
        if self.read_state is not None and conditioning.state is not None:
            first.append(self.read_state(conditioning.state)[:, None])
        tokens = torch.cat((*first, self.read_conditioning(conditioning.tokens)), dim=1)
        # The conditioning tokens contain their positions already.
        position = nn.functional.pad(self.style_position[None], (0, 0, 0, tokens.shape[1] - 1))
        absent = (
            None
            if conditioning.present is None
            else nn.functional.pad(~conditioning.present, (len(first), 0), value=False)
        )
        action: Tensor = self.read_action(self.transformer(tokens, position, absent))
        return self.smooth(action.to(torch.promote_types(action.dtype, torch.float32)))


class StyleEncoder(nn.Module):
    """Encodes the style of a demonstrated chunk; used in training only."""

    def __init__(
        self, *, action_dim: int, joints: int, latent: int, encoder: Encoder, dim: int
    ) -> None:
        """Builds the network; with `joints` = 0 the style depends on the actions alone."""
        super().__init__()
        self.encoder = encoder
        self.query = nn.Parameter(torch.randn(dim))
        self.embed_action = nn.Linear(action_dim, dim)
        self.embed_joints = nn.Linear(joints, dim) if joints else None
        self.read_style = nn.Linear(dim, 2 * latent)

    def forward(
        self, action: Tensor, mask: Tensor, joints: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns mean and logarithm of the variance of the style, (B, latent) each.

        Normalised actions are (B, T, action_dim), of which those with a False `mask` (B, T) are
        ignored; normalised joints are (B, J).
        """
        actions = self.embed_action(action)
        query = self.query.to(actions.dtype).expand(len(action), 1, -1)
        state = (
            [self.embed_joints(joints)[:, None]]
            if self.embed_joints is not None and joints is not None
            else []
        )
        tokens = torch.cat((query, *state, actions), dim=1)
        absent = nn.functional.pad(~mask, (tokens.shape[1] - mask.shape[1], 0), value=False)
        position = sequence_positions(tokens.shape[1], tokens.shape[2], tokens.device)
        found = self.read_style(self.encoder(tokens, position, absent)[:, 0])
        mean, log_variance = found.to(torch.promote_types(found.dtype, torch.float32)).chunk(
            2, dim=-1
        )
        return mean, log_variance


def divergence_from_prior(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Returns the KL divergence of normal distributions (B, latent) from the standard one, (B,).

    In nats.
    """
    return -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=-1)
