"""Tubelets: tokens of clips that span several frames."""

import torch
from torch import Tensor, nn

from stringline.encoders.vision.rgbd import Tokens


class TubeletFusion(nn.Module):
    """Joins the tokens of a patch in consecutive frames by a linear map.

    With linear patch embeddings it is the tubelet embedding of ViViT (Arnab et al., 2021, arXiv
    2103.15691, section 3.2), with a map of the rank of the tokens: the first layer sees motion.

    Attributes:
        count: Tubelets of a clip.
    """

    def __init__(self, dim: int, frames: int, tubelet: int) -> None:
        """Builds the map.

        Args:
            dim: Channels of the tokens.
            frames: Frames of a clip.
            tubelet: Frames of a tubelet; 1: tokens stay as they are.

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
        self.fuse: nn.Module = nn.Linear(tubelet * dim, dim) if tubelet > 1 else nn.Identity()

    def times(self, like: Tensor) -> Tensor:
        """Returns the middles of the tubelets (count,) in frames, of the type of a tensor."""
        first = torch.arange(self.count, dtype=like.dtype, device=like.device) * self._tubelet
        return first + (self._tubelet - 1) / 2

    def forward(self, tokens: Tokens) -> Tokens:
        """Returns tokens (B * T / tubelet, N, dim) of tokens (B * T, N, dim) in order of time.

        Coordinates are the mean of those frames in which the patch has a position.
        """
        if self._tubelet == 1:
            return tokens

        def grouped(each: Tensor) -> Tensor:
            return each.unflatten(0, (-1, self._tubelet))

        known = grouped(tokens.has_position)
        weights = known.to(tokens.coordinates.dtype)[..., None]
        weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1)

        def mean(each: Tensor) -> Tensor:
            return (grouped(each) * weights).sum(dim=1)

        return Tokens(
            self.fuse(grouped(tokens.features).transpose(1, 2).flatten(2)),
            mean(tokens.coordinates),
            known.any(dim=1),
            None if tokens.present is None else grouped(tokens.present).any(dim=1),
            None if tokens.spread is None else mean(tokens.spread),
        )
