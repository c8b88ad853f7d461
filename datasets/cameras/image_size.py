"""Images of another size, with intrinsics that match them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.cameras.resampling import (
    resample_colour,
    resample_depth,
    resample_intrinsics,
)
from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.contract.contract import Array, Camera

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
