"""From the images of several cameras, through a pre-trained vision transformer, to one set of tokens with places."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera
from stringline.encoders.coordinates.coordinates import Coordinates
from stringline.encoders.pretrained.vision_transformer import PretrainedVisionTransformer
from stringline.encoders.vision.camera_views import camera_view, check_camera, presence
from stringline.encoders.vision.rgbd import Tokens, joined_presence


class PretrainedTokens(nn.Module):
    """Turns one observation's cameras into tokens with places, as `RgbdTokens` does, each image encoded by itself."""

    def __init__(
        self,
        cameras: Sequence[Camera],
        encode: PretrainedVisionTransformer,
        dim: int | None = None,
        *,
        coordinates: Coordinates | None = None,
    ) -> None:
        """Makes the projection.

        Args:
            cameras: Those to look through, in this order; the network is the same for all.
            encode: The network.
            dim: Channels of the tokens, by a linear map; None: those of the network, unchanged.
            coordinates: What a place is for those who read the tokens; None: what it is in the
                network.

        Raises:
            ValueError: A camera's size is no multiple of the patch, or its images are distorted.
        """
        super().__init__()
        for camera in cameras:
            check_camera(camera, encode.patch)
        self.cameras = tuple(cameras)
        self.encode = encode
        self.coordinates = encode.coordinates if coordinates is None else coordinates
        self.project = nn.Identity() if dim is None else nn.Linear(encode.dim, dim)
        self.camera_mark = nn.Parameter(
            torch.zeros(len(self.cameras), encode.dim if dim is None else dim)
        )

    def forward(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Encodes.

        Args:
            observation: Keys of the contract (`rgb/<camera>`, and as far as the coordinates read
                them `depth/<camera>`, `intrinsics/<camera>`, `T_base_camera/<camera>`), each with a
                leading batch axis. `present/<camera>` (B,) bool says which examples have a camera;
                without that key all do.

        Returns:
            The tokens of all cameras, camera by camera: CLS and registers, which have no place,
            then the patches.

        Raises:
            ValueError: A key is missing, or what it holds has no meaning; see `View`.
        """
        parts = [
            self._camera(observation, camera, mark)
            for camera, mark in zip(self.cameras, self.camera_mark, strict=True)
        ]
        return Tokens(
            torch.cat([each.features for each in parts], dim=1),
            torch.cat([each.coordinates for each in parts], dim=1),
            torch.cat([each.placed for each in parts], dim=1),
            joined_presence(parts),
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"camera_mark"}

    def _camera(self, observation: Mapping[str, Tensor], camera: Camera, mark: Tensor) -> Tokens:
        images, view = camera_view(
            observation, camera, self.coordinates.reads | self.encode.coordinates.reads
        )
        tokens: Tokens = self.encode(images, view)
        coordinates = tokens.coordinates
        placed = tokens.placed
        if self.coordinates is not self.encode.coordinates:
            coordinates, placed = self.coordinates.patches(
                view, self.encode.patch, len(images), images.device
            )
            coordinates = nn.functional.pad(coordinates, (0, 0, self.encode.prefix, 0))
            placed = nn.functional.pad(placed, (self.encode.prefix, 0), value=False)
        placed, present = presence(observation, camera, placed)
        return Tokens(self.project(tokens.features) + mark, coordinates, placed, present)
