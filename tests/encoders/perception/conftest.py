"""Small stores and networks of perception."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline.datasets.images.image_store import ImageStore, ImageWriter
from stringline.datasets.images.labelled_image import LabelledClip, LabelledImage
from stringline.encoders.coordinates.coordinates import GridPlaces
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.image_encoder import ImageEncoder, ImageEncoderSettings
from stringline.encoders.positions.encoding import EncodingFactory
from stringline.encoders.positions.rotary import CayleyString
from stringline.encoders.vision.patches import PatchProjection

SIDE = 16
COLOURS = {"blue": (20, 30, 220), "green": (30, 200, 40), "red": (220, 30, 20)}

Encoder = Callable[[ImageContract], ImageEncoder]


def settings(encoding: EncodingFactory | None = None, **changed: Any) -> ImageEncoderSettings:
    """Returns the settings of a small image encoder."""
    plain = {
        "encoding": encoding or partial(CayleyString, wavelengths=(2.0, 8.0)),
        "coordinates": GridPlaces(4),
        "embedding": partial(PatchProjection, patch=4),
        "dim": 16,
        "depth": 2,
        "heads": 2,
    }
    return ImageEncoderSettings(**{**plain, **changed})


def encoder(encoding: EncodingFactory | None = None, **changed: Any) -> "partial[ImageEncoder]":
    """Returns the factory of a small image encoder."""
    return partial(ImageEncoder, settings(encoding, **changed))


def noise(seed: int, *shape: int) -> NDArray[np.uint8]:
    """Returns random pixels."""
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def coloured(name: str, seed: int, **fields: Any) -> LabelledImage:
    """Returns an image of one colour, with noise."""
    rgb = np.clip(np.array(COLOURS[name]) + noise(seed, SIDE, SIDE, 3) // 8, 0, 255)
    return LabelledImage(rgb=rgb.astype(np.uint8), label=name, room=f"room {seed % 5}", **fields)


@pytest.fixture
def colours(tmp_path: Path) -> ImageStore:
    """A store of 30 images of three colours in five rooms."""
    path = tmp_path / "colours"
    with ImageWriter(path) as writer:
        for number in range(30):
            name = list(COLOURS)[number % 3]
            writer.add(coloured(name, number, captions=(f"a {name} wall",)))
    return ImageStore(path)


def moving(forward: bool, seed: int, frames: int = 5) -> LabelledClip:
    """Returns a clip of a bright bar that moves to the right, or back to the left."""
    rgb = np.zeros((frames, SIDE, SIDE, 3), np.uint8)
    row = 4 * int(np.random.default_rng(seed).integers(3))
    for frame in range(frames):
        place = 3 * (frame if forward else frames - 1 - frame)
        rgb[frame, row : row + 6, place : place + 4] = 255
    names: Sequence[str] = ("right", "left") if forward else ("left", "right")
    return LabelledClip(rgb=rgb, label=names[0], reverse_label=names[1], source=f"clip {seed}")
