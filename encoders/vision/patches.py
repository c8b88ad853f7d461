"""What a network gets of an image: one token per patch, and depth besides the positions.

The variants in figure 5 of STRING (Schenck et al., 2025, arXiv 2502.02562), and the fourth channel
of its section 4.4.3, are combinations of two objects:

    no depth                        ColourOnly()      GridPlaces
    a fourth channel                DepthChannel()    GridPlaces
    surface normals                 SurfaceNormals()  GridPlaces
    lifting by STRING               ColourOnly()      PatchDepthPlaces, or MetricPlaces
    normals and lifting             SurfaceNormals()  PatchDepthPlaces, or MetricPlaces

`NormalsOnly` is ours.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import COUNT, Range
from stringline.encoders.coordinates.geometry import View, returned, surface_normals

# Layers of the stem before its second convolution.
_FIRST = 3


class PatchEmbedding(nn.Module, ABC):
    """Divides images into square patches of `patch` pixels a side and makes a token of each.

    Attributes:
        patch: Side of a patch, pixels.
        channels: Channels of the images.
        cell: Side of the cells of `with_cells`, pixels; if None, there are none.
        cell_channels: Channels of their features.
    """

    cell: int | None = None
    cell_channels: int = 0

    def __init__(self, patch: int, channels: int) -> None:
        super().__init__()
        if min(patch, channels) < 1:
            raise ValueError(f"patch is {patch} and channels is {channels}; allowed: from 1.")
        self.patch = patch
        self.channels = channels

    def forward(self, images: Tensor) -> Tensor:
        """Returns tokens (B, N, dim), row by row, of images (B, H, W, channels), about -2 ... 2."""
        return self.maps(self._planes(images)).flatten(2).transpose(1, 2)

    def with_cells(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `forward`, and features (B, cell_channels, H / cell, W / cell) of cells."""
        maps, cells = self.maps_and_cells(self._planes(images))
        return maps.flatten(2).transpose(1, 2), cells

    def _planes(self, images: Tensor) -> Tensor:
        """Returns images (B, H, W, channels) as (B, channels, H, W)."""
        fits = images.ndim == 4 and images.shape[3] == self.channels
        if not fits or images.shape[1] % self.patch or images.shape[2] % self.patch:
            allowed = f"(B, H, W, {self.channels}), H and W multiples of {self.patch}"
            raise ValueError(f"Images have shape {tuple(images.shape)}; allowed: {allowed}.")
        # A view in channels-last format, not a copy.
        return images.permute(0, 3, 1, 2)

    @abstractmethod
    def maps(self, images: Tensor) -> Tensor:
        """Returns feature maps (B, dim, H / patch, W / patch) of images (B, channels, H, W)."""

    def maps_and_cells(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `maps`, and features of cells, if there are any; see `with_cells`."""
        raise ValueError(
            f"{type(self).__name__} has no features of cells; allowed: ConvolutionalStem."
        )


EmbeddingFactory = Callable[..., PatchEmbedding]
"""Makes a patch embedding, given `dim` and `channels`, such as a `partial` of `PatchProjection`."""


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of each pixel (Liu et al., ConvNeXt, 2022).

    On a CPU it is much cheaper than a group norm.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Returns normalised feature maps (B, C, H, W), fastest in channels-last format."""
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvolutionalStem(PatchEmbedding):
    """A convolutional stem: one token per patch of 16 pixels, which also sees a margin of 5 pixels.

    With patches of 8 pixels there are four times as many tokens, and no last reduction. It trains
    more easily than one projection of large stride (Xiao et al., 2021, arXiv 2106.14881).
    """

    cell = 4

    def __init__(
        self, dim: int, *, channels: int = 3, width: int = 32, patch: Literal[16, 8] = 16
    ) -> None:
        """Builds the layers.

        Args:
            patch: Side of a patch, pixels: 16 or 8.

        Other Args:
            dim: Channels of the tokens.
            channels: Channels of the images.
            width: Channels after the first convolution; half of them take about two thirds of the
                time.
        """
        super().__init__(patch, channels)
        if patch not in (8, 16):
            raise ValueError(f"patch is {patch}; allowed: 16 and 8.")
        self.cell_channels = width
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, kernel_size=6, stride=4, padding=1),
            ChannelNorm(width),
            nn.GELU(),
            nn.Conv2d(width, 2 * width, kernel_size=4, stride=2, padding=1),
            ChannelNorm(2 * width),
            nn.GELU(),
            nn.Conv2d(2 * width, dim, kernel_size=patch // 8, stride=patch // 8),
        )
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def maps(self, images: Tensor) -> Tensor:
        """Returns feature maps; see `PatchEmbedding.maps`."""
        features: Tensor = self.stem(images)
        return features

    def maps_and_cells(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns feature maps and those of the first convolution; see `PatchEmbedding`."""
        cells: Tensor = self.stem[:_FIRST](images)
        return self.stem[_FIRST:](cells), cells


class PatchProjection(PatchEmbedding):
    """One linear map of the pixels of each patch (Dosovitskiy et al., ViT, 2021, equation 1).

    The map is a convolution, so the patch weights of published vision transformers, (dim, channels,
    patch, patch), are its `projection.weight` unchanged.
    """

    def __init__(self, dim: int, *, patch: int = 16, channels: int = 3) -> None:
        """Builds the layer.

        Args:
            patch: Side of a patch, pixels, such as 14, 16 or 32.

        Other Args:
            dim: Channels of the tokens.
            channels: Channels of the images.
        """
        super().__init__(patch, channels)
        self.projection = nn.Conv2d(channels, dim, kernel_size=patch, stride=patch)

    def maps(self, images: Tensor) -> Tensor:
        """Returns feature maps; see `PatchEmbedding.maps`."""
        features: Tensor = self.projection(images)
        return features


class DepthInput(nn.Module, ABC):
    """Makes the images that enter the patch embedding.

    Attributes:
        channels: Channels of each image.
        streams: Images per camera. All enter the same embedding and give tokens of their own at the
            same positions, which `StreamFusion` joins after the transformer.
        reads: Kinds of keys of the contract that are needed besides `rgb`.
    """

    channels: int = 3
    streams: int = 1
    reads: frozenset[str] = frozenset()

    @abstractmethod
    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns `streams` images (B, H, W, channels) of colours (B, H, W, 3), -2 ... 2.

        The one with the colours, if there is one, is the first.
        """


class ColourOnly(DepthInput):
    """Colours alone; depth may still determine positions."""

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns the colours; see `DepthInput.forward`."""
        return (colours,)


class DepthChannel(DepthInput):
    """Depth in metres as a fourth channel, 0 for pixels without depth."""

    channels = 4
    reads = frozenset({"depth"})

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns colours with depth; see `DepthInput.forward`."""
        if view.depth is None:
            return (nn.functional.pad(colours, (0, 1)),)
        metres = (returned(view.depth) * view.depth_unit_m).to(colours.dtype)
        return (torch.cat((colours, metres.unsqueeze(-1)), dim=-1),)


class SurfaceNormals(DepthInput):
    """Surface normals as a second image beside the colours (STRING, section 4.4.2).

    Both pass through one embedding and one transformer, and are fused afterwards. Components are
    scaled to the range of the colours, -2 ... 2; pixels without a normal, and cameras without depth
    or geometry, are 0.
    """

    streams = 2

    def __init__(
        self, *, base_frame: bool = True, radius_px: int = 1, steepest_deg: float = 80.0
    ) -> None:
        """Sets the parameters of the normals.

        Other Args:
            base_frame: Normals in the base frame of the robot, in which a table looks the same to
                every camera. False: in the camera frame, which rotations of the whole scene about
                an axis of the base do not change.
            radius_px: See `surface_normals`.
            steepest_deg: See `surface_normals`.

        Raises:
            ValueError: An argument is out of range.
        """
        super().__init__()
        if radius_px not in COUNT or steepest_deg not in Range(above=0, below=90):
            raise ValueError(
                f"radius_px is {radius_px} and steepest_deg is {steepest_deg}; allowed: from 1, "
                f"and "
                f"between 0 and 90."
            )
        self.base_frame = base_frame
        self.radius_px = radius_px
        self.steepest_deg = steepest_deg
        self.reads = frozenset(
            {"depth", "intrinsics"} | ({"T_base_camera"} if base_frame else set())
        )

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns colours and normals; see `DepthInput.forward`."""
        normals = self._normals(view)
        return colours, (
            torch.zeros_like(colours) if normals is None else normals.to(colours.dtype)
        )

    def _normals(self, view: View) -> Tensor | None:
        """Returns normals (B, H, W, 3), -2 ... 2; None without depth or geometry."""
        if (
            view.depth is None
            or view.intrinsics is None
            or (self.base_frame and view.T_base_camera is None)
        ):
            return None
        normals = surface_normals(
            view.depth,
            view.depth_unit_m,
            view.intrinsics,
            view.T_base_camera if self.base_frame else None,
            radius_px=self.radius_px,
            steepest_deg=self.steepest_deg,
        )
        return 2 * normals


class NormalsOnly(SurfaceNormals):
    """Surface normals in place of the colours: colours and light have no effect on the network.

    It cannot tell objects of one shape apart. Components are scaled as those of `SurfaceNormals`.
    """

    streams = 1

    def forward(self, colours: Tensor, view: View) -> tuple[Tensor, ...]:
        """Returns the normals; see `DepthInput.forward`.

        Raises:
            ValueError: The camera has no depth or geometry.
        """
        normals = self._normals(view)
        if normals is None:
            raise ValueError(
                f"Camera {view.name or 'without a name'} has no depth or no geometry, and "
                "NormalsOnly reads nothing else; allowed: depth=normals, channel or colours."
            )
        return (normals.to(colours.dtype),)


class StreamFusion(nn.Module):
    """Joins the tokens of several streams at a position by a linear map."""

    def __init__(self, dim: int, streams: int) -> None:
        """Builds the map of `streams` tokens per position, of `dim` channels before and after."""
        super().__init__()
        self.streams = streams
        self.fuse: nn.Module = nn.Linear(streams * dim, dim) if streams > 1 else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        """Returns tokens (B, N, dim) of tokens (B, streams N, dim), stream after stream."""
        if self.streams == 1:
            return features
        batch, tokens, dim = features.shape
        stacked = features.reshape(batch, self.streams, tokens // self.streams, dim)
        fused: Tensor = self.fuse(stacked.transpose(1, 2).flatten(2))
        return fused
