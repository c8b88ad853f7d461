"""Augmentation of training batches on the device of the model: images, depth and intrinsics.

`datasets/augmentation` is the only folder of `datasets` that imports torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera
from stringline.datasets.contract.distributions import Distribution

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class CameraBatch:
    """The images of one camera in B examples.

    Attributes:
        rgb: (B, H, W, 3) uint8.
        depth: (B, H, W) counts of `depth_unit_m`, 0 = no return; None without depth.
        depth_unit_m: Metres per count.
        intrinsics: (B, 3, 3) pixels; pixel (0, 0) has its centre at (0.5, 0.5). None if unknown.
        segments: (B, H, W) uint8, see `segmentation/<camera>` in the contract. None if unknown.
    """

    rgb: Tensor
    depth: Tensor | None = None
    depth_unit_m: float = 0.001
    intrinsics: Tensor | None = None
    segments: Tensor | None = None


KEYS = {"rgb": "rgb", "depth": "depth", "intrinsics": "intrinsics", "segments": "segmentation"}
"""The kind of key of the contract by attribute of `CameraBatch`."""


class Transform(nn.Module, ABC):
    """A random change of images, drawn independently for each example.

    Attributes:
        reads_segments: Whether segments of the images are needed, as far as they are known.
        moves_pixels: Whether something seen gets another place in the image, or leaves it.
    """

    reads_segments = False
    moves_pixels = False

    @abstractmethod
    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Returns changed images of the same sizes and types; the input stays unchanged.

        Args:
            views: Images of the same B examples by name of the camera.
            generator: Random generator on the device of the images.
        """


class Augmentation(nn.Module):
    """Applies transforms to all cameras of a batch; the other keys stay unchanged."""

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        """Sets the transforms.

        Args:
            transforms: Applied in this order, with new random numbers for each example; models of
                sensors come before changes of their images. Empty: images stay as they are
                recorded.
        """
        super().__init__()
        self.transforms = nn.ModuleList(transforms)

    @property
    def reads_segments(self) -> bool:
        """Whether a transform needs `segmentation/<camera>` in the batch."""
        return any(bool(transform.reads_segments) for transform in self.transforms)

    @property
    def moves_pixels(self) -> bool:
        """Whether a transform moves pixels, so that boxes in the image no longer hold."""
        return any(bool(transform.moves_pixels) for transform in self.transforms)

    def forward(
        self, batch: Batch, cameras: Sequence[Camera], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Returns the augmented batch.

        Args:
            batch: Keys of the contract with a leading batch axis, on one device.
            cameras: Cameras of the contract; those with images in the batch are changed.
            generator: Random generator on the same device.
        """
        views = {
            camera.name: _view(batch, camera) for camera in cameras if f"rgb/{camera.name}" in batch
        }
        for transform in self.transforms:
            views = transform(views, generator)
        changed = dict(batch)
        for name, view in views.items():
            for attribute, kind in KEYS.items():
                if (value := getattr(view, attribute)) is not None:
                    changed[f"{kind}/{name}"] = value
        return changed


def _view(batch: Batch, camera: Camera) -> CameraBatch:
    read = {
        attribute: batch.get(f"{kind}/{camera.name}")
        for attribute, kind in KEYS.items()
        if attribute != "rgb"
    }
    return CameraBatch(rgb=batch[f"rgb/{camera.name}"], depth_unit_m=camera.depth_unit_m, **read)


def uniform(low: float, high: float, count: int, generator: torch.Generator) -> Tensor:
    """Draws uniform float32 numbers (count,) from a range."""
    drawn = torch.rand(count, generator=generator, device=generator.device)
    return low + (high - low) * drawn


def draw(setting: Distribution[float], count: int, generator: torch.Generator) -> Tensor:
    """Draws float32 numbers (count,); a fixed value takes as many random numbers as a range."""
    if setting.between:
        low, high = setting.values
        return uniform(low, high, count, generator)
    values = torch.tensor(setting.values).to(generator.device, non_blocking=True)
    place = uniform(0, len(values), count, generator).long()
    return values[place.clamp(max=len(values) - 1)]
