"""Tokens with positions from the images of several cameras, by a network of timm.

The network is given by its name: a vision transformer, or a convolutional network whose map of
features becomes tokens.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import (
    Coordinates,
    GridPlaces,
    check_prior_depths,
    patches_with_spread,
)
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.pretrained.convolutional import Norm, PretrainedFeatureMap
from stringline.encoders.pretrained.initial_weights import (
    INSTALLED,
    InitialWeights,
    WeightsFrom,
    check_installed,
)
from stringline.encoders.pretrained.timm_models import TimmModel, timm_model
from stringline.encoders.pretrained.vision_transformer import (
    PretrainedVisionTransformer,
    own_frequencies,
)
from stringline.encoders.vision.patches import StreamFusion
from stringline.encoders.vision.rgbd import Tokens, camera_view, check_camera, presence, resized


class TokenNetwork(Protocol):
    """A network of single images, a `torch.nn.Module`.

    Attributes:
        coordinates: The coordinates of its tokens.
        dim: Channels of its tokens.
        patch: Side of a patch, pixels.
        prefix: Number of tokens before the patches, without a position.
    """

    coordinates: Coordinates
    dim: int
    patch: int
    prefix: int

    def __call__(self, images: Tensor, view: View) -> Tokens:
        """Encodes images (B, H, W, 3), 0 to 255, independently."""
        ...


class PretrainedTokens(nn.Module):
    """Converts cameras into tokens with positions like `RgbdTokens`, each image separately.

    Attributes:
        cameras: The cameras that it reads.
        coordinates: Coordinates of the tokens.
        patch: Side of a patch, pixels of the resized images.
        prefix: Number of tokens of each camera before its patches.
    """

    def __init__(
        self,
        cameras: Sequence[Camera],
        encode: TokenNetwork,
        dim: int | None = None,
        *,
        coordinates: Coordinates | None = None,
        size: int | Sequence[int] | None = None,
    ) -> None:
        """Builds the projection.

        Args:
            cameras: The cameras to read, in this order; all share the network.
            encode: The network.
            dim: Channels of the tokens, by a linear map; if None, those of the network.
            coordinates: Coordinates of the tokens; if None, those of the network.
            size: Pixels a side, or rows and columns, to which images are resized for the network;
                if None, as they are.

        Raises:
            ValueError: A camera does not fit, or patches do not tile the images.
        """
        super().__init__()
        self.coordinates = encode.coordinates if coordinates is None else coordinates
        self.cameras = tuple(cameras)
        self.patch = encode.patch
        self.prefix = encode.prefix
        self.size = None if size is None else rows_and_columns(size, self.patch)
        for camera in self.cameras:
            tiled = self.patch if self.size is None else 1
            check_camera(camera, tiled, self.coordinates.reads | encode.coordinates.reads)
        check_prior_depths(self.coordinates, [camera.name for camera in self.cameras])
        self.encode = encode
        self.project = nn.Identity() if dim is None else nn.Linear(encode.dim, dim)
        self.fusion = StreamFusion(encode.dim if dim is None else dim, 1)
        self.camera_mark = nn.Parameter(
            torch.zeros(len(self.cameras), encode.dim if dim is None else dim)
        )

    def forward(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Encodes a batch of observations, with the keys that `RgbdTokens` reads.

        Returns the tokens of all cameras, camera by camera: CLS and registers, without a position,
        then patches.
        """
        parts = [
            self._camera(observation, camera, mark)
            for camera, mark in zip(self.cameras, self.camera_mark, strict=True)
        ]
        return reduce(add, parts)

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters without weight decay."""
        return {"camera_mark"}

    def view(
        self, observation: Mapping[str, Tensor], camera: Camera, reads: Collection[str]
    ) -> tuple[Tensor, View]:
        """Returns the images of a camera as the network gets them, and their view."""
        seen = camera_view(observation, camera, reads)
        return seen if self.size is None else resized(*seen, self.size)

    def _camera(self, observation: Mapping[str, Tensor], camera: Camera, mark: Tensor) -> Tokens:
        images, view = self.view(
            observation, camera, self.coordinates.reads | self.encode.coordinates.reads
        )
        tokens = self.encode(images, view)
        coordinates = tokens.coordinates
        has_position = tokens.has_position
        spread = tokens.spread
        if self.coordinates is not self.encode.coordinates:
            coordinates, has_position, spread = patches_with_spread(
                self.coordinates, view, self.patch, len(images), images.device
            )
            coordinates = nn.functional.pad(coordinates, (0, 0, self.prefix, 0))
            if spread is not None:
                spread = nn.functional.pad(spread, (0, 0, self.prefix, 0))
            has_position = nn.functional.pad(has_position, (self.prefix, 0), value=False)
        has_position, present = presence(
            observation, camera, has_position, self.coordinates, self.prefix
        )
        features = self.project(tokens.features) + mark
        return Tokens(features, coordinates, has_position, present, spread)


def rows_and_columns(size: int | Sequence[int], patch: int = 1) -> tuple[int, int]:
    """Returns rows and columns of images that patches tile."""
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or any(side < patch or side % patch for side in sides):
        raise ValueError(
            f"size is {size}; allowed: pixels a side, or rows and columns, in multiples of "
            f"{patch}, the patch of the network."
        )
    return sides[0], sides[1]


_TRANSFORMERS = "vit_"


class PretrainedImages(PretrainedTokens):
    """Image tokens of an `ObservationEncoder` by a pre-trained network of timm.

    A vision transformer gets the position encoding of the observation encoder in its attention,
    where it starts at zero frequency, so that the initial outputs are timm's. A transformer that
    rotates by columns and rows itself (DINOv3) continues that. A convolutional network is used up
    to one of its feature maps, whose cells are the tokens.
    """

    def __init__(
        self,
        cameras: Sequence[Camera],
        *,
        coordinates: Coordinates,
        encoding: EncodingFactory,
        dim: int,
        name: str,
        weights: InitialWeights = None,
        size: int | Sequence[int] | None = None,
        stride: int = 16,
        norm: Norm = "frozen",
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Builds the network.

        Args:
            name: Network of timm, such as `vit_base_patch16_siglip_224`, `vit_small_patch16_dinov3`
                or `tf_efficientnet_lite0`.
            weights: A safetensors file with timm's names, or a folder with `model.safetensors`;
                `installed`: those of an installed package; if None, random weights.
            size: Pixels a side of the images for the network, such as 224, or [rows, columns]; if
                None, as they are.
            stride: Pixels per cell of the feature map of a convolutional network.
            norm: In place of batch norms: `group`; or, with weights, `frozen`: their statistics.
                See `PretrainedFeatureMap`.

        Other Args:
            cameras: The cameras to read.
            coordinates: Coordinates of the tokens.
            encoding: Factory of the position encoding in the attention of the network.
            dim: Channels of the tokens, by a linear map.
            options: Arguments of `timm.create_model` that replace the architecture's own.

        Raises:
            ValueError: See `timm_model`, `PretrainedFeatureMap` and `PretrainedTokens`.
        """
        encode: TokenNetwork
        if name.startswith(_TRANSFORMERS):
            images = _common_size(cameras) if size is None else rows_and_columns(size)
            encode = _with_places(
                _transformer(name, weights, options), coordinates, encoding, images
            )
        else:
            encode = PretrainedFeatureMap(
                name, coordinates, stride=stride, norm=norm, weights=weights, options=options
            )
        super().__init__(cameras, encode, dim, coordinates=coordinates, size=size)


def _transformer(
    name: str, weights: InitialWeights, options: Mapping[str, object] | None
) -> TimmModel:
    if weights == INSTALLED:
        check_installed(name)
    file = None if isinstance(weights, WeightsFrom) else weights
    return timm_model(name, weights=file, pretrained=False, options=options)


def _with_places(
    model: TimmModel,
    coordinates: Coordinates,
    encoding: EncodingFactory,
    images: tuple[int, int] | None,
) -> PretrainedVisionTransformer:
    """Inserts the encoding; `images` are the rows and columns of all images, None if they vary."""
    if own_frequencies(model) is None:
        return PretrainedVisionTransformer(model, coordinates, encoding)
    if images is None:
        raise ValueError(
            "The network rotates by columns and rows of one grid, and the cameras have images of "
            "several sizes; set size, so that all are equal."
        )
    patch = model.patch_embed.feat_ratio(as_scalar=False)
    grid = GridPlaces([side // pixels for side, pixels in zip(images, patch, strict=True)])
    return PretrainedVisionTransformer(model, grid)


def _common_size(cameras: Sequence[Camera]) -> tuple[int, int] | None:
    """Returns rows and columns of the images of all cameras; None if they differ."""
    sizes = {(camera.height, camera.width) for camera in cameras}
    return sizes.pop() if len(sizes) == 1 else None
