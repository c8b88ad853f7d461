"""Oriented boxes in three dimensions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TOLERANCE = 2e-4
"""Largest difference of R^T R from the identity; axes with four decimals stay below 1.8e-4."""


@dataclass(frozen=True, eq=False)
class Box3d:
    """An oriented box.

    A point c of the cube [-1/2, 1/2]^3 lies at `centre + rotation @ (size * c)`.

    Attributes:
        centre: (3,) in metres, in the camera frame unless stated otherwise.
        rotation: (3, 3) proper rotation; its columns are the axes of the box.
        size: (3,) side lengths along these axes in metres, above 0.

    Raises:
        ValueError: A shape differs, a number is not finite, a side is not above 0, or the axes are
            not orthogonal and right-handed.
    """

    centre: np.ndarray
    rotation: np.ndarray
    size: np.ndarray

    def __post_init__(self) -> None:
        for name, shape in (("centre", (3,)), ("rotation", (3, 3)), ("size", (3,))):
            array = np.asarray(getattr(self, name), np.float64)
            if array.shape != shape or not all(map(math.isfinite, array.ravel().tolist())):
                raise ValueError(
                    f"{name} of a box is {array.tolist()}; allowed: {shape} finite numbers."
                )
            object.__setattr__(self, name, array)
        if min(self.size.tolist()) <= 0:
            raise ValueError(f"The sides of a box are {self.size.tolist()} m; allowed: above 0.")
        if not _is_rotation(self.rotation.T.tolist()):
            raise ValueError(
                f"The axes of a box are {self.rotation.tolist()}; allowed: columns of a proper "
                f"rotation, within {TOLERANCE:g}."
            )

    def corners(self) -> np.ndarray:
        """Returns the corners (8, 3), in the order of `CORNER_SIGNS`."""
        corners: np.ndarray = self.centre + (CORNER_SIGNS / 2 * self.size) @ self.rotation.T
        return corners

    def transformed(self, T_ab: np.ndarray) -> "Box3d":
        """Returns the box in frame a, for a box in frame b and the transform (4, 4) of b to a."""
        rotation = T_ab[:3, :3]
        return Box3d(rotation @ self.centre + T_ab[:3, 3], rotation @ self.rotation, self.size)


def _is_rotation(axes: Sequence[Sequence[float]]) -> bool:
    """Returns whether three axes are orthogonal, right-handed and of length 1.

    Plain numbers: arrays of this size take ten times as long, most of the time of a reading store.
    """
    (a, b, c), (d, e, f), (g, h, i) = axes
    deviations = (
        a * a + b * b + c * c - 1,
        d * d + e * e + f * f - 1,
        g * g + h * h + i * i - 1,
        a * d + b * e + c * f,
        a * g + b * h + c * i,
        d * g + e * h + f * i,
    )
    determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    return max(map(abs, deviations)) <= TOLERANCE and determinant > 0


CORNER_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
"""(8, 3) signs of the corners; the last axis changes first."""
