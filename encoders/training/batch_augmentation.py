"""Augmentation of training batches on the device of the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stringline.datasets.augmentation.augment import Augmentation
from stringline.datasets.contract.contract import Camera
from stringline.encoders.training.checkpoint import build
from stringline.encoders.training.interfaces import Prepare


def build_augmentation(config: Mapping[str, Any] | None) -> Augmentation | None:
    """Builds an augmentation from its configuration; None if it has no transforms.

    Raises:
        ValueError: The configuration describes something else.
    """
    if config is None:
        return None
    built = build(dict(config), nn.Module)
    if not isinstance(built, Augmentation):
        raise ValueError(
            f"augmentation is a {type(built).__name__}; allowed: {Augmentation.__name__}."
        )
    return built if built.transforms else None


def augment_batches(augmentation: Augmentation, cameras: Sequence[Camera]) -> Prepare:
    """Returns the callback that augments the images of cameras in each batch."""

    def prepare(batch: Mapping[str, Tensor], generator: torch.Generator) -> Mapping[str, Tensor]:
        changed: Mapping[str, Tensor] = augmentation(batch, cameras, generator)
        return changed

    return prepare
