"""Resampling of images, depth and intrinsics, and images of another size.

Pixel (0, 0) is the upper left one and its centre lies at (0.5, 0.5), so that a change of size
scales pixel coordinates without a shift.

A calibration belongs to the images of the camera. Stored images of the same aspect ratio may be
scaled, or smaller ones within a black border; their size alone does not show which. So an import
that brings images to another size keeps a record (`FittedImages`), and intrinsics can follow later.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract

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


Fit = Literal["resize", "pad", "crop"]


def checked_image_size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Returns rows and columns of images, given one number for both, or two.

    Raises:
        ValueError: There are more than two numbers, or they are not whole.
    """
    sides = [image_size] * 2 if isinstance(image_size, int | float) else list(image_size)
    if len(sides) != 2 or not all(side in Range(whole=True) for side in sides):
        raise ValueError(
            f"image_size is {image_size!r}; allowed: a whole number, or two for rows and columns."
        )
    return sides[0], sides[1]


@dataclass(frozen=True)
class ImageSize:
    """A size of images, and the way to it; no way enlarges an image.

    Attributes:
        height: Rows.
        width: Columns.
        fit: `resize` scales rows and columns to the size, also by different factors. `pad` scales
            a larger image until it fits in, and surrounds it by black pixels without depth. `crop`
            scales it until it covers the size, and takes the centre.
    """

    height: int
    width: int
    fit: Fit

    @classmethod
    def of(cls, image_size: int | Sequence[int] | None, fit: str | None) -> Self | None:
        """Reads the options of an import; None without a size.

        Raises:
            ValueError: A number or the way is not allowed, or one of them is missing.
        """
        if image_size is None:
            if fit is not None:
                raise ValueError(f"image_fit={fit} needs image_size=[ROWS,COLUMNS].")
            return None
        height, width = checked_image_size(image_size)
        if height < 1 or width < 1:
            raise ValueError(f"image_size is {height}x{width}; allowed: positive numbers.")
        for known in get_args(Fit):
            if fit == known:
                return cls(height, width, known)
        if fit is None:
            ways = ", ".join(get_args(Fit))
            raise ValueError(f"image_size needs the way to it, image_fit; allowed: {ways}.")
        raise unknown_name("image_fit", fit, get_args(Fit))

    def camera(self, camera: Camera) -> Camera:
        """Returns a camera with images of this size.

        Raises:
            ValueError: Its images would have to be enlarged.
        """
        smaller = camera.height < self.height or camera.width < self.width
        if smaller and self.fit != "pad":
            raise ValueError(
                f"Camera {camera.name!r} has images of {camera.height}x{camera.width}; image_fit="
                f"{self.fit} does not enlarge them to {self.height}x{self.width}. Allowed: at most "
                "the recorded size, or image_fit=pad."
            )
        return replace(camera, height=self.height, width=self.width)

    def colour(self, image: Array) -> NDArray[np.uint8]:
        """Returns an image (height, width, 3) from one (H, W, 3) uint8."""
        scaled = self._scaled(*image.shape[:2])
        small = resample_colour(image[None], *scaled)[0] if scaled != image.shape[:2] else image
        return np.asarray(self._framed(small), np.uint8)

    def depth(self, image: Array) -> NDArray[np.uint16]:
        """Returns depth (height, width) from one (H, W) uint16, by `nearest_valid`."""
        scaled = self._scaled(*image.shape)
        small = resample_depth(image[None], *scaled)[0] if scaled != image.shape else image
        return np.asarray(self._framed(small), np.uint16)

    def intrinsics(self, intrinsics: Array, camera: Camera) -> NDArray[np.float32]:
        """Returns the intrinsics (3, 3) for this size from those of a camera's images."""
        old = camera.height, camera.width
        scaled = self._scaled(*old)
        found = resample_intrinsics(intrinsics, old, scaled)
        top, left = self._offset(*scaled)
        found[:2, 2] += (left, top)
        return found

    def _scaled(self, height: int, width: int) -> tuple[int, int]:
        """Returns the size to which an image is scaled before it is padded or cropped."""
        if self.fit == "resize":
            return self.height, self.width
        ratios = self.height / height, self.width / width
        scale = min(1.0, *ratios) if self.fit == "pad" else max(ratios)
        return max(1, round(scale * height)), max(1, round(scale * width))

    def _offset(self, height: int, width: int) -> tuple[int, int]:
        """Returns the first row and column of a scaled image; negative ones are cropped."""
        return (self.height - height) // 2, (self.width - width) // 2

    def _framed(self, image: Array) -> Array:
        """Returns the centre of a scaled image, or the image within zeros."""
        height, width = image.shape[:2]
        top, left = self._offset(height, width)
        if top < 0 or left < 0:
            return image[-top : self.height - top, -left : self.width - left]
        framed = np.zeros((self.height, self.width, *image.shape[2:]), image.dtype)
        framed[top : top + height, left : left + width] = image
        return framed


FITTED = "fitted_images"
"""Attribute `extra` of an episode with fitted images: size before and after, and fit, by camera."""


@dataclass(frozen=True)
class FittedImages:
    """What an import did to the images of a camera.

    Attributes:
        before: Rows and columns of the recorded images.
        size: The size that the import stored, and the way to it.
    """

    before: tuple[int, int]
    size: ImageSize

    @classmethod
    def of(cls, name: str, plain: Any) -> Self:
        """Reads the record of a camera.

        Raises:
            ValueError: The record is damaged.
        """
        try:
            before = checked_image_size(plain["from"])
            size = ImageSize.of(plain["to"], plain["fit"])
            if size is None or min(before) < 1:
                raise ValueError("a size is missing or not positive")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{FITTED} of the camera {name!r} is {plain!r}; allowed: from and to, each with "
                "rows and columns, and fit."
            ) from error
        return cls(before, size)

    def camera(self, camera: Camera) -> Camera:
        """Returns the camera with the size of its recorded images."""
        height, width = self.before
        return replace(camera, height=height, width=width)

    def intrinsics(self, intrinsics: Array, camera: Camera) -> NDArray[np.float32]:
        """Returns the intrinsics (3, 3) of the stored images from those of the recorded ones.

        Stored images that differ from the size of the import are of a training copy, which scales.
        """
        fitted = self.size.intrinsics(intrinsics, self.camera(camera))
        stored = camera.height, camera.width
        return resample_intrinsics(fitted, (self.size.height, self.size.width), stored)


def fit_record(contract: Contract, size: ImageSize) -> dict[str, Any]:
    """Returns the attribute `extra` of an episode whose images are fitted to a size.

    `contract` is that before.
    """
    to = [size.height, size.width]
    return {
        FITTED: {
            camera.name: {"from": [camera.height, camera.width], "to": to, "fit": size.fit}
            for camera in contract.cameras
        }
    }


def fitted_images(extra: Mapping[str, Any]) -> dict[str, FittedImages]:
    """Reads the record of an episode by the name of the camera; empty without a record.

    Raises:
        ValueError: The record is damaged.
    """
    plain = extra.get(FITTED, {})
    if not isinstance(plain, Mapping):
        raise ValueError(f"{FITTED} is {plain!r}; allowed: an entry per camera.")
    return {name: FittedImages.of(name, entry) for name, entry in plain.items()}


def recorded_contract(contract: Contract, fitted: Mapping[str, FittedImages]) -> Contract:
    """Returns a contract with the sizes of the recorded images, to which calibrations belong."""
    return contract.with_cameras(
        *(
            fitted[camera.name].camera(camera) if camera.name in fitted else camera
            for camera in contract.cameras
        )
    )
