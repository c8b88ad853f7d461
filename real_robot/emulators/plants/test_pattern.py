"""Test images for cameras without a world; their colour is the number of the image."""

from collections.abc import Sequence

import numpy as np

from stringline.datasets.contract.contract import Array

_DISTANCE_MM = 1000
_FOVY_DEG = 58.0


class TestPattern:
    """A uniformly coloured plane in front of each camera, one metre away.

    The colour is the number of the image in base 256: its lowest digit is red, the next green, then
    blue.

    Args:
        size: Rows and columns of the images.
        hz: Images per second.
    """

    def __init__(self, cameras: Sequence[str], size: int, hz: float) -> None:
        self._cameras = tuple(cameras)
        self._size = size
        self._hz = hz
        focal = size / 2 / np.tan(np.radians(_FOVY_DEG) / 2)
        self._intrinsics = np.array(
            [[focal, 0, size / 2], [0, focal, size / 2], [0, 0, 1]], dtype=np.float32
        )
        self._number = -1
        self._shown: dict[str, Array] = {}

    def at(self, seconds: float) -> dict[str, Array]:
        """Returns the images of a time; the same ones until the next are due."""
        number = int(seconds * self._hz + 1e-6)
        if number != self._number and self._cameras:
            self._number = number
            self._shown = {}
            for camera in self._cameras:
                self._shown[f"rgb/{camera}"] = self._colour(number)
                self._shown[f"depth/{camera}"] = np.full(
                    (self._size, self._size), _DISTANCE_MM, dtype=np.uint16
                )
                self._shown[f"intrinsics/{camera}"] = self._intrinsics
                self._shown[f"time/{camera}"] = np.asarray(number / self._hz)
        return self._shown

    def _colour(self, number: int) -> Array:
        digits = [number >> shift & 0xFF for shift in (0, 8, 16)]
        return np.tile(np.array(digits, dtype=np.uint8), (self._size, self._size, 1))
