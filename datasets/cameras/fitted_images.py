"""The record of an import that brought images to another size, so that intrinsics can follow later.

A calibration belongs to the images of the camera. Stored images of the same aspect ratio may be
scaled, or smaller ones within a black border; their size alone does not show which.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.cameras.image_size import ImageSize, checked_image_size
from stringline.datasets.cameras.resampling import resample_intrinsics
from stringline.datasets.contract.contract import Array, Camera, Contract

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
