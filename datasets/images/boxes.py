"""Oriented boxes in three dimensions."""

from dataclasses import dataclass

import numpy as np

TOLERANCE = 1e-4
"""Largest difference of R^T R from the identity; files with four decimals stay within it."""


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
            if array.shape != shape or not np.isfinite(array).all():
                raise ValueError(
                    f"{name} of a box is {array.tolist()}; allowed: {shape} finite numbers."
                )
            object.__setattr__(self, name, array)
        if (self.size <= 0).any():
            raise ValueError(f"The sides of a box are {self.size.tolist()} m; allowed: above 0.")
        difference = np.abs(self.rotation.T @ self.rotation - np.eye(3)).max()
        if difference > TOLERANCE or np.linalg.det(self.rotation) < 0:
            raise ValueError(
                f"The axes of a box are {self.rotation.tolist()}; allowed: columns of a proper "
                f"rotation, within {TOLERANCE:g}."
            )

    def corners(self) -> np.ndarray:
        """Returns the corners (8, 3), in the order of `CORNER_SIGNS`."""
        return self.centre + (CORNER_SIGNS / 2 * self.size) @ self.rotation.T

    def transformed(self, T_ab: np.ndarray) -> "Box3d":
        """Returns the box in frame a, for a box in frame b and the transform (4, 4) of b to a."""
        rotation = T_ab[:3, :3]
        return Box3d(rotation @ self.centre + T_ab[:3, 3], rotation @ self.rotation, self.size)


CORNER_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
"""(8, 3) signs of the corners; the last axis changes first."""
