"""What a policy knows of one observation: tokens of all cameras and of the grippers, fused where they stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract import Contract
from stringline.datasets.statistics import Statistics
from stringline.encoders.depth_inputs import DepthInput
from stringline.encoders.patches import ConvolutionalStem, EmbeddingRecipe
from stringline.encoders.positions.coordinates import Coordinates
from stringline.encoders.positions.encoding import EncodingRecipe
from stringline.encoders.rgbd import RgbdTokens, Tokens
from stringline.encoders.vit import VisionTransformer
from stringline.policies.normaliser import MinMaxNormaliser, NormaliserRecipe


@dataclass(frozen=True)
class Memory:
    """Tokens that a denoiser attends to.

    Attributes:
        tokens: (B, N, dim). They depend on places only by differences: a shift common to everything changes none of them.
        present: (B, N) bool, False for tokens of cameras that an example lacks, which mean nothing; None: all are there.
    """

    tokens: Tensor
    present: Tensor | None = None


class ObservationMemory(nn.Module):
    """Fuses pictures and proprioception by attention in which every token stands at its place in the base frame.

    Patches stand where their depth says, each arm's token at its gripper's TCP, where the kinematics says. An arm's token bears
    the joint state of the whole body.
    """

    def __init__(
        self,
        *,
        contract: Contract,
        statistics: Statistics,
        encoding: EncodingRecipe,
        coordinates: Coordinates,
        depth_input: DepthInput | None = None,
        embedding: EmbeddingRecipe = ConvolutionalStem,
        cameras: Sequence[str] | None = None,
        values: bool = True,
        dim: int = 128,
        depth: int = 4,
        heads: int = 4,
        share_layers: bool = True,
        joint_dropout: float = 0.0,
        normalisation: NormaliserRecipe = MinMaxNormaliser,
    ) -> None:
        """Builds the encoder.

        Args:
            contract: Of the observations.
            statistics: For the ranges of the joints.
            encoding: How places enter attention.
            coordinates: What a place is.
            depth_input: What the network sees of depth, besides places; None: nothing.
            embedding: Makes a token of each patch.
            cameras: Names of the cameras to look through; None: all of the contract.
            values: Relative values: places turn the values too.
            dim: Width of the tokens.
            depth: Number of blocks.
            heads: Attention heads; `dim` must divide into heads of even size.
            share_layers: One encoding for all blocks, or one for each.
            joint_dropout: Share of the training examples whose joint state is hidden. In most frames of a demonstration the
                joints give away where the arm is going, and a policy that reads it there does not learn to look.
            normalisation: How joint positions are brought to the range of the network.

        Raises:
            ValueError: A camera does not exist, the contract has no arms or joints, or a size does not divide.
        """
        super().__init__()
        if not contract.arms or not contract.joints:
            raise ValueError("This policy needs joint positions and gripper poses; the contract has no arms or no joints.")
        if dim % (2 * heads):
            raise ValueError(f"dim is {dim} with {heads} heads; allowed: multiples of {2 * heads}.")
        if not 0 <= joint_dropout < 1:
            raise ValueError(f"joint_dropout is {joint_dropout}; allowed: 0 to below 1.")
        names = [camera.name for camera in contract.cameras] if cameras is None else cameras
        self.cameras = tuple(contract.camera(name) for name in names)
        self.arms = contract.arms
        self.dim = dim
        self.joint_range = normalisation(statistics["joints/position"])
        self.tokenise = RgbdTokens(self.cameras, coordinates, dim, depth=depth_input, embedding=embedding)
        self.joint_dropout = joint_dropout
        self.embed_joints = nn.Linear(len(contract.joints), dim)
        self.arm_mark = nn.Parameter(0.02 * torch.randn(len(self.arms), dim))
        self.blocks = VisionTransformer(
            encoding(heads=heads, head_dim=dim // heads, axes=coordinates.axes),
            dim,
            depth,
            values=values,
            share_layers=share_layers,
        )

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that `forward` reads."""
        pictures = [
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
        return [*pictures, "joints/position", *(f"T_base_gripper/{arm}" for arm in self.arms)]

    def forward(self, observation: Mapping[str, Tensor]) -> Memory:
        """Encodes a batch.

        Args:
            observation: The contract's keys with a leading batch axis; at least `keys`. With `present/<camera>` (B,) bool
                examples may lack cameras, see `RgbdTokens`.
        """
        tokens: Tokens = self.tokenise(observation) + self._arm_tokens(observation)
        encoded = self.blocks(tokens.features, tokens.coordinates, tokens.placed, tokens.present)
        fused = self.tokenise.fuse(encoded, others=len(self.arms))
        # Streams stand one after the other with the same presence, then the arms: the last ones are those that remain.
        present = None if tokens.present is None else tokens.present[:, -fused.shape[1] :]
        return Memory(fused, present)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"arm_mark"}

    def _arm_tokens(self, observation: Mapping[str, Tensor]) -> Tokens:
        joints = self.joint_range.normalise(observation["joints/position"].float())
        features = self._hidden(self.embed_joints(joints))[:, None] + self.arm_mark
        positions = torch.stack([observation[f"T_base_gripper/{arm}"][:, :3, 3] for arm in self.arms], dim=1)
        return Tokens(features, *self.tokenise.coordinates.points(positions))

    def _hidden(self, features: Tensor) -> Tensor:
        """Returns joint features (B, dim), in training with those of some examples set to zero."""
        if not self.training or not self.joint_dropout:
            return features
        return features * (torch.rand(len(features), 1, device=features.device) >= self.joint_dropout).to(features.dtype)


class MemoryRecipe(Protocol):
    """Makes the memory of a policy."""

    def __call__(self, *, contract: Contract, statistics: Statistics) -> ObservationMemory:
        """Returns it with its starting parameters."""
        ...
