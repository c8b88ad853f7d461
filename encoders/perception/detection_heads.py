"""Heads of a detector, one prediction per patch: names by texts, and boxes."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from stringline.encoders.perception.box_numbers import NUMBERS, numbers_from_boxes

_CLASS_STD = 1e-3  # Square root of OWL-ViT's variance of W, 1e-6.
_PRIOR = 0.01  # Initial probability of each name (Lin et al., 2017, section 4.1).


class ClassHead(nn.Module):
    """Logits of texts for each patch, as in OWL-ViT (Minderer et al., 2022, arXiv 2205.06230).

    z = (normalise(W x) . normalise(text) + shift(x)) (elu(scale(x)) + 1).
    """

    def __init__(self, dim: int, text_dim: int) -> None:
        """Builds the maps of patches with `dim` channels to texts with `text_dim`."""
        super().__init__()
        self.project = nn.Linear(dim, text_dim)
        nn.init.normal_(self.project.weight, std=_CLASS_STD)
        self.shift = nn.Linear(dim, 1)
        self.scale = nn.Linear(dim, 1)
        for layer in (self.shift, self.scale):
            nn.init.zeros_(layer.weight)
        for layer in (self.project, self.shift, self.scale):
            nn.init.zeros_(layer.bias)
        # Otherwise the loss of the many absent names would govern the first steps.
        nn.init.constant_(self.shift.bias, math.log(_PRIOR / (1 - _PRIOR)))

    def forward(self, patches: Tensor, texts: Tensor) -> Tensor:
        """Returns logits (B, N, Q) of patches (B, N, dim) for texts (Q, text_dim)."""
        found = functional.normalize(self.project(patches).float(), dim=-1)
        wanted = functional.normalize(texts.float(), dim=-1)
        scale = functional.elu(self.scale(patches).float()) + 1
        logits: Tensor = (found @ wanted.T + self.shift(patches).float()) * scale
        return logits


class BoxHead(nn.Module):
    """A perceptron of three layers with GELU after the first two; the last one starts at zero."""

    def __init__(self, dim: int, numbers: int) -> None:
        """Builds the layers of patches with `dim` channels to `numbers` per box."""
        super().__init__()
        last = nn.Linear(dim, numbers)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU(), last
        )

    def forward(self, patches: Tensor) -> Tensor:
        """Returns (B, N, numbers) of patches (B, N, dim), in float32."""
        found: Tensor = self.layers(patches)
        return found.float()


def typical_box(side_m: float) -> Tensor:
    """Returns the numbers (12,) of a cube at the origin with the axes of the frame."""
    side = torch.full((3,), side_m)
    made = numbers_from_boxes(torch.zeros(3), torch.eye(3), side)
    assert made.shape == (NUMBERS,)
    return made


def image_bias(height: int, width: int, patch: int) -> Tensor:
    """Returns the logits (N, 4) of boxes cx, cy, w, h of one patch each, in shares of the image.

    OWL-ViT's bias is the lower right corner of the patch; this one is its centre.
    """
    rows = height // patch
    columns = width // patch
    y = (torch.arange(rows) + 0.5) / rows
    x = (torch.arange(columns) + 0.5) / columns
    centres = torch.stack((x.repeat(rows), y.repeat_interleave(columns)), dim=-1)
    sizes = torch.tensor([1 / columns, 1 / rows]).expand(len(centres), -1)
    # A single patch would have an infinite logit.
    return torch.logit(torch.cat((centres, sizes), dim=-1), eps=1e-3)
