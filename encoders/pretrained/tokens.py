"""From the pictures of several cameras, through a pre-trained vision transformer, to one set of tokens with places."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from stringline.datasets.contract import Camera
from stringline.datasets.names import unknown_name
from stringline.encoders.geometry import View
from stringline.encoders.positions.coordinates import Coordinates
from stringline.encoders.pretrained.vision_transformer import PretrainedVisionTransformer
from stringline.encoders.rgbd import Tokens


class PretrainedTokens(nn.Module):
    """Turns one observation's cameras into tokens with places, as `RgbdTokens` does, each picture encoded by itself."""

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
            coordinates: What a place is for those who read the tokens; None: what it is in the network.

        Raises:
            ValueError: A camera's size is no multiple of the patch, or its pictures are distorted.
        """
        super().__init__()
        for camera in cameras:
            if camera.height % encode.patch or camera.width % encode.patch:
                got = f"{camera.height}x{camera.width}"
                raise ValueError(f"Camera {camera.name!r} has {got} pixels; allowed: multiples of {encode.patch}.")
            if camera.has_geometry and camera.distortion_model != "none":
                got = f"{camera.distortion_model!r} distortion"
                raise ValueError(f"Camera {camera.name!r} has {got}; undistort its pictures first.")
        self.cameras, self.encode = tuple(cameras), encode
        self.coordinates = encode.coordinates if coordinates is None else coordinates
        self.project = nn.Identity() if dim is None else nn.Linear(encode.dim, dim)
        self.camera_mark = nn.Parameter(torch.zeros(len(self.cameras), encode.dim if dim is None else dim))

    def forward(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Encodes.

        Args:
            observation: Keys of the contract (`rgb/<camera>`, and as far as the coordinates read them `depth/<camera>`,
                `intrinsics/<camera>`, `T_base_camera/<camera>`), each with a leading batch axis.

        Returns:
            The tokens of all cameras, camera by camera: CLS and registers, which have no place, then the patches.

        Raises:
            ValueError: A key is missing, or what it holds has no meaning; see `View`.
        """
        parts = [self._camera(observation, camera, mark) for camera, mark in zip(self.cameras, self.camera_mark, strict=True)]
        return Tokens(
            torch.cat([each.features for each in parts], dim=1),
            torch.cat([each.coordinates for each in parts], dim=1),
            torch.cat([each.placed for each in parts], dim=1),
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"camera_mark"}

    def _camera(self, observation: Mapping[str, Tensor], camera: Camera, mark: Tensor) -> Tokens:
        pictures, view = self._view(observation, camera)
        tokens: Tokens = self.encode(pictures, view)
        features = self.project(tokens.features) + mark
        if self.coordinates is self.encode.coordinates:
            return Tokens(features, tokens.coordinates, tokens.placed)
        coordinates, placed = self.coordinates.patches(view, self.encode.patch, len(pictures), pictures.device)
        prefix = self.encode.prefix
        return Tokens(
            features,
            nn.functional.pad(coordinates, (0, 0, prefix, 0)),
            nn.functional.pad(placed, (prefix, 0), value=False),
        )

    def _view(self, observation: Mapping[str, Tensor], camera: Camera) -> tuple[Tensor, View]:
        """Returns the pictures, and what is known of where they look as far as the coordinates need it."""
        reads = {"rgb"} | ((self.coordinates.reads | self.encode.coordinates.reads) if camera.depth is not None else set())
        reads -= set() if camera.has_geometry else {"intrinsics", "T_base_camera"}
        for kind in sorted(reads):
            if f"{kind}/{camera.name}" not in observation:
                raise unknown_name("observation key", f"{kind}/{camera.name}", observation)
        found = {kind: observation[f"{kind}/{camera.name}"] for kind in reads}
        pictures = found["rgb"]
        if pictures.ndim != 4:
            raise ValueError(f"rgb/{camera.name} has shape {tuple(pictures.shape)}; allowed: (B, H, W, 3).")
        return pictures, View(
            height=pictures.shape[1],
            width=pictures.shape[2],
            depth=found.get("depth"),
            depth_unit_m=camera.depth_unit_m,
            intrinsics=found.get("intrinsics"),
            T_base_camera=found.get("T_base_camera"),
        )
