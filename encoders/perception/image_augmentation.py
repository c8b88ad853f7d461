"""Augmentation of the training batches of networks of perception."""

from collections.abc import Mapping
from typing import Any

from stringline.encoders.perception.perception_network import PerceptionNetwork
from stringline.encoders.training.batch_augmentation import augment_batches, build_augmentation
from stringline.encoders.training.interfaces import Prepare


def image_augmentation(
    config: Mapping[str, Any] | None, network: PerceptionNetwork
) -> Prepare | None:
    """Returns the callback that augments training batches; None without transforms.

    Args:
        config: Configuration of an `Augmentation`; None: no augmentation.
        network: The network that is trained.

    Raises:
        ValueError: The images are clips, whose frames would change independently; a transform
            needs segments, which training batches lack; or pixels move, and boxes or captions would
            no longer hold.
    """
    augmentation = build_augmentation(config)
    if augmentation is None:
        return None
    if network.contract.frames > 1:
        raise ValueError("Clips cannot be augmented; allowed: augmentation=none.")
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
    return augment_batches(augmentation, [network.contract.camera])
