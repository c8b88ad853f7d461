"""ACT: chunks of actions from a conditional variational autoencoder, the baseline of bimanual manipulation.

Zhao et al., Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware, RSS 2023 (arXiv
2304.13705), section IV, and its code.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stringline.datasets.contract.arguments import COUNT, NOT_NEGATIVE, SHARE
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.policies.algorithms.chunk_policy import Batch, ChunkPolicy
from stringline.policies.algorithms.policy_settings import PolicySettings
from stringline.policies.networks.act_transformer import ActTransformer, Encoder
from stringline.policies.networks.committed import Committed
from stringline.policies.networks.masked import masked_mean
from stringline.policies.networks.sinusoids import sequence_positions
from stringline.policies.observation.observation_encoder import Memory
from stringline.policies.observation.observation_settings import check_heads


@dataclass(frozen=True, kw_only=True)
class ActSettings(PolicySettings):
    """What is chosen about ACT; as published, but for the layers of the decoder.

    Attributes:
        dim: Width of the transformer.
        heads: Its attention heads.
        feed_forward: Hidden width of its feed-forward layers.
        encoder_layers: Layers of the encoder of observations, and of that of styles.
        decoder_layers: Layers of the decoder.
        latent: Numbers that a style has.
        kl_weight: Weight of the divergence of the style from its prior.
        dropout: Share of the activations that are dropped in training.
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
        """See the base."""
        super().__post_init__()
        check_heads(self.dim, self.heads)
        COUNT.check(
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            latent=self.latent,
        )
        COUNT.check(feed_forward=self.feed_forward)
        NOT_NEGATIVE.check(kl_weight=self.kl_weight)
        SHARE.check(dropout=self.dropout)

    def encoder(self) -> Encoder:
        """Returns an encoder of tokens, as both of styles and observations are."""
        return Encoder(self.dim, self.heads, self.feed_forward, self.encoder_layers, self.dropout)

    def transformer(self) -> ActTransformer:
        """Returns what makes chunks of the tokens of an observation and of a style."""
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
    """Decodes chunks from an observation and a style; in training an encoder beside it reads the style off the demonstration.

    When it acts the style is the mean of its prior, zero. So it gives one answer per observation,
    about the median of what it was shown: of two ways to do a thing it takes the commoner, or one
    between them.

    Two departures from the published code. Its decoder has 7 layers of which it reads the first;
    here what is not read is not built. Its loss divides by the padded actions too, which makes
    chunks at the end of an episode count for less; here every action inside the episode counts the
    same, and brings the divergence of its example along: so a loss is a mean over actions, and
    parts of a batch, and processes, add up to the whole.
    """

    def __init__(self, settings: ActSettings, contract: Contract, statistics: Statistics) -> None:
        """Builds the policy; see `ChunkPolicy`."""
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
        self.read_memory = (
            nn.Identity() if self.memory.dim == dim else nn.Linear(self.memory.dim, dim)
        )
        self.read_style = nn.Linear(self.latent, dim)
        self.style_position = nn.Parameter(torch.randn(dim))
        self.transformer = settings.transformer()
        self.read_action = nn.Linear(dim, self.action_dim)

    def loss(self, batch: Batch) -> Tensor:
        """Returns the loss of a batch; see `ChunkPolicy.loss`.

        The style is read off the joints too.
        """
        joints = (
            None
            if self.joint_range is None
            else self.joint_range.normalise(batch["joints/position"].float())
        )
        action = self.normalised(batch["action"].float(), batch)
        return self.chunk_loss(self.memory(batch), action, batch["action_mask"], joints)

    def chunk_loss(
        self, memory: Memory, action: Tensor, mask: Tensor, joints: Tensor | None = None
    ) -> Tensor:
        """Mean absolute error of the actions inside the episode, and the weighted divergence of the style from its prior.

        Args:
            memory: Of B observations.
            action: (B, T, action_dim) normalised actions.
            mask: (B, T) False beyond the end of the episode.
            joints: (B, J) normalised; None: the style is read off the actions alone.
        """
        error, divergence = self.losses(memory, action, mask, joints)
        return error + self.kl_weight * divergence

    def losses(
        self, memory: Memory, action: Tensor, mask: Tensor, joints: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns both parts of the loss, not weighted, each a mean over actions; arguments as for `chunk_loss`."""
        mean, log_variance = self.style(action, mask, joints)
        style = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        error = (self.decode(memory, style) - action).abs()
        count = mask.sum(dim=1).to(error.dtype)
        divergence = (divergence_from_prior(mean, log_variance) * count).sum() / count.sum().clamp(
            min=1
        )
        return masked_mean(error[:, None], mask), divergence

    def generate(
        self, memory: Memory, generator: torch.Generator, committed: Committed | None = None
    ) -> Tensor:
        """Decodes the prior's mean, so nothing is drawn; see `ChunkPolicy.generate`.

        Raises:
            ValueError: Some actions are committed.
        """
        if committed is not None:
            raise ValueError(
                "ACT makes a chunk in one go and cannot keep to committed actions; "
                "policies that can: DiffusionPolicy, FlowPolicy, EnergyPolicy."
            )
        return self.decode(memory, self.style_position.new_zeros(len(memory.tokens), self.latent))

    def decode(self, memory: Memory, style: Tensor) -> Tensor:
        """Returns normalised chunks (B, T, action_dim) of B observations in styles (B, latent)."""
        tokens = torch.cat(
            (self.read_style(style)[:, None], self.read_memory(memory.tokens)), dim=1
        )
        # Tokens of the memory bear their positions already.
        position = nn.functional.pad(self.style_position[None], (0, 0, 0, tokens.shape[1] - 1))
        absent = (
            None
            if memory.present is None
            else nn.functional.pad(~memory.present, (1, 0), value=False)
        )
        action: Tensor = self.read_action(self.transformer(tokens, position, absent))
        return action.to(torch.promote_types(action.dtype, torch.float32))


class StyleEncoder(nn.Module):
    """Reads off a demonstrated chunk how it was done: the encoder of the autoencoder, of use in training alone."""

    def __init__(
        self, *, action_dim: int, joints: int, latent: int, encoder: Encoder, dim: int
    ) -> None:
        """Builds the network.

        Args:
            action_dim: Numbers per action.
            joints: Number of joints, J; none: the actions alone are read.
            latent: Numbers that a style has.
            encoder: Of tokens of width `dim`.
            dim: Width of the tokens.
        """
        super().__init__()
        self.encoder = encoder
        self.query = nn.Parameter(torch.randn(dim))
        self.embed_action = nn.Linear(action_dim, dim)
        self.embed_joints = nn.Linear(joints, dim) if joints else None
        self.read_style = nn.Linear(dim, 2 * latent)

    def forward(
        self, action: Tensor, mask: Tensor, joints: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Reads.

        Args:
            action: (B, T, action_dim) normalised actions.
            mask: (B, T) False for actions that are not to be looked at.
            joints: (B, J) normalised; None: not looked at.

        Returns:
            Mean and logarithm of the variance of the style, (B, latent) each.
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
    """Returns the Kullback-Leibler divergence of normal distributions from the standard one, in nats, (B,).

    Args:
        mean: (B, latent).
        log_variance: (B, latent).
    """
    return -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=-1)
