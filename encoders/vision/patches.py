"""From an image to one token per patch."""

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor, nn


class PatchEmbedding(nn.Module, ABC):
    """Cuts images into square patches and makes a token of each.

    Attributes:
        patch: Side of a patch, pixels.
        channels: Channels of the images.
    """

    def __init__(self, patch: int, channels: int) -> None:
        """Remembers the sizes.

        Raises:
            ValueError: A size is not positive.
        """
        super().__init__()
        if min(patch, channels) < 1:
            raise ValueError(f"patch is {patch} and channels is {channels}; allowed: from 1.")
        self.patch = patch
        self.channels = channels

    def forward(self, images: Tensor) -> Tensor:
        """Returns tokens (B, N, dim), row by row, of images (B, H, W, channels) with values around -2 ... 2.

        Raises:
            ValueError: The images have another number of channels, or H or W is no multiple of the
                patch.
        """
        fits = images.ndim == 4 and images.shape[3] == self.channels
        if not fits or images.shape[1] % self.patch or images.shape[2] % self.patch:
            allowed = f"(B, H, W, {self.channels}), H and W multiples of {self.patch}"
            raise ValueError(f"Images have shape {tuple(images.shape)}; allowed: {allowed}.")
        return (
            self.maps(images.permute(0, 3, 1, 2)).flatten(2).transpose(1, 2)
        )  # The same memory, seen as channels last.

    @abstractmethod
    def maps(self, images: Tensor) -> Tensor:
        """Returns feature maps (B, dim, H / patch, W / patch) of images (B, channels, H, W)."""


class EmbeddingFactory(Protocol):
    """Makes a patch embedding, as `functools.partial(PatchProjection, patch=14)` does."""

    def __call__(self, dim: int, *, channels: int) -> PatchEmbedding:
        """Returns it with its starting parameters."""
        ...


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of each pixel (Liu et al., ConvNeXt, 2022); on a CPU much cheaper than group norm."""

    def forward(self, input: Tensor) -> Tensor:
        """Returns normalised feature maps (B, C, H, W), fastest when the channels lie last in memory."""
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvolutionalStem(PatchEmbedding):
    """A convolutional stem: one token per patch of 16 pixels a side, each seeing a margin of 5 pixels around its patch.

    A stem of convolutions trains more easily than one large-stride projection (Xiao et al., 2021,
    arXiv 2106.14881).
    """

    def __init__(self, dim: int, *, channels: int = 3, width: int = 32) -> None:
        """Makes the layers.

        Args:
            dim: Channels of the tokens.
            channels: Of the images.
            width: Channels after the first convolution; half of them take about two thirds of the
                time.
        """
        super().__init__(16, channels)
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

    def maps(self, images: Tensor) -> Tensor:
        """Returns feature maps; see `PatchEmbedding.maps`."""
        features: Tensor = self.stem(images)
        return features


class PatchProjection(PatchEmbedding):
    """One linear map of the pixels of each patch (Dosovitskiy et al., ViT, 2021, equation 1); no token sees beyond its patch.

    The map is written as a convolution, so the patch weights of published vision transformers,
    (dim, channels, patch, patch), are its `projection.weight` as they are.
    """

    def __init__(self, dim: int, *, patch: int = 16, channels: int = 3) -> None:
        """Makes the layer.

        Args:
            dim: Channels of the tokens.
            patch: Side of a patch, pixels, such as 14, 16 or 32.
            channels: Of the images.
        """
        super().__init__(patch, channels)
        self.projection = nn.Conv2d(channels, dim, kernel_size=patch, stride=patch)

    def maps(self, images: Tensor) -> Tensor:
        """Returns feature maps; see `PatchEmbedding.maps`."""
        features: Tensor = self.projection(images)
        return features
