"""Tokens with positions from the images of several cameras, by a pre-trained network."""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Protocol

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.coordinates.geometry import View
from stringline.encoders.coordinates.ray_places import check_prior_depths, patches_with_spread
from stringline.encoders.vision.camera_views import camera_view, check_camera, presence, resized
from stringline.encoders.vision.depth_inputs import StreamFusion
from stringline.encoders.vision.rgbd import Tokens


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
            dim: Channels of the tokens, by a linear map; None: those of the network.
            coordinates: Coordinates of the tokens; None: those of the network.
            size: Pixels a side, or rows and columns, to which images are resized for the network;
                None: as they are.

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
