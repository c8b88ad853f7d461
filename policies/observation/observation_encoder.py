"""What a policy knows of one observation: tokens of all cameras and of the grippers, fused where they stand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.contract.instructions import NUMBER_KEY
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.positions.encoding import PositionEncoding
from stringline.encoders.positions.space_time import with_time
from stringline.encoders.vision.camera_views import read_key
from stringline.encoders.vision.rgbd import RgbdTokens, Tokens
from stringline.encoders.vision.vit import VisionTransformer
from stringline.policies.observation.history import ObservationHistory
from stringline.policies.observation.instruction import Instruction
from stringline.policies.observation.observation_settings import ObservationSettings


@dataclass(frozen=True)
class Memory:
    """Tokens that a denoiser attends to.

    Attributes:
        tokens: (B, N, dim). They depend on places only by differences: a shift common to everything
            changes none of them.
        present: (B, N) bool, False for tokens of cameras that an example lacks, which mean nothing;
            None: all are there.
    """

    tokens: Tensor
    present: Tensor | None = None


class ObservationEncoder(nn.Module):
    """Fuses images and proprioception by attention in which every token stands at its place in the base frame.

    Patches stand where their depth says, each arm's token at its gripper's TCP, where the
    kinematics says. An arm's token bears the joint state of the whole body. With a history
    everything stands in time as well, in seconds from now, and the tokens of the past stand where
    their things were then. An instruction has no place.

    Attributes:
        history: Which moments of the past are looked at; None: the present alone.
        instruction: Knows what can be asked for; None: nothing is asked.
    """

    def __init__(
        self, settings: ObservationSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the encoder.

        Args:
            settings: What is chosen about it.
            contract: Of the observations.
            statistics: For the ranges of the joints.

        Raises:
            ValueError: A camera does not exist, there are no arms or joints, the encoding knows no
                time, or nothing is asked.
        """
        super().__init__()
        if not contract.arms or not contract.joints:
            raise ValueError(
                "This policy needs joint positions and gripper poses; the contract has no arms or "
                "no joints."
            )
        self.cameras = settings.choose(contract)
        self.arms = contract.arms
        self.dim = dim = settings.dim
        self.joint_range = settings.normalisation(statistics["joints/position"])
        coordinates = settings.coordinates
        depth = settings.depth_input
        embedding = settings.embedding
        self.tokenise = RgbdTokens(self.cameras, coordinates, dim, depth=depth, embedding=embedding)
        self.joint_dropout = settings.joint_dropout
        self.embed_joints = nn.Linear(len(contract.joints), dim)
        self.arm_mark = nn.Parameter(0.02 * torch.randn(len(self.arms), dim))
        self.history = settings.history
        places = self._encoding(settings, contract)
        asked = settings.instruction
        self.instruction: Instruction | None = (
            None if asked is None else asked(dim=dim, known=statistics.instructions)
        )
        self.blocks = VisionTransformer(
            places,
            dim,
            settings.depth,
            values=settings.values,
            share_layers=settings.share_layers,
            registers=settings.registers,
        )

    def _encoding(self, settings: ObservationSettings, contract: Contract) -> PositionEncoding:
        """Returns the encoding of places, and of times where the past is looked at, whose moments then get their marks."""
        heads = settings.heads
        dim = settings.dim
        places = settings.encoding(
            heads=heads, head_dim=dim // heads, axes=settings.coordinates.axes
        )
        if self.history is None:
            return places
        self.history.steps(contract.control_hz)
        places = with_time(places, self.history.wavelengths_s)
        self.past_mark = nn.Parameter(0.02 * torch.randn(len(self.history.ages_s), dim))
        return places

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that `forward` reads of the present; an instruction comes besides."""
        return [*self._images, *self._state, *(["time"] if self.history else [])]

    @property
    def past_keys(self) -> list[str]:
        """The keys of the contract that `forward` reads of each moment of the past, none without a history."""
        if self.history is None:
            return []
        return [*(self._images if self.history.images else []), *self._state, "time"]

    @property
    def _images(self) -> list[str]:
        return [
            f"{kind}/{camera.name}"
            for camera in self.cameras
            for kind, present in {
                "rgb": True,
                "depth": camera.depth is not None,
                "intrinsics": camera.has_geometry,
                "T_base_camera": camera.has_geometry,
            }.items()
            if present
        ]

    @property
    def _state(self) -> list[str]:
        return ["joints/position", *(f"T_base_gripper/{arm}" for arm in self.arms)]

    def forward(self, observation: Mapping[str, Tensor]) -> Memory:
        """Encodes a batch.

        Args:
            observation: The contract's keys with a leading batch axis; at least `keys`. With
                `present/<camera>` (B,) bool examples may lack cameras, see `RgbdTokens`. With a
                history also `past/<key>` (B, K, ...) for each of `past_keys` and `past_mask` (B, K)
                bool, as `Windows` gives them; with an instruction `instruction_number` (B,).

        Raises:
            ValueError: A key is missing.
        """
        images = self._timed(self.tokenise(observation))
        shown = self._shown(observation["joints/position"])
        arms = self._timed(self._arm_tokens(observation, shown))
        past_images, past_arms = self._past(observation, shown)
        others = [*past_arms, *self._asked(observation, arms), arms]
        tokens = reduce(add, [images, *past_images, *others])
        encoded = self.blocks(tokens.features, tokens.coordinates, tokens.placed, tokens.present)
        return self._fused(encoded, tokens.present, sum(part.features.shape[1] for part in others))

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"arm_mark"} | (set() if self.history is None else {"past_mark"})

    def _arm_tokens(self, observation: Mapping[str, Tensor], shown: Tensor | None) -> Tokens:
        """Returns a token for each arm; joints are hidden in examples that are not `shown` (B, 1) bool."""
        features = self.embed_joints(
            self.joint_range.normalise(observation["joints/position"].float())
        )
        if shown is not None:
            features = features * shown.to(features.dtype)
        positions = torch.stack(
            [observation[f"T_base_gripper/{arm}"][:, :3, 3] for arm in self.arms], dim=1
        )
        return Tokens(
            features[:, None] + self.arm_mark, *self.tokenise.coordinates.points(positions)
        )

    def _shown(self, joints: Tensor) -> Tensor | None:
        """Draws whose joint state is seen in training, (B, 1) bool; None: everybody's."""
        if not self.training or not self.joint_dropout:
            return None
        return torch.rand(len(joints), 1, device=joints.device) >= self.joint_dropout

    def _past(
        self, observation: Mapping[str, Tensor], shown: Tensor | None
    ) -> tuple[list[Tokens], list[Tokens]]:
        """Returns the tokens of the images of the past, and those of the arms then, each one moment after the other."""
        if self.history is None:
            return [], []
        known, ago = self._moments(observation)
        flat = {key: read_key(observation, f"past/{key}").flatten(0, 1) for key in self.past_keys}
        for key in (f"present/{camera.name}" for camera in self.cameras):
            flat |= (
                {key: observation[key].repeat_interleave(known.shape[1])}
                if key in observation
                else {}
            )
        shown = None if shown is None else shown.repeat_interleave(known.shape[1], dim=0)
        arms = self._in_their_time(self._arm_tokens(flat, shown), known, ago)
        return [
            self._in_their_time(self.tokenise(flat), known, ago)
        ] if self.history.images else [], [arms]

    def _moments(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Returns which moments of the past there are, (B, K) bool, and when they were, (B, K) seconds from now."""
        assert self.history is not None  # The caller looked.
        known = read_key(observation, "past_mask")
        if self.training and self.history.dropout:
            known = known & (torch.rand(len(known), 1, device=known.device) >= self.history.dropout)
        return known, read_key(observation, "past/time") - read_key(observation, "time")[:, None]

    def _in_their_time(self, tokens: Tokens, known: Tensor, ago: Tensor) -> Tokens:
        """Returns tokens (B K, n) of K moments as (B, K n), marked, in time, and present where the moment is `known` (B, K)."""
        count = tokens.features.shape[1]
        batch = len(known)
        features = tokens.features.reshape(*known.shape, count, -1) + self.past_mark[:, None]
        present = known.repeat_interleave(count, dim=1)
        if tokens.present is not None:
            present = present & tokens.present.reshape(batch, -1)
        coordinates = tokens.coordinates.reshape(batch, present.shape[1], -1)
        joined = Tokens(
            features.flatten(1, 2), coordinates, tokens.placed.reshape(batch, -1), present
        )
        return self._timed(joined, ago.repeat_interleave(count, dim=1))

    def _timed(self, tokens: Tokens, seconds: Tensor | None = None) -> Tokens:
        """Returns tokens with their time (B, N), seconds from now, as the last coordinate; None: now."""
        if self.history is None:
            return tokens
        place = tokens.coordinates
        time = (
            torch.zeros_like(place[..., :1])
            if seconds is None
            else seconds[..., None].to(place.dtype)
        )
        return replace(tokens, coordinates=torch.cat((place, time), dim=-1))

    def _asked(self, observation: Mapping[str, Tensor], like: Tokens) -> list[Tokens]:
        """Returns the token of what is asked for; it has no place, and is of now."""
        if self.instruction is None:
            return []
        features, present = self.instruction(read_key(observation, NUMBER_KEY))
        nowhere = torch.zeros_like(like.coordinates[:, :1])
        return [Tokens(features, nowhere, torch.zeros_like(present), present)]

    def _fused(self, encoded: Tensor, present: Tensor | None, others: int) -> Memory:
        """Joins the streams of the images, which stand first, of each moment; `others` tokens stand after them."""
        streams = self.tokenise.fusion.streams
        if streams == 1:
            return Memory(encoded, present)
        moments = 1 + (
            len(self.history.ages_s) if self.history is not None and self.history.images else 0
        )
        batch = len(encoded)
        own = encoded.shape[1] - others
        images = self.tokenise.fuse(encoded[:, :own].reshape(batch * moments, own // moments, -1))
        tokens = torch.cat((images.reshape(batch, own // streams, -1), encoded[:, own:]), dim=1)
        if (
            present is not None
        ):  # The streams of a moment stand one after the other with the same presence.
            first = present[:, :own].reshape(batch, moments, streams, -1)[:, :, 0].flatten(1)
            present = torch.cat((first, present[:, own:]), dim=1)
        return Memory(tokens, present)


class PolicyMemory(Protocol):
    """What makes a memory of observations, a `torch.nn.Module`: `ObservationEncoder`, or those of `image_memory.py`.

    Attributes:
        dim: Width of its tokens.
        cameras: Those that it looks through, with what it needs of them.
        history: Which moments of the past it looks at; None: the present alone.
        instruction: Knows what can be asked for; None: nothing is asked.
    """

    dim: int
    cameras: tuple[Camera, ...]
    history: ObservationHistory | None
    instruction: Instruction | None

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that it reads of the present."""
        ...

    @property
    def past_keys(self) -> list[str]:
        """Those that it reads of each moment of the past."""
        ...

    def __call__(self, observation: Mapping[str, Tensor]) -> Memory:
        """Encodes a batch: the contract's keys with a leading batch axis, at least `keys`."""
        ...


class MemoryFactory(Protocol):
    """Makes the memory of a policy."""

    def __call__(self, *, contract: Contract, statistics: Statistics) -> PolicyMemory:
        """Returns it with its starting parameters."""
        ...
