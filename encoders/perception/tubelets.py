"""Tubelets: tokens of clips that span several frames."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from stringline.encoders.perception.image_contract import CAMERA
from stringline.encoders.vision.patches import EmbeddingFactory
from stringline.encoders.vision.rgbd import Tokens

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
