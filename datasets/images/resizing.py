"""Labelled images and clips of another size."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stringline.datasets.cameras.resampling import (
    resample_colour,
    resample_depth,
    resample_intrinsics,
)
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import Item, LabelledClip, LabelledObject
from stringline.datasets.images.omissions import OmittedError


def resized(item: Item, height: int, width: int) -> Item:
    """Returns an image or clip with fewer pixels; intrinsics and 2D boxes are scaled.

    Raises:
        OmittedError: It would have to be enlarged.
    """
    old = item.rgb.shape[-3:-1]
    if old == (height, width):
        return item
    if old[0] < height or old[1] < width:
        raise OmittedError("images", f"smaller than {height}x{width}")
    # Images are clips of one frame.
    rgb = resample_colour(item.rgb.reshape(-1, *item.rgb.shape[-3:]), height, width)
    shared: dict[str, Any] = {
        "rgb": rgb.reshape(*item.rgb.shape[:-3], height, width, 3),
        "depth": _resized(item.depth, height, width),
        "intrinsics": item.intrinsics
        if item.intrinsics is None
        else resample_intrinsics(item.intrinsics, (old[0], old[1]), (height, width)),
    }
    if isinstance(item, LabelledClip):
        return replace(item, **shared)
    return replace(
        item,
        **shared,
        clean_depth=_resized(item.clean_depth, height, width),
        segments=_resized(item.segments, height, width),
        objects=_scaled(item.objects, height / old[0], width / old[1]),
    )


def _resized(pixels: Array | None, height: int, width: int) -> Array | None:
    """Takes the nearest pixels: means lie between two surfaces, or between two objects."""
    if pixels is None:
        return None
    frames = resample_depth(pixels.reshape(-1, *pixels.shape[-2:]), height, width, "nearest")
    return frames.reshape(*pixels.shape[:-2], height, width)


def _scaled(
    objects: Sequence[LabelledObject], rows: float, columns: float
) -> tuple[LabelledObject, ...]:
    scale = np.array([columns, rows, columns, rows])
    return tuple(
        each if each.box2d is None else replace(each, box2d=each.box2d * scale) for each in objects
    )
