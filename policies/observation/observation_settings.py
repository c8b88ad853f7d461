"""Settings of observation encoders: the entries of configurations and checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from stringline.datasets.contract.argument_checks import COUNT, SHARE, WHOLE, unknown_name
from stringline.datasets.contract.contract import Camera, Contract
from stringline.encoders.coordinates.coordinates import Coordinates, Frames
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.pretrained.convolutional import ImageNetworkFactory, ResNet
from stringline.encoders.vision.attention import check_heads
from stringline.encoders.vision.patches import (
    ColourOnly,
    ConvolutionalStem,
    DepthInput,
    EmbeddingFactory,
    PatchProjection,
)
from stringline.encoders.vision.rgbd import ImageTokensFactory
from stringline.policies.observation.instruction import InstructionFactory
from stringline.policies.observation.interfaces import ObservationHistory
from stringline.policies.observation.normaliser import MinMaxNormaliser, NormaliserFactory

Joints = Literal["condition", "tokens"]


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """Settings of every observation encoder.

    Attributes:
        cameras: Names of the cameras to read, such as [overhead, wrist_left]; if None, all cameras
            of the data.
        normalisation: Factory of the normaliser of joint positions.
    """

    cameras: Sequence[str] | None = None
    normalisation: NormaliserFactory = MinMaxNormaliser

    def choose(self, contract: Contract) -> tuple[Camera, ...]:
        """Returns the cameras to read."""
        return read_cameras(contract, self.cameras)


def read_cameras(contract: Contract, names: Sequence[str] | None) -> tuple[Camera, ...]:
    """Returns the named cameras of a contract, all by default.

    Raises:
        ValueError: A camera does not exist; the message contains the option.
    """
    if names is None:
        return contract.cameras
    try:
        return tuple(contract.camera(name) for name in names)
    except ValueError as error:
        raise ValueError(
            f"{error} The option policy.observation_encoder.cameras sets the cameras of a policy; "
            "null: all."
        ) from error


@dataclass(frozen=True, kw_only=True)
class ObservationSettings(EncoderSettings):
    """Settings of an `ObservationEncoder`.

    Attributes:
        encoding: Factory of the position encoding.
        coordinates: Coordinates of tokens.
        frames: The frames of metric coordinates; if None, the base frame.
        depth_input: Depth as an input of the network, besides positions; if None, `ColourOnly`.
        embedding: Factory of the patch embedding.
        learned_places: True: a patch is at a learned mean of its cells of 4 pixels, instead of its
            centre; it starts at what is highest in it, see `LearnedPlaces`.
        images: Factory of the tokens of images, such as `PretrainedImages`; if None, `RgbdTokens`
            with `depth_input`, `embedding` and `learned_places`, which other factories ignore.
        values: Relative values: positions rotate values too.
        dim: Width of the tokens, a multiple of 2 * heads.
        depth: Transformer blocks.
        heads: Number of attention heads; `dim` must divide into heads of even size.
        share_layers: One position encoding for all blocks; if False, one per block.
        joints: Where joints are read: `condition` returns positions and velocities beside the
            tokens, for the network of the actions (`ConditioningTokens.state`), `tokens` adds the
            positions to the tokens of the arms. A policy that finds its posture among the tokens of
            the scene looks at the scene later.
        joint_dropout: Share of the training examples whose joint state is hidden. In most frames of
            a demonstration the joints reveal the goal of the motion, and a policy that reads it
            from them does not learn to use images.
        history: The past observations to read; if None, only the present.
        instruction: Factory of the encoder of instructions; if None, the encoder reads no
            instruction.

    Other Args:
        registers: Learned tokens without a position; see `VisionTransformer`.
    """

    encoding: EncodingFactory
    coordinates: Coordinates
    frames: Frames | None = None
    depth_input: DepthInput | None = None
    embedding: EmbeddingFactory = ConvolutionalStem
    learned_places: bool = False
    images: ImageTokensFactory | None = None
    values: bool = True
    dim: int = 128
    depth: int = 4
    heads: int = 4
    share_layers: bool = True
    registers: int = 0
    joints: Joints = "tokens"
    joint_dropout: float = 0.0
    history: ObservationHistory | None = None
    instruction: InstructionFactory | None = None

    def __post_init__(self) -> None:
        COUNT.check(depth=self.depth)
        WHOLE.check(registers=self.registers)
        SHARE.check(joint_dropout=self.joint_dropout)
        if self.joints not in get_args(Joints):
            raise unknown_name("place of joints", str(self.joints), get_args(Joints))
        check_heads(self.dim, self.heads)
        self._check_images()

    def _check_images(self) -> None:
        """Refuses settings of `RgbdTokens` that other image tokens would ignore."""
        if self.images is None:
            return
        if self.depth_input is not None and not isinstance(self.depth_input, ColourOnly):
            raise ValueError(
                f"depth_input is {type(self.depth_input).__name__}, which a pre-trained network "
                f"cannot read; allowed: ColourOnly (depth=colours)."
            )
        if self.learned_places:
            raise ValueError(
                "learned_places is true, which a pre-trained network does not support; allowed: "
                "false."
            )


@dataclass(frozen=True, kw_only=True)
class FeatureMapSettings(EncoderSettings):
    """Settings of a `FeatureMapEncoder`.

    Attributes:
        network: Factory of the network of feature maps.
        shared: One network for all cameras, as in ACT's code; otherwise one per camera.
        dim: Width of the tokens, a multiple of 4.
    """

    network: ImageNetworkFactory = ResNet
    shared: bool = True
    dim: int = 512

    def __post_init__(self) -> None:
        COUNT.check(dim=self.dim)
        if self.dim % 4:
            raise ValueError(f"dim is {self.dim}; allowed: multiples of 4.")


@dataclass(frozen=True, kw_only=True)
class KeypointSettings(EncoderSettings):
    """Settings of a `KeypointEncoder`.

    Attributes:
        network: Factory of the network of feature maps; the softmax needs at least 2 x 2 cells.
        shared: One network for all cameras; otherwise one per camera, as published.
        points: Keypoints per camera.
        features: Numbers per camera, a linear map of its keypoints.
    """

    network: ImageNetworkFactory = ResNet
    shared: bool = False
    points: int = 32
    features: int = 64

    def __post_init__(self) -> None:
        COUNT.check(points=self.points, features=self.features)


@dataclass(frozen=True, kw_only=True)
class PlainVisionSettings(EncoderSettings):
    """Settings of a `PlainVisionEncoder`.

    Attributes:
        encoding: Factory of the encoding of columns and rows, such as `SinusoidalEncoding`.
        grid: Patches per side in training, or [rows, columns]; stringline-train counts those of the
            images.
        embedding: Factory of the patch embedding.
        dim: Width of the tokens, a multiple of 2 * heads.
        depth: Number of blocks.
        heads: Number of attention heads; `dim` must divide into heads of even size.
    """

    encoding: EncodingFactory
    grid: int | Sequence[int] = 8
    embedding: EmbeddingFactory = PatchProjection
    dim: int = 128
    depth: int = 4
    heads: int = 4

    def __post_init__(self) -> None:
        COUNT.check(depth=self.depth)
        check_heads(self.dim, self.heads)
