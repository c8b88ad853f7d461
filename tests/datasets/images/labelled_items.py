"""Labelled images and clips for tests."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stringline import Box3d, LabelledClip, LabelledImage, LabelledObject, Omissions
from stringline.datasets.images.labelled_image import Item
from stringline.datasets.images.reading import ImageReader, read_items

TURN = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])


def labelled_image(height: int = 24, width: int = 32, **changes: object) -> LabelledImage:
    """Returns an image of random pixels with two objects."""
    random = np.random.default_rng(height * 1000 + width)
    fields: dict[str, object] = {
        "rgb": random.integers(0, 256, (height, width, 3), np.uint8),
        "depth": random.integers(0, 5000, (height, width), np.uint16),
        "intrinsics": np.array([[30.5, 0, 16], [0, 30.25, 12], [0, 0, 1]]),
        "T_world_camera": np.eye(4),
        "segments": random.integers(0, 3, (height, width), np.uint16),
        "label": "office",
        "captions": ("a chair beside a café table", "two pieces of furniture"),
        "objects": (
            LabelledObject(
                name="chair",
                box2d=np.array([1.5, 2, 10, 12]),
                box3d=Box3d(np.array([0.1, 0.2, 2.3]), TURN, np.array([0.4, 0.5, 0.9])),
                visibility=0.75,
                truncation=0.0,
                asset="chair-3",
            ),
            LabelledObject(name="table"),
        ),
        "room": "room-1",
        "source": "living",
    }
    return LabelledImage(**(fields | changes))  # type: ignore[arg-type]


def labelled_clip(frames: int = 4, **changes: object) -> LabelledClip:
    """Returns a clip of random pixels."""
    random = np.random.default_rng(frames)
    fields: dict[str, object] = {
        "rgb": random.integers(0, 256, (frames, 12, 16, 3), np.uint8),
        "T_world_camera": np.tile(np.eye(4), (frames, 1, 1)),
        "label": "lift",
        "reverse_label": "put down",
        "source": "g01",
    }
    return LabelledClip(**(fields | changes))  # type: ignore[arg-type]


def read_all(reader: ImageReader, path: Path) -> tuple[list[Item], Counter[tuple[str, str]]]:
    """Returns what a reader reads, and the counts of what it leaves out."""
    omissions = Omissions()
    return list(read_items(reader, path, omissions)), omissions.counts


def write_png(path: Path, pixels: NDArray[Any]) -> None:
    """Writes an image or depth, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def random_pixels(seed: int, height: int = 8, width: int = 10) -> NDArray[np.uint8]:
    """Returns colours (height, width, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
