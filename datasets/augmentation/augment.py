"""Augmentation of batches on the device of the model: images change, and depth and intrinsics with them, for training only.

With the files `augment_*.py` this is the only part of `datasets` that imports torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stringline.datasets.contract.contract import Camera

Batch = Mapping[str, Tensor]
Range = tuple[float, float]


@dataclass(frozen=True)
class CameraBatch:
    """What one camera brought, for B examples.

    Attributes:
        rgb: (B, H, W, 3) uint8.
        depth: (B, H, W) counts of `depth_unit_m`, 0 = no return; None: this camera has none.
        depth_unit_m: Metres per count.
        intrinsics: (B, 3, 3), pixels; pixel (0, 0) has its centre at (0.5, 0.5). None: not known.
    """

    rgb: Tensor
    depth: Tensor | None = None
    depth_unit_m: float = 0.001
    intrinsics: Tensor | None = None


class Transform(nn.Module, ABC):
    """One way to change images, drawn anew for each example."""

    @abstractmethod
    def forward(
        self, views: Mapping[str, CameraBatch], generator: torch.Generator
    ) -> dict[str, CameraBatch]:
        """Changes all cameras of the same B examples.

        Args:
            views: By name of the camera.
            generator: The only source of chance, on the device of the images.

        Returns:
            New images of the same sizes and types; the given ones stay as they are.
        """


class Augmentation(nn.Module):
    """Applies transforms one after the other to all cameras of a batch; everything else in it stays as it is."""

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        """Keeps them.

        Args:
            transforms: In the order in which they happen; a sensor comes before what is done to its
                images.
        """
        super().__init__()
        self.transforms = nn.ModuleList(transforms)

    def forward(
        self, batch: Batch, cameras: Sequence[Camera], generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Augments.

        Args:
            batch: Keys of the contract with a leading batch axis, on one device.
            cameras: Of the contract; those whose images are in the batch are changed.
            generator: On the same device. The same state gives the same images.
        """
        views = {
            camera.name: _view(batch, camera) for camera in cameras if f"rgb/{camera.name}" in batch
        }
        for transform in self.transforms:
            views = transform(views, generator)
        changed = dict(batch)
        for name, view in views.items():
            for kind in ("rgb", "depth", "intrinsics"):
                if (value := getattr(view, kind)) is not None:
                    changed[f"{kind}/{name}"] = value
        return changed


def _view(batch: Batch, camera: Camera) -> CameraBatch:
    read = {kind: batch.get(f"{kind}/{camera.name}") for kind in ("depth", "intrinsics")}
    return CameraBatch(rgb=batch[f"rgb/{camera.name}"], depth_unit_m=camera.depth_unit_m, **read)


def uniform(low_high: Range, count: int, generator: torch.Generator) -> Tensor:
    """Draws (count,) float32 numbers between the ends of a range."""
    drawn = torch.rand(count, generator=generator, device=generator.device)
    return low_high[0] + (low_high[1] - low_high[0]) * drawn


def check_range(name: str, low_high: Sequence[float], lowest: float, highest: float) -> Range:
    """Returns a range of a setting as a pair.

    Raises:
        ValueError: It is no pair in order, or leaves what is allowed.
    """
    pair = tuple(float(end) for end in low_high)
    if len(pair) != 2 or not lowest <= pair[0] <= pair[1] <= highest:
        raise ValueError(
            f"{name} is {list(low_high)}; allowed: [low, high] in order, within {lowest:g} and "
            f"{highest:g}."
        )
    return pair[0], pair[1]
