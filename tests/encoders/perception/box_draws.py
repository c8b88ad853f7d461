"""Random boxes for tests."""

import numpy as np
import torch

from stringline.datasets.images.labelled_image import Box3d
from stringline.encoders.perception.detection_losses import Boxes


def rotations(count: int, random: np.random.Generator) -> np.ndarray:
    """Returns rotations (count, 3, 3), uniformly distributed."""
    q, r = np.linalg.qr(random.normal(size=(count, 3, 3)))
    q *= np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None]
    q[:, :, 0] *= np.linalg.det(q)[:, None]
    return q


def boxes(count: int, seed: int = 0) -> list[Box3d]:
    """Returns boxes of 10 cm to 2 m around the origin."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(count, 3))
    sizes = random.uniform(0.1, 2.0, (count, 3))
    draws = zip(centres, rotations(count, random), sizes, strict=True)
    return [Box3d(*one) for one in draws]


def as_tensors(found: list[Box3d]) -> Boxes:
    """Returns boxes as one batch in float64."""
    parts = ("centre", "rotation", "size")
    return Boxes(
        *(torch.as_tensor(np.stack([getattr(one, part) for one in found])) for part in parts)
    )
