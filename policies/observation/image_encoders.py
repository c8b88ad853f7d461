"""Memories without places, for comparison: colours of single images and the joints, nothing of depth or kinematics.

They stand in the place of `ObservationMemory` in any policy.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from stringline.datasets.contract.arguments import COUNT
from stringline.datasets.contract.contract import Camera, Contract
from stringline.datasets.loading.statistics import Statistics
from stringline.encoders.coordinates.coordinates import GridPlaces
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.pretrained.resnet import ImageNetwork, ImageNetworkFactory, ResNet
from stringline.encoders.vision.camera_views import camera_view, presence, read_key
from stringline.encoders.vision.patches import EmbeddingFactory, PatchProjection
from stringline.encoders.vision.rgbd import RgbdTokens, Tokens
from stringline.encoders.vision.vit import VisionTransformer
from stringline.policies.networks.sinusoids import image_positions
from stringline.policies.observation.history import ObservationHistory
from stringline.policies.observation.instruction import Instruction
from stringline.policies.observation.observation_encoder import Memory
from stringline.policies.observation.observation_settings import MemorySettings, check_heads


class ImageMemory(nn.Module, ABC):
    """What these memories share: which cameras they look through, and the range of the joints.

    Attributes:
        cameras: Without depth and geometry, which nobody has to deliver.
        dim: Width of the tokens.
        history: None: the present alone is looked at.
        instruction: None: nothing is asked.
    """

    dim: int
    history: ObservationHistory | None = None
    instruction: Instruction | None = None

    def __init__(
        self, settings: MemorySettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Chooses the cameras.

        Args:
            settings: What is chosen about it.
            contract: Of the observations.
            statistics: For the ranges of the joints.

        Raises:
            ValueError: A camera does not exist, or the contract has no cameras or no joints.
        """
        super().__init__()
        chosen = settings.choose(contract)
        if not chosen or not contract.joints:
            raise ValueError(
                "This memory needs images and joint positions; there are no cameras or no joints."
            )
        self.cameras = tuple(_colours_only(camera) for camera in chosen)
        self.joint_range = settings.normalisation(statistics["joints/position"])

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that `forward` reads."""
        return [*(f"rgb/{camera.name}" for camera in self.cameras), "joints/position"]

    @property
    def past_keys(self) -> list[str]:
        """The keys that it reads of the past: none."""
        return []

    @abstractmethod
    def forward(self, observation: Mapping[str, Tensor]) -> Memory:
        """Encodes a batch.

        Args:
            observation: The contract's keys with a leading batch axis; at least `keys`. With
                `present/<camera>` (B,) bool examples may lack cameras, whose images then have no
                effect.

        Raises:
            ValueError: A key is missing, or images have no three colours.
        """

    def joints(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the joint positions in the range of the network, (B, J)."""
        return self.joint_range.normalise(read_key(observation, "joints/position").float())


@dataclass(frozen=True, kw_only=True)
class FeatureMapSettings(MemorySettings):
    """What is chosen about a `FeatureMapEncoder`.

    Attributes:
        network: Makes a feature map of an image.
        shared: One network for all cameras, as in ACT's code; else each has its own.
        dim: Width of the tokens, a multiple of 4.
    """

    network: ImageNetworkFactory = ResNet
    shared: bool = True
    dim: int = 512

    def __post_init__(self) -> None:
        """Checks the width.

        Raises:
            ValueError: It does not divide.
        """
        COUNT.check(dim=self.dim)
        if self.dim % 4:
            raise ValueError(f"dim is {self.dim}; allowed: multiples of 4.")


class FeatureMapEncoder(ImageMemory):
    """A token for each cell of each camera's feature map, and one of the joints: what ACT's transformer reads.

    Zhao et al., ACT, RSS 2023 (arXiv 2304.13705), section IV-C. Two departures: positions are added
    to the tokens once, not to queries and keys in every layer, so that any policy can use this
    memory; and cameras have a learned mark, zero at first.
    """

    def __init__(
        self, settings: FeatureMapSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the encoder; see `ImageMemory`."""
        super().__init__(settings, contract, statistics)
        self.dim = settings.dim
        self.networks, width = _networks(
            settings.network, len(self.cameras), shared=settings.shared
        )
        self.project = nn.Conv2d(width, self.dim, kernel_size=1)
        self.camera_mark = nn.Parameter(torch.zeros(len(self.cameras), self.dim))
        self.embed_joints = nn.Linear(len(contract.joints), self.dim)

    def forward(self, observation: Mapping[str, Tensor]) -> Memory:
        """Encodes a batch; the tokens of the cameras come one after the other, then that of the joints."""
        parts = [self._camera(observation, number) for number in range(len(self.cameras))]
        joints = self.embed_joints(self.joints(observation))[:, None]
        tokens = torch.cat([*(features for features, _ in parts), joints], dim=1)
        if all(present is None for _, present in parts):
            return Memory(tokens)
        whole = [
            torch.ones(part.shape[:2], dtype=torch.bool, device=part.device) for part, _ in parts
        ]
        found = [
            every if present is None else present
            for every, (_, present) in zip(whole, parts, strict=True)
        ]
        return Memory(tokens, torch.cat([*found, torch.ones_like(found[0][:, :1])], dim=1))

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"camera_mark"}

    def _camera(
        self, observation: Mapping[str, Tensor], number: int
    ) -> tuple[Tensor, Tensor | None]:
        """Returns a camera's tokens (B, N, dim), and which of them are there, (B, N) bool or None for all."""
        camera = self.cameras[number]
        images, _ = camera_view(observation, camera, ())
        maps = self.project(self.networks[number % len(self.networks)](images))
        rows, columns = maps.shape[2:]
        positions = image_positions(rows, columns, self.dim, maps.device).flatten(0, 1)
        tokens = maps.flatten(2).mT + positions + self.camera_mark[number]
        everywhere = torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
        return tokens, presence(observation, camera, everywhere)[1]


@dataclass(frozen=True, kw_only=True)
class KeypointSettings(MemorySettings):
    """What is chosen about a `KeypointEncoder`.

    Attributes:
        network: Makes a feature map of an image; a softmax over less than 2 x 2 cells says nothing.
        shared: One network for all cameras; else each has its own, as published.
        points: Places in the image that are found, per camera.
        features: Numbers per camera.
    """

    network: ImageNetworkFactory = ResNet
    shared: bool = False
    points: int = 32
    features: int = 64

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            ValueError: One is out of its range.
        """
        COUNT.check(points=self.points, features=self.features)


class KeypointEncoder(ImageMemory):
    """One token: where features lie in each camera's image, and the joints; diffusion policy conditions its U-Net with it.

    Chi et al., Diffusion Policy, RSS 2023, section III-B: for each camera a ResNet, a spatial
    softmax (Finn et al., ICRA 2016, equation 2) with 32 points and a linear map to 64 numbers, as
    its code takes them from robomimic. Of one observation, where that looks at two.
    """

    def __init__(
        self, settings: KeypointSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the encoder; see `ImageMemory`."""
        super().__init__(settings, contract, statistics)
        points = settings.points
        features = settings.features
        self.networks, width = _networks(
            settings.network, len(self.cameras), shared=settings.shared
        )
        self.locate = nn.ModuleList(nn.Conv2d(width, points, kernel_size=1) for _ in self.cameras)
        self.project = nn.ModuleList(nn.Linear(2 * points, features) for _ in self.cameras)
        self.dim = features * len(self.cameras) + len(contract.joints)

    def forward(self, observation: Mapping[str, Tensor]) -> Memory:
        """Encodes a batch; in the token the numbers of absent cameras are 0."""
        parts = [self._camera(observation, number) for number in range(len(self.cameras))]
        return Memory(torch.cat([*parts, self.joints(observation)], dim=-1)[:, None])

    def _camera(self, observation: Mapping[str, Tensor], number: int) -> Tensor:
        camera = self.cameras[number]
        images, _ = camera_view(observation, camera, ())
        maps: Tensor = self.locate[number](self.networks[number % len(self.networks)](images))
        found: Tensor = self.project[number](spatial_softmax(maps))
        present = observation.get(f"present/{camera.name}")
        return found if present is None else torch.where(present[:, None], found, 0.0)


@dataclass(frozen=True, kw_only=True)
class PlainVisionSettings(MemorySettings):
    """What is chosen about a `PlainVisionEncoder`.

    Attributes:
        encoding: How columns and rows enter, such as `SinusoidalEncoding`.
        grid: Patches a side at training, or (rows, columns) of them.
        embedding: Makes a token of each patch.
        dim: Width of the tokens.
        depth: Number of blocks.
        heads: Attention heads; `dim` must divide into heads of even size.
    """

    encoding: EncodingFactory
    grid: int | Sequence[int] = 8
    embedding: EmbeddingFactory = PatchProjection
    dim: int = 128
    depth: int = 4
    heads: int = 4

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            ValueError: The width does not divide, or a number is out of its range.
        """
        COUNT.check(depth=self.depth)
        check_heads(self.dim, self.heads)


class PlainVisionEncoder(ImageMemory):
    """Patches of all cameras and the joints through a vision transformer that knows where in its image a patch is, no more.

    Dosovitskiy et al., ViT, 2021. The cameras' tokens attend to each other, as in
    `ObservationMemory`.
    """

    def __init__(
        self, settings: PlainVisionSettings, contract: Contract, statistics: Statistics
    ) -> None:
        """Builds the encoder; see `ImageMemory`."""
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

    def forward(self, observation: Mapping[str, Tensor]) -> Memory:
        """Encodes a batch; the tokens of the cameras come one after the other, then that of the joints, which has no place."""
        joints = self.embed_joints(self.joints(observation))[:, None]
        nowhere = torch.zeros(len(joints), 1, 2, device=joints.device)
        tokens: Tokens = self.tokenise(observation)
        tokens = tokens + Tokens(
            joints, nowhere, torch.zeros(nowhere.shape[:2], dtype=torch.bool, device=joints.device)
        )
        encoded: Tensor = self.blocks(
            tokens.features, tokens.coordinates, tokens.placed, tokens.present
        )
        return Memory(encoded, tokens.present)


def spatial_softmax(maps: Tensor) -> Tensor:
    """Returns the mean place of each channel's softmax, (B, 2 C): columns, then rows, from -1 to 1.

    Args:
        maps: (B, C, rows, columns) logits.
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
    recipe: ImageNetworkFactory, cameras: int, *, shared: bool
) -> tuple[nn.ModuleList, int]:
    """Returns a network for each camera, or one for all of them, and the width of their feature maps."""
    made: list[ImageNetwork] = [recipe() for _ in range(1 if shared else cameras)]
    return nn.ModuleList(cast(nn.Module, network) for network in made), made[0].dim


def _colours_only(camera: Camera) -> Camera:
    return Camera(camera.name, camera.height, camera.width, has_geometry=False)
