"""Observation encoders without positions, for comparison: colour images and joints only.

They replace `ObservationEncoder` in any policy.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.coordinates.coordinates import GridPlaces
from stringline.encoders.pretrained.convolutional import ImageNetwork, ImageNetworkFactory
from stringline.encoders.vision.rgbd import (
    RgbdTokens,
    Tokens,
    camera_view,
    joined_presence,
    presence,
    read_key,
)
from stringline.encoders.vision.vit import VisionTransformer
from stringline.policies.networks.inputs import image_positions
from stringline.policies.observation.interfaces import (
    ConditioningTokens,
    Instruction,
    ObservationHistory,
)
from stringline.policies.observation.observation_settings import (
    EncoderSettings,
    FeatureMapSettings,
    KeypointSettings,
    PlainVisionSettings,
)


class ImageObservationEncoder(nn.Module, ABC):
    """The base of these encoders: their cameras and the normaliser of the joints.

    Attributes:
        cameras: The cameras, without depth and geometry, which are not needed.
        dim: Width of the tokens.
    """

    dim: int
    history: ObservationHistory | None = None
    instruction: Instruction | None = None

    def __init__(
        self, settings: EncoderSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Selects the cameras and normalises by the statistics of the joints."""
        super().__init__()
        chosen = settings.choose(contract)
        if not chosen or not contract.joints:
            raise ValueError(
                "This observation encoder needs images and joint positions; the contract has no "
                "cameras or no joints."
            )
        self.cameras = tuple(_colours_only(camera) for camera in chosen)
        self.joint_range = settings.normalisation(statistics["joints/position"])

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that `forward` reads."""
        return [*(f"rgb/{camera.name}" for camera in self.cameras), "joints/position"]

    @property
    def past_keys(self) -> list[str]:
        """Empty: only the present is read."""
        return []

    @abstractmethod
    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch.

        Args:
            observation: At least `keys`, with a leading batch axis. `present/<camera>` (B,) bool
                marks examples that have a camera; the images of others have no effect.
        """

    def joints(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the normalised joint positions, (B, J)."""
        return self.joint_range.normalise(read_key(observation, "joints/position").float())


class FeatureMapEncoder(ImageObservationEncoder):
    """A token per cell of each camera's feature map and one of the joints, as in ACT.

    Zhao et al., ACT, RSS 2023 (arXiv 2304.13705), section IV-C. Two departures: positions are added
    to the tokens once, not to queries and keys in every layer, so that any policy can use this
    encoder; and cameras have a learned mark, initially zero.
    """

    def __init__(
        self, settings: FeatureMapSettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        self.dim = settings.dim
        self.networks, width = _networks(
            settings.network, len(self.cameras), shared=settings.shared
        )
        self.project = nn.Conv2d(width, self.dim, kernel_size=1)
        self.camera_mark = nn.Parameter(torch.zeros(len(self.cameras), self.dim))
        self.embed_joints = nn.Linear(len(contract.joints), self.dim)

    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch; the tokens of the cameras in turn, then that of the joints."""
        parts = [self._camera(observation, number) for number in range(len(self.cameras))]
        parts.append((self.embed_joints(self.joints(observation))[:, None], None))
        tokens = torch.cat([features for features, _ in parts], dim=1)
        return ConditioningTokens(tokens, joined_presence(parts))

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"camera_mark"}

    def _camera(
        self, observation: Mapping[str, Tensor], number: int
    ) -> tuple[Tensor, Tensor | None]:
        """Returns a camera's tokens (B, N, dim), and their presence (B, N) bool (if None, all)."""
        camera = self.cameras[number]
        images, _ = camera_view(observation, camera, ())
        maps = self.project(self.networks[number % len(self.networks)](images))
        rows, columns = maps.shape[2:]
        positions = image_positions(rows, columns, self.dim, maps.device).flatten(0, 1)
        tokens = maps.flatten(2).mT + positions + self.camera_mark[number]
        everywhere = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        return tokens, presence(observation, camera, everywhere)[1]


class KeypointEncoder(ImageObservationEncoder):
    """One token of image keypoints of all cameras and the joints, as in diffusion policy's U-Net.

    Chi et al., Diffusion Policy, RSS 2023, section III-B: for each camera a ResNet, a spatial
    softmax (Finn et al., ICRA 2016, equation 2) with 32 points and a linear map to 64 numbers, as
    its code takes them from robomimic; of one observation instead of two.
    """

    def __init__(
        self, settings: KeypointSettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        points = settings.points
        features = settings.features
        self.networks, width = _networks(
            settings.network, len(self.cameras), shared=settings.shared
        )
        self.locate = nn.ModuleList(nn.Conv2d(width, points, kernel_size=1) for _ in self.cameras)
        self.project = nn.ModuleList(nn.Linear(2 * points, features) for _ in self.cameras)
        self.dim = features * len(self.cameras) + len(contract.joints)

    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch; the numbers of absent cameras are 0."""
        parts = [self._camera(observation, number) for number in range(len(self.cameras))]
        return ConditioningTokens(torch.cat([*parts, self.joints(observation)], dim=-1)[:, None])

    def _camera(self, observation: Mapping[str, Tensor], number: int) -> Tensor:
        camera = self.cameras[number]
        images, _ = camera_view(observation, camera, ())
        maps: Tensor = self.locate[number](self.networks[number % len(self.networks)](images))
        found: Tensor = self.project[number](spatial_softmax(maps))
        present = observation.get(f"present/{camera.name}")
        return found if present is None else torch.where(present[:, None], found, 0.0)


class PlainVisionEncoder(ImageObservationEncoder):
    """Patches of all cameras and the joints through a plain vision transformer.

    Dosovitskiy et al., ViT, 2021. Positions are the column and row of a patch only. The tokens of
    all cameras attend to each other, as in `ObservationEncoder`.
    """

    def __init__(
        self, settings: PlainVisionSettings, contract: Contract, statistics: Statistics
    ) -> None:
        super().__init__(settings, contract, statistics)
        dim = settings.dim
        heads = settings.heads
        self.dim = dim
        self.tokenise = RgbdTokens(
            self.cameras, GridPlaces(settings.grid), dim, embedding=settings.embedding
        )
        self.embed_joints = nn.Linear(len(contract.joints), dim)
        places = settings.encoding(heads=heads, head_dim=dim // heads, axes=2)
        self.blocks = VisionTransformer(places, dim, settings.depth, values=False)

    def forward(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch; the tokens of the cameras in turn, then that of the joints."""
        joints = self.embed_joints(self.joints(observation))[:, None]
        no_position = torch.zeros(len(joints), 1, 2, device=joints.device)
        tokens: Tokens = self.tokenise(observation)
        tokens = tokens + Tokens(
            joints,
            no_position,
            torch.zeros(no_position.shape[:2], dtype=torch.bool, device=joints.device),
        )
        encoded: Tensor = self.blocks(
            tokens.features, tokens.coordinates, tokens.has_position, tokens.present
        )
        return ConditioningTokens(encoded, tokens.present)


def spatial_softmax(maps: Tensor) -> Tensor:
    """Returns the mean position of the softmax of each channel of maps (B, C, rows, columns).

    The result is (B, 2 C): columns, then rows, -1 to 1.
    """
    rows, columns = maps.shape[2:]
    kind = torch.promote_types(maps.dtype, torch.float32)
    weights = torch.softmax(maps.to(kind).flatten(2), dim=-1).reshape(maps.shape)
    right = torch.linspace(-1, 1, columns, device=maps.device, dtype=kind)
    down = torch.linspace(-1, 1, rows, device=maps.device, dtype=kind)
    return torch.cat(
        ((weights.sum(dim=2) * right).sum(dim=-1), (weights.sum(dim=3) * down).sum(dim=-1)), dim=-1
    )


def _networks(
    factory: ImageNetworkFactory, cameras: int, *, shared: bool
) -> tuple[nn.ModuleList, int]:
    """Returns one network per camera, or one for all, and the width of their feature maps."""
    made: list[ImageNetwork] = [factory() for _ in range(1 if shared else cameras)]
    return nn.ModuleList(cast(nn.Module, network) for network in made), made[0].dim


def _colours_only(camera: Camera) -> Camera:
    return Camera(camera.name, camera.height, camera.width, has_geometry=False)
