"""Augmentation of the training batches of networks of perception."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stringline.encoders.perception.image_contract import CAMERA
from stringline.encoders.perception.perception_network import PerceptionNetwork
from stringline.encoders.training.batch_augmentation import augment_batches, build_augmentation
from stringline.encoders.training.interfaces import Prepare


def image_augmentation(
    config: Mapping[str, Any] | None, network: PerceptionNetwork
) -> Prepare | None:
    """Returns the callback that augments training batches; None without transforms.

    All frames of a clip change alike, so that motions stay; noise is the same in all of them.

    Args:
        config: Configuration of an `Augmentation`; None: no augmentation.
        network: The network that is trained.

    Raises:
        ValueError: A transform needs segments, which training batches lack; or pixels move, and
            boxes or captions would no longer hold.
    """
    augmentation = build_augmentation(config)
    if augmentation is None:
        return None
    if augmentation.reads_segments:
        raise ValueError(
            "The augmentation needs segments, which networks of perception do not read. Allowed: "
            "an augmentation without TextureOverlay, such as augmentation=classify."
        )
    if augmentation.moves_pixels and "labels" not in network.needs:
        raise ValueError(
            f"The augmentation crops images, and the boxes or captions that "
            f"{type(network).__name__} learns from need not hold in a crop. Allowed: an "
            "augmentation without CropAndResize, such as augmentation=light."
        )
    images = augment_batches(augmentation, [network.contract.camera])
    return images if network.contract.frames == 1 else _of_clips(images)


def _of_clips(images: Prepare) -> Prepare:
    """Returns the augmentation of clips: all frames of a clip get the same random numbers."""

    def prepare(batch: Mapping[str, Tensor], generator: torch.Generator) -> Mapping[str, Tensor]:
        seen = {key: value for key, value in batch.items() if key.endswith(f"/{CAMERA}")}
        frames = next(iter(seen.values())).shape[1]
        state = generator.get_state()
        changed: list[Mapping[str, Tensor]] = []
        for frame in range(frames):
            generator.set_state(state)
            changed.append(images({key: value[:, frame] for key, value in seen.items()}, generator))
        together = {key: torch.stack([each[key] for each in changed], dim=1) for key in seen}
        return {**batch, **together}

    return prepare
