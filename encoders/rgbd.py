"""From the pictures of several cameras to one set of tokens with places."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stringline.datasets.contract import Camera
from stringline.datasets.names import unknown_name
from stringline.encoders.geometry import View
from stringline.encoders.positions.coordinates import Coordinates
from stringline.encoders.vit import VisionTransformer


@dataclass(frozen=True)
class Tokens:
    """Tokens and where they stand.

    Attributes:
        features: (B, N, dim).
        coordinates: (B, N, axes), in the unit of the chosen coordinates.
        placed: (B, N) bool, False for tokens without a place.
    """

    features: Tensor
    coordinates: Tensor
    placed: Tensor

    def __add__(self, other: "Tokens") -> "Tokens":
        """Returns the tokens of both, these first."""
        return Tokens(
            torch.cat((self.features, other.features.to(self.features.dtype)), dim=1),
            torch.cat((self.coordinates, other.coordinates.to(self.coordinates.dtype)), dim=1),
            torch.cat((self.placed, other.placed), dim=1),
        )


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of each pixel (Liu et al., ConvNeXt, 2022); on a CPU much cheaper than group norm."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns normalised feature maps (B, C, H, W), fastest when the channels lie last in memory."""
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class PatchEmbedding(nn.Module):
    """A convolutional stem: one token per patch of 16 pixels a side, each seeing a margin of 5 pixels around its patch.

    A stem of convolutions trains more easily than one large-stride projection (Xiao et al., 2021, arXiv 2106.14881).
    """

    patch = 16

    def __init__(self, dim: int, *, channels: int = 3, width: int = 32) -> None:
        """Makes the layers.

        Args:
            dim: Channels of the tokens.
            channels: 3 for pictures, 4 with depth.
            width: Channels after the first convolution; half of them take about two thirds of the time.
        """
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=6, stride=4, padding=1),
            ChannelNorm(width),
            nn.GELU(),
            nn.Conv2d(width, 2 * width, kernel_size=4, stride=2, padding=1),
            ChannelNorm(2 * width),
            nn.GELU(),
            nn.Conv2d(2 * width, dim, kernel_size=2, stride=2),
        )
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pictures: Tensor) -> Tensor:
        """Returns tokens (B, N, dim), row by row, of pictures (B, H, W, channels) with values around -2 ... 2.

        Raises:
            ValueError: H or W is no multiple of 16.
        """
        if pictures.ndim != 4 or pictures.shape[1] % self.patch or pictures.shape[2] % self.patch:
            raise ValueError(
                f"Pictures have shape {tuple(pictures.shape)}; allowed: (B, H, W, C), H and W multiples of {self.patch}."
            )
        features: Tensor = self.stem(pictures.permute(0, 3, 1, 2))  # The same memory, seen as channels last.
        return features.flatten(2).transpose(1, 2)


class RgbdTokens(nn.Module):
    """Turns one observation's cameras into tokens with places."""

    def __init__(
        self,
        cameras: Sequence[Camera],
        coordinates: Coordinates,
        dim: int = 128,
        *,
        depth_channel: bool = False,
        width: int = 32,
    ) -> None:
        """Makes the embedding.

        Args:
            cameras: Those to look through, in this order.
            coordinates: What a place is.
            dim: Channels of the tokens.
            depth_channel: Whether the network also sees depth as a fourth channel; places come from depth either way.
            width: Of the stem.

        Raises:
            ValueError: A camera's size is no multiple of the patch, or its pictures are distorted.
        """
        super().__init__()
        for camera in cameras:
            if camera.height % PatchEmbedding.patch or camera.width % PatchEmbedding.patch:
                got = f"{camera.height}x{camera.width}"
                raise ValueError(f"Camera {camera.name!r} has {got} pixels; allowed: multiples of {PatchEmbedding.patch}.")
            if camera.has_geometry and camera.distortion_model != "none":
                got = f"{camera.distortion_model!r} distortion"
                raise ValueError(f"Camera {camera.name!r} has {got}; undistort its pictures first.")
        self.cameras, self.coordinates, self.depth_channel = tuple(cameras), coordinates, depth_channel
        self.embedding = PatchEmbedding(dim, channels=4 if depth_channel else 3, width=width)
        self.camera_mark = nn.Parameter(0.02 * torch.randn(len(self.cameras), dim, generator=torch.Generator().manual_seed(0)))

    def forward(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Embeds.

        Args:
            observation: Keys of the contract (`rgb/<camera>`, `depth/<camera>`, `intrinsics/<camera>`,
                `T_base_camera/<camera>`), each with a leading batch axis.

        Returns:
            The tokens of all cameras, camera by camera.
        """
        tokens = [self._camera(observation, camera, mark) for camera, mark in zip(self.cameras, self.camera_mark, strict=True)]
        return Tokens(
            torch.cat([each.features for each in tokens], dim=1),
            torch.cat([each.coordinates for each in tokens], dim=1),
            torch.cat([each.placed for each in tokens], dim=1),
        )

    def no_weight_decay(self) -> set[str]:
        """Returns the names of the parameters that weight decay would falsify."""
        return {"camera_mark"}

    def _camera(self, observation: Mapping[str, Tensor], camera: Camera, mark: Tensor) -> Tokens:
        if f"rgb/{camera.name}" not in observation:
            raise unknown_name("observation key", f"rgb/{camera.name}", observation)
        pictures = observation[f"rgb/{camera.name}"]
        view = View(
            height=camera.height,
            width=camera.width,
            depth=observation.get(f"depth/{camera.name}"),
            depth_unit_m=camera.depth_unit_m,
            intrinsics=observation.get(f"intrinsics/{camera.name}"),
            T_base_camera=observation.get(f"T_base_camera/{camera.name}"),
        )
        features = self.embedding(self._channels(pictures, view)) + mark
        coordinates, placed = self.coordinates.patches(view, PatchEmbedding.patch, len(pictures), pictures.device)
        return Tokens(features, coordinates, placed)

    def _channels(self, pictures: Tensor, view: View) -> Tensor:
        """Returns (B, H, W, 3 | 4): colours from 0 ... 255 to -2 ... 2, metres of depth as they are, 0 for none."""
        colours = pictures.to(_activation_type(self.camera_mark)) * (1 / 64) - 2  # Eight bits: exact in bfloat16.
        if not self.depth_channel:
            return colours
        depth = colours.new_zeros(pictures.shape[:3])
        if view.depth is not None:
            depth = (view.depth.float() * view.depth_unit_m).to(colours)
        return torch.cat((colours, depth.unsqueeze(-1)), dim=-1)


class RgbdVisionTransformer(nn.Module):
    """Tokens of all cameras through one vision transformer: `tokenise` and `blocks` may also be used apart, to add tokens."""

    def __init__(self, tokenise: RgbdTokens, blocks: VisionTransformer) -> None:
        """Keeps both parts."""
        super().__init__()
        self.tokenise, self.blocks = tokenise, blocks

    def forward(self, observation: Mapping[str, Tensor]) -> Tokens:
        """Returns encoded tokens and their places for a batched observation of the contract's keys."""
        tokens: Tokens = self.tokenise(observation)
        return Tokens(self.blocks(tokens.features, tokens.coordinates, tokens.placed), tokens.coordinates, tokens.placed)


def _activation_type(parameter: Tensor) -> torch.dtype:
    kind = parameter.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else parameter.dtype
