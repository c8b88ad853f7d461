"""Resampling of images, depth and intrinsics.

Pixel (0, 0) is the upper left one and its centre lies at (0.5, 0.5), so that a change of size
scales pixel coordinates without a shift.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array

Floats = NDArray[np.float32]
DepthResampling = Literal["nearest_valid", "valid_mean", "nearest"]
_FRAMES_AT_A_TIME = 16
_LEAST_VALID = 0.5


def resample_colour(images: Array, height: int, width: int) -> NDArray[np.uint8]:
    """Resizes images (F, H, W, 3) uint8 by area averaging of the stored sRGB values.

    Returns:
        (F, height, width, 3) uint8, rounded to the nearest value.
    """

    def smaller(part: Array) -> Floats:
        return np.asarray(
            np.floor(_area_mean(part.astype(np.float32), height, width) + np.float32(0.5))
        )

    return _by_parts(images, smaller, (height, width, 3)).astype(np.uint8, copy=False)


def resample_depth(
    depth: Array, height: int, width: int, how: DepthResampling = "nearest_valid"
) -> NDArray[np.uint16]:
    """Resizes depth (F, H, W) uint16 to (F, height, width); 0 (no return) is never a value.

    `nearest_valid` takes the valid pixel of the area that is nearest to its centre, `valid_mean`
    the mean of all of them; both return 0 if less than half of the area is valid. A mean of two
    surfaces is a point between them that no camera has seen; over one surface it has less noise.
    `nearest` takes the pixel at the centre, valid or not.
    """
    if how == "nearest":
        return resample_nearest(depth, height, width)

    def smaller(part: Array) -> Array:
        share = _area_mean((part > 0).astype(np.float32), height, width)
        if how == "nearest_valid":
            value = _nearest_valid(part, height, width)
        else:
            total = _area_mean(part.astype(np.float32), height, width)
            value = np.floor(total / np.maximum(share, 1e-6) + np.float32(0.5))
        # Slightly below one half, so that rounding does not matter if exactly half is valid.
        return np.where(share > _LEAST_VALID - 1e-4, value, 0)

    return _by_parts(depth, smaller, (height, width)).astype(np.uint16, copy=False)


def resample_intrinsics(intrinsics: Array, old: tuple[int, int], new: tuple[int, int]) -> Floats:
    """Scales intrinsics (3, 3) from the old to the new size (height, width) of the images."""
    scale = np.array([new[1] / old[1], new[0] / old[0], 1.0])
    return (scale[:, None] * np.asarray(intrinsics, np.float64)).astype(np.float32)


def _by_parts(frames: Array, smaller: Callable[[Array], Array], shape: tuple[int, ...]) -> Array:
    """Resamples a few frames at a time, so that memory does not grow with the episode."""
    result = np.empty((len(frames), *shape), frames.dtype)
    for start in range(0, len(frames), _FRAMES_AT_A_TIME):
        result[start : start + _FRAMES_AT_A_TIME] = smaller(
            frames[start : start + _FRAMES_AT_A_TIME]
        )
    return result


def _area_mean(frames: Floats, height: int, width: int) -> Floats:
    """Returns the means over the areas of the new pixels of (F, H, W) or (F, H, W, 3)."""
    rows = _shares(height, frames.shape[1])
    columns = _shares(width, frames.shape[2])
    count, _, old_width, *channels = frames.shape
    narrow = (rows @ frames.reshape(*frames.shape[:2], -1)).reshape(count, height, old_width, -1)
    # Channels before columns: one product of large matrices is faster than many with 3 columns.
    small = (np.swapaxes(narrow, 2, 3).reshape(-1, old_width) @ columns.T).astype(
        np.float32, copy=False
    )
    result: Floats = np.swapaxes(small.reshape(count, height, -1, width), 2, 3).reshape(
        count, height, width, *channels
    )
    return result


@lru_cache(maxsize=64)
def _shares(new: int, old: int) -> Floats:
    """Returns (new, old): the share of each new pixel covered by each old one; rows sum to 1."""
    edges = np.arange(new + 1) * (old / new)
    pixels = np.arange(old)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    shares: Floats = (np.maximum(overlap, 0) * (new / old)).astype(np.float32)
    return shares


def _nearest_valid(depth: Array, height: int, width: int) -> Array:
    """Returns the valid pixel nearest to the centre of each new one, 0 if its area has none.

    Of equally near pixels the first one counts, row by row.
    """
    row, down = _candidates(height, depth.shape[1])
    column, across = _candidates(width, depth.shape[2])
    result = np.zeros((len(depth), height, width), depth.dtype)
    nearest = np.full(result.shape, np.inf, np.float32)
    for rows, far in zip(row, down, strict=True):
        for columns, wide in zip(column, across, strict=True):
            value = depth[:, rows[:, None], columns]
            distance = np.where(value > 0, far[:, None] + wide, np.float32(np.inf))
            better = distance < nearest
            np.copyto(result, value, where=better)
            np.copyto(nearest, distance, where=better)
    return result


@lru_cache(maxsize=64)
def _candidates(new: int, old: int) -> tuple[NDArray[np.int64], Floats]:
    """Returns the old pixels that each new one covers, (n, new), and their squared distances.

    Distances are those of the centres along the axis, in old pixels; infinite for pixels that the
    new one does not cover.
    """
    covered = _shares(new, old) > 0
    count = int(covered.sum(axis=1).max())
    pixels = np.minimum(covered.argmax(axis=1)[:, None] + np.arange(count), old - 1)
    distance = (pixels + 0.5 - (np.arange(new)[:, None] + 0.5) * (old / new)) ** 2
    inside = np.arange(count) < covered.sum(axis=1)[:, None]
    return pixels.T, np.where(inside, distance, np.inf).T.astype(np.float32)


def resample_nearest(images: Array, height: int, width: int) -> Array:
    """Resizes depth or segments (F, H, W) of any type by the pixels at the new centres."""
    sizes = ((height, images.shape[1]), (width, images.shape[2]))
    rows, columns = (_nearest(new, old) for new, old in sizes)
    return np.ascontiguousarray(images[:, rows[:, None], columns])


def _nearest(new: int, old: int) -> NDArray[np.int64]:
    """Returns (new,): the old pixel at the centre of each new one."""
    return ((np.arange(new) + 0.5) * (old / new)).astype(np.int64)
