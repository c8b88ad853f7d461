"""Labelled images and clips for tests."""

import numpy as np

from stringline.datasets.images.boxes import Box3d
from stringline.datasets.images.labelled_image import LabelledClip, LabelledImage, LabelledObject

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
