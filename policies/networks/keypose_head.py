"""Keyposes from conditioning tokens: a pointer over tokens gives modes, a diffusion refines them.

Each token votes for the next keypose of each arm relative to its own place, and the token of the
arm weighs the votes. Votes of different modes stay apart, where a mean of them would be a pose
between two grasps (Act3D, Gervet et al., 2023, arXiv 2306.17817, chooses among points in space;
here the chosen tokens also say where the keypose is beside them). Around a mode, a denoiser samples
the pose: its tokens stand at the noisy positions and attend to the tokens of the scene by relative
places (3D Diffuser Actor, Ke et al., 2024, arXiv 2402.10885). Departure: the diffusion begins at
the mode with a noise of some centimetres instead of far away, so a few steps suffice.

Numbers of a keypose: position (3, m), rotation (6: the first two columns, Zhou et al., 2019, arXiv
1812.07035), and from the position to approach, corner and departure (3 each, m). Votes have
openings as well, since a grasp and a release are two modes.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE
from stringline.encoders.positions.encoding import Places, PositionEncoding
from stringline.encoders.vision.attention import KeyValues, PositionalAttention
from stringline.policies.networks.denoiser import sinusoidal_embedding
from stringline.policies.networks.inputs import TokenPlaces

NUMBERS = 3 + 6 + 9
VOTED = NUMBERS + 2
"""With the openings of the gripper before and after its stroke."""
FLAGS = 2
"""Logits that an arm acts, and that it moves."""
SCALE_M = 0.1


class PlacedTokens(Protocol):
    """What is read of the conditioning tokens of an observation encoder."""

    @property
    def tokens(self) -> Tensor:
        """(B, N, dim); the last ones belong to the arms."""
        ...

    @property
    def places(self) -> TokenPlaces | None:
        """Their places; the policy checks that there are some."""
        ...

    @property
    def arms(self) -> int:
        """Number of arms."""
        ...


@dataclass(frozen=True)
class Votes:
    """The votes of N tokens for the keyposes of A arms.

    Attributes:
        logit: (B, A, N) their weights.
        numbers: (B, A, N, VOTED).
        flags: (B, A, FLAGS) of the arms.
        place: (B, N, 3) places of the tokens, m.
        present: (B, N) bool.
        query: (B, A, dim) tokens of the arms.
    """

    logit: Tensor
    numbers: Tensor
    flags: Tensor
    place: Tensor
    present: Tensor
    query: Tensor


def rotation_of(six: Tensor) -> Tensor:
    """Returns rotations (..., 3, 3) of their first two columns (..., 6), orthonormalised."""
    first = functional.normalize(six[..., :3], dim=-1)
    second = six[..., 3:]
    second = functional.normalize(second - (first * second).sum(-1, keepdim=True) * first, dim=-1)
    return torch.stack((first, second, torch.linalg.cross(first, second)), dim=-1)


class KeyposePointer(nn.Module):
    """The votes of conditioning tokens."""

    def __init__(self, dim: int) -> None:
        """Builds the layers for tokens of a width."""
        super().__init__()
        self.point_query = nn.Linear(dim, dim)
        self.point_key = nn.Linear(dim, dim)
        self.vote_query = nn.Linear(dim, dim)
        self.vote_key = nn.Linear(dim, dim)
        # The last three numbers are an offset in the frame of the predicted gripper.
        self.vote = nn.Linear(dim, VOTED + 3)
        self.flags = nn.Sequential(nn.Linear(2 * dim, dim), nn.GELU(), nn.Linear(dim, FLAGS))

    def forward(self, conditioning: PlacedTokens, turn: Tensor | None = None) -> Votes:
        """Returns the votes.

        Args:
            conditioning: Tokens with places; the last are those of the arms.
            turn: (B, A, 3, 3) true rotations, in training: votes then learn their offset in the
                right frame from the beginning; if None, the voted ones.
        """
        places = conditioning.places
        assert places is not None  # Checked by the policy.
        arms = conditioning.arms
        query = conditioning.tokens[:, -arms:]
        keys = conditioning.tokens[:, :-arms]
        place = places.coordinates[:, :-arms, :3]
        present = places.has_position[:, :-arms]
        logit = self.point_query(query) @ self.point_key(keys).transpose(1, 2)
        logit = (logit / math.sqrt(query.shape[-1])).float()
        raw = functional.gelu(self.vote_key(keys)[:, None] + self.vote_query(query)[:, :, None])
        raw = self.vote(raw).float()
        six = raw[..., 3:9]
        frames = rotation_of(six) if turn is None else turn[:, :, None]
        beside = (frames * (SCALE_M * raw[..., None, VOTED:])).sum(-1)
        position = place[:, None] + SCALE_M * raw[..., :3] + beside
        ways = SCALE_M * raw[..., 9:NUMBERS]
        numbers = torch.cat((position, six, ways, raw[..., NUMBERS:VOTED]), dim=-1)
        together = query.mean(dim=1, keepdim=True).expand_as(query)
        return Votes(
            logit.masked_fill(~present[:, None], -1e4),
            numbers,
            self.flags(torch.cat((query, together), dim=-1)).float(),
            place,
            present,
            query,
        )


def joined_votes(votes: Votes, voxel_samples: int) -> Votes:
    """Returns the votes of several samples of voxels, (B D) rows, as votes of (B, D N) tokens."""
    share = votes.logit.log_softmax(-1)
    rows, arms, tokens = share.shape
    batch = rows // voxel_samples

    def side_by_side(values: Tensor) -> Tensor:
        shaped = values.reshape(batch, voxel_samples, arms, tokens, *values.shape[3:])
        return shaped.transpose(1, 2).flatten(2, 3)

    return Votes(
        side_by_side(share),
        side_by_side(votes.numbers),
        votes.flags.reshape(batch, voxel_samples, arms, -1).mean(dim=1),
        votes.place.reshape(batch, voxel_samples * tokens, 3),
        votes.present.reshape(batch, voxel_samples * tokens),
        votes.query.reshape(batch, voxel_samples, arms, -1).mean(dim=1),
    )


def modes_of(votes: Votes, count: int, radius_m: float) -> tuple[Tensor, Tensor]:
    """Returns the densest clusters of votes.

    Args:
        votes: The votes.
        count: Number of modes, M.
        radius_m: Votes within this distance belong together.

    Returns:
        (B, A, M, VOTED) weighted means of the votes of each mode, and (B, A, M) their shares of
        all weight, falling; what a mode has taken does not count for the next.
    """
    weight = votes.logit.softmax(-1)
    position = votes.numbers[..., :3]
    near = (torch.cdist(position, position) < radius_m).to(weight.dtype)
    numbers: list[Tensor] = []
    shares: list[Tensor] = []
    for _ in range(count):
        mass = (near * weight[:, :, None]).sum(-1)
        best = (mass + 1e-3 * weight).argmax(-1)
        index = best[..., None, None].expand(-1, -1, 1, near.shape[-1])
        member = near.gather(2, index)[:, :, 0]
        own = member * weight
        total = own.sum(-1, keepdim=True)
        numbers.append((own[..., None] * votes.numbers).sum(2) / total.clamp(min=1e-9))
        shares.append(total[..., 0])
        weight = weight * (1 - member)
    return torch.stack(numbers, dim=2), torch.stack(shares, dim=2)


@dataclass(frozen=True)
class KeyposeNoise:
    """The noise of the diffusion at level 1: standard deviations.

    Attributes:
        position_m: Standard deviation of the noise of positions at the first step, m.
        rotation: Of each of the six numbers of a rotation.
    """

    position_m: float = 0.03
    rotation: float = 0.25

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError for one that is out of range."""
        NOT_NEGATIVE.check(position_m=self.position_m, rotation=self.rotation)

    def add(self, numbers: Tensor, level: Tensor, noise: Tensor) -> Tensor:
        """Returns the noisy pose (..., 9) at levels (...) from 0 (data) to 1."""
        scale = torch.cat(
            (numbers.new_full((3,), self.position_m), numbers.new_full((6,), self.rotation))
        )
        return numbers[..., :9] + level[..., None] * scale * noise


@dataclass(frozen=True)
class KeyposeContext:
    """What a `KeyposeDenoiser` computes once for any number of noisy keyposes.

    Attributes:
        memory: Keys and values of the tokens of the scene, for each block.
        at: Their places.
        origin: (B, A, A, 3) measured positions of the grippers, for each arm its own first, m.
        turn: (B, A, A, 3, 3) their rotations.
    """

    memory: list[KeyValues]
    at: Places
    origin: Tensor
    turn: Tensor


class KeyposeDenoiser(nn.Module):
    """Predicts clean keyposes from noisy ones, whose tokens stand at the noisy positions.

    A keypose is predicted beside the noisy one and in the frame of each gripper, and their weighted
    mean is the result. What an arm does to an object that the other one holds, such as an
    insertion, is nearly constant in the frame of that gripper, whose pose is known exactly.
    """

    def __init__(
        self,
        dim: int,
        encoding: PositionEncoding,
        *,
        arms: int,
        depth: int = 1,
        values: bool = True,
    ) -> None:
        """Builds the blocks.

        Args:
            dim: Width of the conditioning tokens.
            encoding: Encoding of the places of tokens and of noisy keyposes.
            arms: Number of arms, A.
            depth: Number of blocks.
            values: Relative values, see `PositionalAttention`.
        """
        super().__init__()
        self.encoding = encoding
        self.embed = nn.Linear(6, dim)
        self.embed_frames = nn.Linear(9 * arms, dim)
        self.embed_level = nn.Linear(dim, dim)
        self.context_norm = nn.LayerNorm(dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.attentions = nn.ModuleList(
            PositionalAttention(dim, encoding.heads, values=values) for _ in range(depth)
        )
        self.mlps = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
            )
            for _ in range(depth)
        )
        self.read_norm = nn.LayerNorm(dim)
        self.read = nn.Linear(dim, (1 + arms) * (NUMBERS + 1))

    def _attentions(self) -> list[PositionalAttention]:
        """Returns the attention layers with their type, which `ModuleList` does not keep."""
        return [layer for layer in self.attentions if isinstance(layer, PositionalAttention)]

    def precompute(self, conditioning: PlacedTokens) -> KeyposeContext:
        """Projects the conditioning tokens once for any number of noisy keyposes."""
        assert conditioning.places is not None  # Checked by the policy.
        arms = conditioning.arms
        tokens = self.context_norm(conditioning.tokens[:, :-arms])
        placed = conditioning.places.has_position[:, :-arms]
        at = self.encoding.prepare(conditioning.places.coordinates[:, :-arms, :3], placed)
        memory = [attention.precompute(tokens, at) for attention in self._attentions()]
        order = torch.stack([torch.arange(arms).roll(-arm) for arm in range(arms)])
        origin = conditioning.places.grippers[:, order, :3].float()
        turn = conditioning.places.directions[:, order, :3].float()
        return KeyposeContext(memory, at, origin, turn)

    def forward(
        self,
        noisy: Tensor,
        level: Tensor,
        query: Tensor,
        context: KeyposeContext,
        present: Tensor,
    ) -> Tensor:
        """Returns clean keyposes (B, A, K, NUMBERS).

        Args:
            noisy: (B, A, K, 9) noisy positions and rotations.
            level: (B, A, K) noise levels, 0 to 1.
            query: (B, A, dim) tokens of the arms.
            context: Result of `precompute`.
            present: (B, N) bool, which tokens of the scene exist.
        """
        batch, arms, count, _ = noisy.shape
        dim = query.shape[-1]
        steps = sinusoidal_embedding(level.flatten() * 100, dim).reshape(batch, arms, count, dim)
        x = query[:, :, None] + self.embed(noisy[..., 3:9]) + self.embed_level(steps)
        x = (x + self.embed_frames(_in_frames(noisy, context).to(x.dtype))).flatten(1, 2)
        places = self.encoding.prepare(noisy[..., :3].flatten(1, 2), like=context.at)
        known = None if bool(present.all()) else present
        for norm, attention, mlp, keys in zip(
            self.norms, self.attentions, self.mlps, context.memory, strict=True
        ):
            x = x + attention(norm(x), places, keys, present=known)
            x = x + mlp(x)
        raw = self.read(self.read_norm(x)).float().reshape(batch, arms, count, 1 + arms, -1)
        return _joined_frames(raw, noisy[..., :3], context)


def _in_frames(noisy: Tensor, context: KeyposeContext) -> Tensor:
    """Returns noisy keyposes (B, A, K, 9) in the frames of all grippers, (B, A, K, 9 A).

    Distances beyond a few decimetres are compressed.
    """
    away = noisy[:, :, :, None, :3].float() - context.origin[:, :, None]
    columns = noisy[..., 3:9].float().reshape(*noisy.shape[:-1], 2, 3)
    local = torch.einsum("bakfi,bafij->bakfj", away, context.turn)
    turned = torch.einsum("bakci,bafij->bakfcj", columns, context.turn)
    near = torch.tanh(local / (3 * SCALE_M)) * 3
    return torch.cat((near, turned.flatten(-2)), dim=-1).flatten(-2)


def _joined_frames(raw: Tensor, beside: Tensor, context: KeyposeContext) -> Tensor:
    """Returns keyposes (B, A, K, NUMBERS) from predictions in 1 + A frames.

    Args:
        raw: (B, A, K, 1 + A, NUMBERS + 1) vectors in the base frame and in the frames of the
            grippers, and the logit of the weight of each frame.
        beside: (B, A, K, 3) positions to which the first prediction is relative, m.
        context: The frames of the grippers.
    """
    vectors = raw[..., :NUMBERS].reshape(*raw.shape[:-1], NUMBERS // 3, 3)
    own = vectors[..., :1, :, :]
    turned = torch.einsum("bafij,bakfcj->bakfci", context.turn, vectors[..., 1:, :, :])
    origins = context.origin[:, :, None].expand(-1, -1, beside.shape[2], -1, -1)
    origins = torch.cat((beside[..., None, :], origins), dim=3)
    weight = raw[..., NUMBERS].softmax(-1)[..., None]
    joined = (weight[..., None] * torch.cat((own, turned), dim=3)).sum(3)
    position = (weight * origins).sum(3) + SCALE_M * joined[..., 0, :]
    turns = joined[..., 1:3, :].flatten(-2)
    return torch.cat((position, turns, SCALE_M * joined[..., 3:, :].flatten(-2)), dim=-1)
