"""The observation encoder of point clouds: tokens of voxels and of the arms, fused by attention.

Where `ObservationEncoder` reads squares of images, this encoder reads voxels of the cloud that all
cameras see together (`datasets/loading/workspace_clouds.py`). The robot is not among them: its
kinematics are known, and each arm has a token at its gripper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, POSITIVE, SHARE, settings_of
from stringline.datasets.contract.contract import NUMBER_KEY, Contract
from stringline.datasets.embodiments.arm_commands import opening_places
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.loading.statistics import GRIPPER_POSITIONS, Statistics
from stringline.datasets.loading.workspace_clouds import (
    PREFIX,
    CloudMaker,
    CloudSettings,
    Workspace,
    removable_embodiment,
)
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.vision.attention import check_heads
from stringline.encoders.vision.point_tokens import (
    PointTokens,
    VoxelSettings,
    VoxelTokens,
    place_features,
)
from stringline.encoders.vision.rgbd import read_key
from stringline.encoders.vision.vit import VisionTransformer
from stringline.policies.networks.inputs import TokenPlaces
from stringline.policies.observation.instruction import InstructionFactory
from stringline.policies.observation.interfaces import (
    ConditioningTokens,
    Instruction,
    ObservationHistory,
)
from stringline.policies.observation.observation_settings import EncoderSettings

PLACE_WAVELENGTHS_M = (0.1, 0.2, 0.4, 0.8, 1.6)
NEAR_M = 0.1
DRAW = f"{PREFIX}draw"


@dataclass(frozen=True, kw_only=True)
class PointSettings(EncoderSettings):
    """Settings of a `PointEncoder`.

    Attributes:
        encoding: Factory of the position encoding.
        values: Relative values: positions rotate values too.
        dim: Width of the tokens, a multiple of 2 * heads.
        depth: Transformer blocks.
        heads: Attention heads; with 96 channels each has 32, which all encodings accept.
        mlp_ratio: Hidden width of the perceptrons, in units of `dim`.
        share_layers: One position encoding for all blocks; if False, one per block.
        place_features: Whether sines and cosines of the places are added to the tokens. They give
            up that only differences of places count.
        gripper_features: Whether tokens know their places in the frames of the grippers, and the
            arms what is near their grippers.
        state_dropout: Share of the training examples whose arms are hidden: posture and opening
            take their mean, with a mark; for policies that generate chunks 0.5.
        clouds: How clouds are made.
        voxels: How clouds are divided into tokens.
        instruction: Factory of the encoder of instructions; if None, it reads none.
    """

    encoding: EncodingFactory
    values: bool = True
    dim: int = 96
    depth: int = 3
    heads: int = 3
    mlp_ratio: float = 2.0
    share_layers: bool = True
    place_features: bool = True
    gripper_features: bool = True
    state_dropout: float = 0.0
    clouds: CloudSettings = field(default_factory=CloudSettings)
    voxels: VoxelSettings = field(default_factory=VoxelSettings)
    instruction: InstructionFactory | None = None

    def __post_init__(self) -> None:
        clouds = settings_of(CloudSettings, self.clouds, "clouds")
        object.__setattr__(self, "clouds", clouds)
        voxels = settings_of(VoxelSettings, self.voxels, "voxels")
        object.__setattr__(self, "voxels", voxels)
        COUNT.check(depth=self.depth)
        POSITIVE.check(mlp_ratio=self.mlp_ratio)
        SHARE.check(state_dropout=self.state_dropout)
        check_heads(self.dim, self.heads)


class PointEncoder(nn.Module):
    """Fuses the cloud of the workspace and the state of the arms by attention.

    The order of the conditioning tokens is: voxels, arms. Voxels are at the mean of their points,
    arms at their grippers, both in metres in the base frame.

    Attributes:
        cameras: The cameras whose depth makes the cloud.
        dim: Width of the tokens.
        arms: The arms of the contract.
        history: If None, only the present is read.
        instruction: Its encoder of instructions; if None, it needs no instruction.
        maker: Makes the clouds of observations that have none yet.
    """

    history: ObservationHistory | None = None

    def __init__(self, settings: PointSettings, contract: Contract, statistics: Statistics) -> None:
        """Builds the encoder.

        Args:
            settings: Settings of the encoder.
            contract: Contract of the observations.
            statistics: Statistics of the gripper positions, and the known instructions.

        Raises:
            ValueError: A camera lacks depth or calibration, there are no arms, or the statistics
                lack the positions of the grippers.
        """
        super().__init__()
        if not contract.arms:
            raise ValueError(
                "policy/observation_encoder=points needs gripper poses; the contract has no arms. "
                "Import the recordings with layout.embodiment=FILE.urdf or NAME, or use "
                "policy/observation_encoder=vit."
            )
        if GRIPPER_POSITIONS not in statistics:
            raise ValueError(
                "policy/observation_encoder=points needs statistics of gripper positions, which "
                f"bound the workspace; got those of {', '.join(statistics)}. Train on recordings "
                "of a robot with known kinematics, or use policy/observation_encoder=vit."
            )
        self.cameras = settings.choose(contract)
        self.arms = contract.arms
        self.dim = settings.dim
        workspace = Workspace.around(statistics[GRIPPER_POSITIONS], settings.clouds)
        self.maker = CloudMaker(
            self.cameras, workspace, removable_embodiment(contract), settings.clouds
        )
        self._embodiment = embodiment_of(contract)
        self._openings_at = opening_places(contract)
        self.voxels = VoxelTokens(settings.dim, workspace.low, workspace.high, settings.voxels)
        self.state_dropout = settings.state_dropout
        self._encoding = settings.encoding
        encoding = settings.encoding(
            heads=settings.heads, head_dim=settings.dim // settings.heads, axes=3
        )
        self._build_state(settings, statistics)
        factory = settings.instruction
        self.instruction: Instruction | None = (
            None if factory is None else factory(dim=settings.dim, known=statistics.instructions)
        )
        self.blocks = VisionTransformer(
            encoding,
            settings.dim,
            settings.depth,
            values=settings.values,
            mlp_ratio=settings.mlp_ratio,
            share_layers=settings.share_layers,
        )

    def _build_state(self, settings: PointSettings, statistics: Statistics) -> None:
        """Builds the embedding of arms and places."""
        dim = settings.dim
        self.arm_mark = nn.Parameter(0.02 * torch.randn(len(self.arms), dim))
        self.embed_state = nn.Linear(9 * len(self.arms), dim)
        self.embed_root = nn.Linear(4, dim)
        waves = torch.tensor(PLACE_WAVELENGTHS_M)
        self.register_buffer("wavelengths", waves, persistent=False)
        self.embed_place = nn.Linear(6 * len(waves), dim) if settings.place_features else None
        self.near = GripperFeatures(dim, len(self.arms)) if settings.gripper_features else None
        middle = torch.tensor(statistics[GRIPPER_POSITIONS].mean).float()
        self.register_buffer("middle", middle, persistent=False)
        embodiment = self._embodiment
        roots = [
            np.eye(4) if embodiment is None else embodiment.chains[number].T_base_root
            for number in range(len(self.arms))
        ]
        self.register_buffer("roots", torch.tensor(np.stack(roots)).float(), persistent=False)

    wavelengths: Tensor
    middle: Tensor
    roots: Tensor

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that `forward` reads."""
        kinds = ("rgb", "depth", "intrinsics", "T_base_camera")
        images = [f"{kind}/{camera.name}" for camera in self.cameras for kind in kinds]
        return [*images, "joints/position", *(f"T_base_gripper/{arm}" for arm in self.arms)]

    @property
    def past_keys(self) -> list[str]:
        """Empty: only the present is read."""
        return []

    def encoding_of_places(
        self, factory: EncodingFactory, *, heads: int, head_dim: int
    ) -> PositionEncoding:
        """Returns a new encoding of the coordinates of its tokens; see `EncoderOfPlaces`."""
        return factory(heads=heads, head_dim=head_dim, axes=3)

    def with_clouds(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns a batch with `cloud/*`, which are made of its images unless they are there."""
        if f"{PREFIX}points" in observation:
            return dict(observation)
        device = self.arm_mark.device
        plain = {
            key: read_key(observation, key).cpu().numpy()
            for key in self._read_for_clouds(observation)
        }
        made = self.maker.batch(plain)
        return dict(observation) | {
            key: torch.from_numpy(array).to(device) for key, array in made.items()
        }

    def _read_for_clouds(self, observation: Mapping[str, Tensor]) -> list[str]:
        return [key for key in self.keys if not key.startswith("T_base_gripper/")]

    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch.

        Args:
            observation: `T_base_gripper/<arm>` (B, 4, 4) and `joints/position` (B, J), and either
                `cloud/*`, see `with_clouds`, or the images; with an instruction
                `instruction_number` (B,). `T_base_root/<arm>` (B, 4, 4) replaces the poses of the
                arms' roots in scenes that training has moved, `cloud/draw` (B,) is the draw of
                voxels outside of training.
        """
        observation = self.with_clouds(observation)
        voxels = self.voxels(
            observation[f"{PREFIX}points"].to(self.middle.dtype),
            observation[f"{PREFIX}colours"],
            observation[f"{PREFIX}count"],
            observation[f"{PREFIX}support"].to(self.middle.dtype),
            observation.get(DRAW),
        )
        grippers = self._stacked(observation, "T_base_gripper")
        shown = self._shown(grippers)
        place = torch.where(shown[..., None], grippers[..., :3, 3], self.middle)
        arms = self._arms(observation, grippers, shown, place)
        features = voxels.features
        if self.near is not None:
            features, hands = self.near(voxels, grippers, shown)
            arms = arms + hands
        coordinates = torch.cat((voxels.place, place), dim=1)
        tokens = torch.cat((features, arms), dim=1)
        if self.embed_place is not None:
            tokens = tokens + self.embed_place(place_features(coordinates, self.wavelengths))
        present = nn.functional.pad(voxels.present, (0, len(self.arms)), value=True)
        # Nearly always all tokens exist, and attention without a mask is faster.
        known = None if bool(present.all()) else present
        encoded = self.blocks(tokens, coordinates, None, known)
        return ConditioningTokens(
            encoded, known, self._places(coordinates, present, grippers), arms=len(self.arms)
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"arm_mark"}

    def _stacked(self, observation: Mapping[str, Tensor], kind: str) -> Tensor:
        """Returns the poses (B, arms, 4, 4) of a kind of frame of each arm."""
        poses = [read_key(observation, f"{kind}/{arm}") for arm in self.arms]
        return torch.stack(poses, dim=1).to(self.middle.dtype)

    def _shown(self, grippers: Tensor) -> Tensor:
        """Returns the examples whose arms are visible, (B, 1) bool."""
        batch = len(grippers)
        if not self.training or not self.state_dropout:
            return torch.ones(batch, 1, dtype=torch.bool, device=grippers.device)
        return torch.rand(batch, 1, device=grippers.device) >= self.state_dropout

    def _arms(
        self, observation: Mapping[str, Tensor], grippers: Tensor, shown: Tensor, place: Tensor
    ) -> Tensor:
        """Returns a token per arm: posture and opening of its gripper, and where its root is.

        Without place features the root is beside the gripper: only differences of places count.
        """
        visible = shown[..., None].to(grippers.dtype)
        turn = grippers[..., :3, :2].transpose(-1, -2).flatten(-2) * visible
        opening = self._openings(observation) * visible
        mark = visible.expand(-1, len(self.arms), -1)
        state = torch.cat((turn, opening, (opening - 0.17) * 5, mark), dim=-1)
        # Each arm knows the state of all, its own first: who acts next depends on who holds what.
        turns = [state.roll(-number, dims=1) for number in range(len(self.arms))]
        known = torch.stack([turned.flatten(1) for turned in turns], dim=1)
        arms: Tensor = self.arm_mark + self.embed_state(known)
        roots = (
            self._stacked(observation, "T_base_root")
            if f"T_base_root/{self.arms[0]}" in observation
            else self.roots.expand(len(grippers), -1, -1, -1)
        )
        beside = roots[..., :2, 3] - (place[..., :2] if self.embed_place is None else 0.0)
        arms = arms + self.embed_root(torch.cat((beside * 2, roots[..., :2, 0]), -1))
        if self.instruction is not None:
            tokens, known = self.instruction(read_key(observation, NUMBER_KEY))
            arms = arms + tokens * known[..., None].to(tokens.dtype)
        return arms

    def _openings(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the measured openings (B, arms, 1); 1 of arms whose gripper is unknown."""
        joints = read_key(observation, "joints/position").to(self.middle.dtype)
        places = self._openings_at
        columns = [
            joints[:, places[arm]] if arm in places else torch.ones_like(joints[:, 0])
            for arm in self.arms
        ]
        return torch.stack(columns, dim=1)[..., None]

    def _places(self, coordinates: Tensor, present: Tensor, grippers: Tensor) -> TokenPlaces:
        return TokenPlaces(
            coordinates=coordinates,
            has_position=present,
            grippers=grippers[..., :3, 3],
            directions=grippers[..., :3, :3],
        )


class GripperFeatures(nn.Module):
    """What voxels and grippers know of each other: places of voxels in the grippers' frames.

    A voxel gets its places in the frames of all grippers. A gripper gets the maximum over the
    voxels near it of a small network, so that it knows what it holds, and at which angle.
    """

    def __init__(self, dim: int, arms: int) -> None:
        """Builds the layers for tokens of a width and a number of arms."""
        super().__init__()
        self.relative = nn.Linear(arms * 7, dim)
        self.read = nn.Linear(dim + 4, dim)
        self.write = nn.Linear(dim, dim)

    def forward(
        self, voxels: PointTokens, grippers: Tensor, shown: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns features of the voxels (B, N, dim), and additions to the arms (B, arms, dim).

        Args:
            voxels: The voxels.
            grippers: (B, arms, 4, 4) their poses.
            shown: (B, 1) bool, whether they are visible.
        """
        away = voxels.place[:, :, None] - grippers[:, None, :, :3, 3]
        local = torch.einsum("bnai,baij->bnaj", away, grippers[..., :3, :3])
        near = torch.exp(-(local.norm(dim=-1, keepdim=True) / NEAR_M).square())
        near = near * voxels.present[:, :, None, None]
        visible = shown[..., None].to(local.dtype)
        close = local / (NEAR_M / 2) * near
        inputs = torch.cat((close, near, torch.tanh(local / (2 * NEAR_M))), dim=-1)
        features = voxels.features + self.relative(inputs.flatten(2)) * visible
        wide = features[:, :, None].expand(-1, -1, grippers.shape[1], -1)
        seen = nn.functional.gelu(self.read(torch.cat((wide, close, near), dim=-1))) * near
        hands: Tensor = self.write(seen.amax(dim=1)) * visible
        return features, hands
