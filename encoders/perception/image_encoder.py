"""The image encoder of policies for labelled images and clips, without a robot.

Tokens of clips may span several frames (tubelets). The place of each patch in metres is known
whatever the coordinates of the encoding are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, WHOLE
from stringline.encoders.coordinates.coordinates import RAYS, Coordinates
from stringline.encoders.coordinates.geometry import (
    base_rays,
    patch_centres,
    patch_median_depth,
)
from stringline.encoders.perception.image_contract import CAMERA, ImageContract
from stringline.encoders.positions.composite import with_time
from stringline.encoders.positions.encoding import EncodingFactory, PositionEncoding
from stringline.encoders.positions.rotary import NoEncoding
from stringline.encoders.vision.attention import check_heads
from stringline.encoders.vision.patches import ConvolutionalStem, DepthInput, EmbeddingFactory
from stringline.encoders.vision.rgbd import ImageTokens, ImageTokensFactory, RgbdTokens, Tokens
from stringline.encoders.vision.vit import VisionTransformer

_COLOURS = f"rgb/{CAMERA}"


class Tubelets(nn.Module):
    """Divides clips into tubelets: a first image each, and an embedding of the changes after it.

    With linear patches, the sum of both is the tubelet embedding of ViViT (Arnab et al., 2021,
    arXiv 2103.15691, section 3.2), written by differences: W_0 x_0 + sum_i W_i (x_i - x_0).
    Embeddings that are not linear, such as `ConvolutionalStem`, are applied to both apart, which is
    a departure from ViViT.

    Attributes:
        count: Tubelets of a clip.
    """

    def __init__(self, embedding: EmbeddingFactory, dim: int, frames: int, tubelet: int) -> None:
        """Builds the embedding of changes.

        Args:
            embedding: Factory of the patch embedding.
            dim: Channels of the tokens.
            frames: Frames of a clip; 1: images.
            tubelet: Frames of a tubelet; 1: each frame has tokens of its own.

        Raises:
            ValueError: Tubelets do not divide the frames.
        """
        super().__init__()
        if frames % tubelet:
            raise ValueError(
                f"tubelet is {tubelet}; allowed: divisors of {frames}, the frames of a clip."
            )
        self.count = frames // tubelet
        self._tubelet = tubelet
        self.changes = embedding(dim, channels=3 * (tubelet - 1)) if tubelet > 1 else None

    def first(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the first image (B * count, ...) of each tubelet, given clips (B, T, ...)."""
        return {
            key: value[:, :: self._tubelet].flatten(0, 1)
            for key, value in batch.items()
            if key.endswith(f"/{CAMERA}")
        }

    def forward(self, tokens: Tokens, batch: Mapping[str, Tensor]) -> Tokens:
        """Adds the features of the changes in clips (B, T, ...) to those of the first images.

        Args:
            tokens: Tokens (B * count, streams * N, dim) of the first images.
            batch: The clips, or images, of which the tokens stay as they are.
        """
        if self.changes is None:
            return tokens
        features = self.embed(batch[_COLOURS])
        streams = tokens.features.shape[1] // features.shape[1]
        return replace(tokens, features=tokens.features + features.repeat(1, streams, 1))

    def embed(self, rgb: Tensor) -> Tensor:
        """Returns features (B * count, N, dim) of the changes in clips (B, T, H, W, 3) uint8."""
        assert self.changes is not None, "a tubelet of one frame has no changes"
        kind = next(self.changes.parameters()).dtype
        clips = rgb.reshape(-1, self._tubelet, *rgb.shape[2:]).to(kind)
        changes = (clips[:, 1:] - clips[:, :1]) * (1 / 64)
        features: Tensor = self.changes(changes.permute(0, 2, 3, 1, 4).flatten(3))
        return features

    def times(self, like: Tensor) -> Tensor:
        """Returns the middles of the tubelets (count,) in frames, of the type of a tensor."""
        first = torch.arange(self.count, dtype=like.dtype, device=like.device) * self._tubelet
        return first + (self._tubelet - 1) / 2


@dataclass(frozen=True, kw_only=True)
class ImageEncoderSettings:
    """Settings of an `ImageEncoder`; those of `ObservationEncoder` for images.

    Attributes:
        encoding: Factory of the position encoding.
        coordinates: Coordinates of tokens.
        depth_input: Depth as an input of the network, besides positions; if None, `ColourOnly`.
        embedding: Factory of the patch embedding.
        learned_places: If True, a patch is at a learned mean of its cells of 4 pixels; starts at
            what is highest in it.
        images: Factory of the tokens of images, such as `PretrainedImages`; if None, `RgbdTokens`
            with `depth_input`, `embedding` and `learned_places`, which other factories ignore.
        values: Relative values: positions rotate values too.
        dim: Width of the tokens, a multiple of 2 * heads.
        depth: Transformer blocks.
        heads: Attention heads.
        share_layers: One position encoding for all blocks; if False, one per block.
        zero_frequencies: The encoding begins without effect, as in STRING's pre-trained networks;
            for blocks that another run has trained with other positions.
        registers: Learned tokens without a position; the first is CLS.
        frame_wavelengths: Shortest and longest initial wavelength of the encoding in time, in
            frames of a clip.
        tubelet: Consecutive frames of a clip that share each token; above 1, tokens have the
            changes between them.
    """

    encoding: EncodingFactory
    coordinates: Coordinates
    depth_input: DepthInput | None = None
    embedding: EmbeddingFactory = ConvolutionalStem
    learned_places: bool = False
    images: ImageTokensFactory | None = None
    values: bool = True
    dim: int = 128
    depth: int = 4
    heads: int = 4
    share_layers: bool = True
    zero_frequencies: bool = False
    registers: int = 1
    frame_wavelengths: tuple[float, float] = (2.0, 32.0)
    tubelet: int = 1

    def __post_init__(self) -> None:
        COUNT.check(depth=self.depth, tubelet=self.tubelet)
        WHOLE.check(registers=self.registers)
        check_heads(self.dim, self.heads)
        if self.images is not None and self.tubelet > 1:
            raise ValueError(
                f"tubelet is {self.tubelet} with tokens of another network; allowed: 1."
            )


@dataclass(frozen=True)
class EncodedImages:
    """Images as encoded tokens.

    Attributes:
        registers: (B, registers, dim); the first is CLS.
        tokens: The encoded tokens; those of several streams are fused.
    """

    registers: Tensor
    tokens: Tokens


class ImageEncoder(nn.Module):
    """Encodes images or clips with `tokenise` and `blocks`, the parts of `ObservationEncoder`.

    Attributes:
        dim: Width of the tokens.
        contract: What it reads.
        reads_depth: Whether its features or coordinates depend on depth.
    """

    def __init__(self, settings: ImageEncoderSettings, contract: ImageContract) -> None:
        """Builds the encoder.

        Args:
            settings: Settings of the encoder.
            contract: What the images have.

        Raises:
            ValueError: The coordinates need what the images lack, patches do not tile the images,
                tubelets do not divide the frames, or the encoding does not support time.
        """
        super().__init__()
        _check_coordinates(settings.coordinates, contract)
        self.contract = contract
        self.dim = settings.dim
        self.reads_depth = contract.depth and "depth" in _reads(settings)
        self.tokenise = _image_tokens(settings, contract)
        self.tubelets = Tubelets(
            settings.embedding, settings.dim, contract.frames, settings.tubelet
        )
        self.blocks = VisionTransformer(
            _encoding(settings, contract),
            settings.dim,
            settings.depth,
            values=settings.values,
            share_layers=settings.share_layers,
            registers=settings.registers,
        )
        self.zero_frequencies = settings.zero_frequencies
        self.reset_frequencies()

    def reset_frequencies(self) -> None:
        """Sets the encoding to values without effect, if `zero_frequencies` is set.

        Raises:
            ValueError: The encoding has none, or cannot learn from there.
        """
        if not self.zero_frequencies:
            return
        for encoding in self.blocks.encodings:
            if isinstance(encoding, NoEncoding):
                raise ValueError(
                    "zero_frequencies is true without an encoding; allowed: with encodings that "
                    "learn frequencies."
                )
            encoding.zero_()

    def forward(self, batch: Mapping[str, Tensor]) -> EncodedImages:
        """Encodes a batch with the keys of `ImageArrays.observation`, a batch axis in front.

        Images of another size than in the contract are allowed, if all have it.
        """
        tokens = self.tokens(batch)
        registers, features = self.blocks.encode(
            tokens.features,
            tokens.coordinates,
            tokens.has_position,
            tokens.present,
            spread=tokens.spread,
        )
        return EncodedImages(registers, self._fused(replace(tokens, features=features)))

    def tokens(self, batch: Mapping[str, Tensor]) -> Tokens:
        """Returns the tokens of a batch before the blocks; those of clips in order of time."""
        clips = self.contract.frames > 1
        seen = self.tubelets.first(batch) if clips else batch
        tokens = self.tubelets(self.tokenise(seen), batch)
        return _joined(tokens, self.tubelets.times(tokens.coordinates)) if clips else tokens

    def _fused(self, tokens: Tokens) -> Tokens:
        """Joins the streams of each image."""
        streams = self.tokenise.fusion.streams
        if streams == 1:
            return tokens
        frames = self.tubelets.count
        batch, count = tokens.features.shape[:2]
        features = self.tokenise.fusion(
            tokens.features.reshape(batch * frames, count // frames, -1)
        )

        def of_first(each: Tensor) -> Tensor:
            """Returns values (B, N, ...) of the first stream; the others have the same."""
            parts = each.reshape(batch, frames, streams, -1, *each.shape[2:])
            return parts[:, :, 0].flatten(1, 2)

        return Tokens(
            features.reshape(batch, count // streams, -1),
            of_first(tokens.coordinates),
            of_first(tokens.has_position),
            None if tokens.present is None else of_first(tokens.present),
            None if tokens.spread is None else of_first(tokens.spread),
        )


def _joined(tokens: Tokens, times: Tensor) -> Tokens:
    """Joins tokens (B * T, N) to those of clips (B, T * N), with the times (T,) as an axis."""

    def joined(each: Tensor) -> Tensor:
        return each.reshape(-1, len(times) * each.shape[1], *each.shape[2:])

    place = tokens.coordinates
    time = times.repeat(len(place) // len(times))[:, None, None].expand(-1, place.shape[1], 1)
    spread = None if tokens.spread is None else nn.functional.pad(tokens.spread, (0, 1))
    return Tokens(
        joined(tokens.features),
        joined(torch.cat((place, time), dim=-1)),
        joined(tokens.has_position),
        None if tokens.present is None else joined(tokens.present),
        None if spread is None else joined(spread),
    )


ImageEncoderFactory = Callable[..., ImageEncoder]
"""Makes an image encoder, given the `contract` of the images."""


def _reads(settings: ImageEncoderSettings) -> frozenset[str]:
    """Returns the kinds of keys that features or coordinates depend on, besides colours."""
    depth = settings.depth_input
    further = depth.reads if depth and settings.images is None else frozenset()
    return frozenset(settings.coordinates.reads) | further


def _image_tokens(settings: ImageEncoderSettings, contract: ImageContract) -> ImageTokens:
    """Builds the tokens of images."""
    if settings.images is not None:
        return settings.images(
            [contract.camera],
            coordinates=settings.coordinates,
            encoding=settings.encoding,
            dim=settings.dim,
        )
    return RgbdTokens(
        [contract.camera],
        settings.coordinates,
        settings.dim,
        depth=settings.depth_input,
        embedding=settings.embedding,
        learned_places=settings.learned_places,
    )


def _encoding(settings: ImageEncoderSettings, contract: ImageContract) -> PositionEncoding:
    """Returns the encoding of places, and of the time of clips."""
    head_dim = settings.dim // settings.heads
    axes = settings.coordinates.axes
    encoding = settings.encoding(heads=settings.heads, head_dim=head_dim, axes=axes)
    if contract.frames == 1:
        return encoding
    return with_time(encoding, settings.frame_wavelengths)


def _check_coordinates(coordinates: Coordinates, contract: ImageContract) -> None:
    """Refuses coordinates of which no token of these images would have any."""
    needed = coordinates.reads - {RAYS} - ({"depth"} if RAYS in coordinates.reads else set())
    known = {"depth"} if contract.depth else set[str]()
    known |= {"intrinsics", "T_base_camera"} if contract.geometry else set()
    if lacking := sorted(needed - known):
        raise ValueError(
            f"{type(coordinates).__name__} needs {' and '.join(lacking)}, which the images lack; "
            f"allowed for them: coordinates=grid or relative."
        )


_READS = frozenset({"intrinsics", "T_base_camera", RAYS})


def token_places(
    encoder: ImageEncoder, batch: Mapping[str, Tensor], prior_depth_m: float
) -> Tensor:
    """Returns the places (B, N, 3) of the patches in the frame of the contract, float32.

    A patch is on the ray of its centre at the median of its depth, which lies on one of the
    surfaces that it shows. Patches without depth, and all of an encoder that reads no depth, are at
    the prior depth.
    """
    tokenise = encoder.tokenise
    reads = _READS | {"depth"} if encoder.reads_depth else _READS
    _, view = tokenise.view(batch, encoder.contract.camera, reads)
    assert view.intrinsics is not None  # The detector needs the geometry.
    assert view.T_base_camera is not None
    device = view.intrinsics.device
    pixels = patch_centres(view.height, view.width, tokenise.patch, device)
    directions, origin = base_rays(pixels, view.intrinsics.float(), view.T_base_camera.float())
    if view.depth is None:
        return directions * prior_depth_m + origin
    depth, known = patch_median_depth(view.depth, view.depth_unit_m, tokenise.patch)
    z = torch.where(known, depth.float(), prior_depth_m)
    return directions * z.unsqueeze(-1) + origin
