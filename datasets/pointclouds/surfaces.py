"""Surfaces in depth images, and their points that another camera sees as well."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.cameras.resampling import resample_depth, resample_intrinsics
from stringline.datasets.embodiments.transforms import inverse
from stringline.datasets.pointclouds.clouds import DepthView, Floats, back_projected, transformed

# Relative difference of depth above which a neighbour lies on another surface.
EDGE = 0.012
GRAZING = 0.2  # Smallest cosine between the normal and the line of sight for reliable depth.
ALIKE = 0.85  # Smallest cosine between the normals of corresponding points.
LARGEST = 320  # Rows and columns of depth images; larger ones are averaged.
REACH_PX = 2  # Half width of the window for a normal.
REACH = 3.0  # Largest distance of partners along the surface relative to that across it.


@dataclass(frozen=True)
class Surface:
    """The points and normals of a depth image in the frame of the camera, metres.

    Attributes:
        points: (H, W, 3).
        normals: (H, W, 3), of length 1, towards the camera; 0 if unknown.
        valid: (H, W), whether all four neighbours lie on the same surface, not at a grazing angle.
        intrinsics: (3, 3) pixels.
    """

    points: Floats
    normals: Floats
    valid: NDArray[np.bool_]
    intrinsics: Floats

    @cached_property
    def listed(self) -> tuple[Floats, Floats]:
        """The valid points and their normals, (N, 3) each, row by row."""
        return self.points[self.valid], self.normals[self.valid]

    def sees(self, points: Floats, normals: Floats, within_m: float) -> NDArray[np.bool_]:
        """Returns (N,) whether points are in the image, near this surface, and face the same way.

        Points and normals (N, 3) are in the frame of the camera; `within_m` is the largest distance
        across the surface.
        """
        z = points[:, 2]
        pixels = np.floor((points / np.where(z > 0, z, 1.0)[:, None]) @ self.intrinsics.T).astype(
            np.int64
        )
        columns = pixels[:, 0]
        rows = pixels[:, 1]
        inside = (
            (z > 0)
            & (columns >= 0)
            & (columns < self.valid.shape[1])
            & (rows >= 0)
            & (rows < self.valid.shape[0])
        )
        rows = np.where(inside, rows, 0)
        columns = np.where(inside, columns, 0)
        away = points - self.points[rows, columns]
        facing = self.normals[rows, columns]
        near = np.abs((away * facing).sum(1)) < within_m
        near &= np.linalg.norm(away, axis=1) < REACH * within_m
        return np.asarray(
            inside & self.valid[rows, columns] & near & ((normals * facing).sum(1) > ALIKE)
        )


def surface_of(view: DepthView) -> Surface:
    """Computes the normals of a depth image by fitting a plane to the neighbourhood of each pixel.

    A plane is linear in 1 / z: 1 / z = m (u, v, 1), and its normal is K^T m. So m is fitted by
    least squares to the pixels of a window on the same surface; differences between neighbours
    alone are too noisy for a real camera.
    """
    depth, K = _at_most(LARGEST, view)
    points = back_projected(depth, K)
    height, width = depth.shape
    padded = np.pad(depth, REACH_PX)
    sums = np.zeros((height, width, 3, 3))
    right = np.zeros((height, width, 3))
    same_beside = depth > 0
    for row in range(2 * REACH_PX + 1):
        for column in range(2 * REACH_PX + 1):
            other = padded[row : row + height, column : column + width]
            same = (other > 0) & (np.abs(other - depth) < EDGE * depth)
            place = np.array([column - REACH_PX, row - REACH_PX, 1.0])  # Pixels from the centre.
            sums += same[..., None, None] * np.outer(place, place)
            right += (same / np.where(same, other, 1.0))[..., None] * place
            if abs(place[0]) + abs(place[1]) == 1:
                same_beside &= same
    m = np.linalg.solve(np.where(same_beside[..., None, None], sums, np.eye(3)), right[..., None])[
        ..., 0
    ]
    v, u = np.mgrid[:height, :width] + 0.5
    # From pixel coordinates relative to the window to those of the image.
    m[..., 2] -= m[..., 0] * u + m[..., 1] * v
    away = m @ K
    normals = -away / np.maximum(np.linalg.norm(away, axis=-1, keepdims=True), 1e-12)
    sight = points / np.maximum(np.linalg.norm(points, axis=-1, keepdims=True), 1e-12)
    valid = same_beside & (-(normals * sight).sum(-1) > GRAZING)
    return Surface(points, np.where(valid[..., None], normals, 0.0), valid, K)


def _at_most(largest: int, view: DepthView) -> tuple[Floats, Floats]:
    """Returns depth (H, W) in metres and intrinsics, with at most `largest` rows and columns."""
    size = view.depth.shape[0], view.depth.shape[1]
    shrink = -(-max(size) // largest)
    if shrink == 1:
        return view.metres, view.intrinsics
    height = size[0] // shrink
    width = size[1] // shrink
    small = (
        resample_depth(view.depth[None], height, width, "valid_mean")[0].astype(np.float64)
        * view.camera.depth_unit_m
    )
    return small, np.asarray(
        resample_intrinsics(view.intrinsics, size, (height, width)), np.float64
    )


def rotated(T_ab: Floats, directions: Floats) -> Floats:
    """Rotates directions (N, 3) from frame b to frame a."""
    return np.asarray(directions @ T_ab[:3, :3].T)


def common(
    a: Surface, b: Surface, T_ab: Floats, within_m: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Returns for the listed points of each surface whether the other camera sees them as well.

    `T_ab` (4, 4) maps from the frame of b's camera to that of a's; `within_m` is the largest
    distance across the surface.
    """
    T_ba = inverse(T_ab)
    points_a, normals_a = a.listed
    points_b, normals_b = b.listed
    return (
        b.sees(transformed(T_ba, points_a), rotated(T_ba, normals_a), within_m),
        a.sees(transformed(T_ab, points_b), rotated(T_ab, normals_b), within_m),
    )
