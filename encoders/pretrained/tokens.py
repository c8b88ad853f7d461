"""Tokens with positions from the images of several cameras, by a pre-trained network."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.coordinates.ray_places import patches_with_spread
from stringline.encoders.pretrained.vision_transformer import PretrainedVisionTransformer
from stringline.encoders.vision.camera_views import camera_view, check_camera, presence
from stringline.encoders.vision.rgbd import Tokens


class PretrainedTokens(nn.Module):
    """Converts cameras into tokens with positions like `RgbdTokens`, each image separately."""

    def __init__(
        self,
        cameras: Sequence[Camera],
        encode: PretrainedVisionTransformer,
        dim: int | None = None,
        *,
        coordinates: Coordinates | None = None,
    ) -> None:
        """Builds the projection.

        Args:
            cameras: The cameras to read, in this order; all share the network.
            encode: The network.
            dim: Channels of the tokens, by a linear map; None: those of the network.
            coordinates: Coordinates of the tokens; None: those of the network.
        """
        super().__init__()
        self.coordinates = encode.coordinates if coordinates is None else coordinates
        for camera in cameras:
            check_camera(camera, encode.patch, self.coordinates.reads | encode.coordinates.reads)
        self.cameras = tuple(cameras)
        self.encode = encode
        self.project = nn.Identity() if dim is None else nn.Linear(encode.dim, dim)
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

    def _camera(self, observation: Mapping[str, Tensor], camera: Camera, mark: Tensor) -> Tokens:
        images, view = camera_view(
            observation, camera, self.coordinates.reads | self.encode.coordinates.reads
        )
        tokens: Tokens = self.encode(images, view)
        coordinates = tokens.coordinates
        has_position = tokens.has_position
        spread = tokens.spread
        if self.coordinates is not self.encode.coordinates:
            coordinates, has_position, spread = patches_with_spread(
                self.coordinates, view, self.encode.patch, len(images), images.device
            )
            coordinates = nn.functional.pad(coordinates, (0, 0, self.encode.prefix, 0))
            if spread is not None:
                spread = nn.functional.pad(spread, (0, 0, self.encode.prefix, 0))
            has_position = nn.functional.pad(has_position, (self.encode.prefix, 0), value=False)
        has_position, present = presence(observation, camera, has_position)
        features = self.project(tokens.features) + mark
        return Tokens(features, coordinates, has_position, present, spread)
