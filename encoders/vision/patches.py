"""Patch embeddings: one token per patch of an image."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

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
