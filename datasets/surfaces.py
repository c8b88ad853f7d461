"""The surfaces that a depth picture shows, and which of their points another camera sees too."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.clouds import DepthView, Floats, back_projected, transformed
from stringline.datasets.embodiments.rigid import inverse

EDGE = 0.03  # A neighbour whose depth differs by more than this share of it lies on another surface.
GRAZING = 0.2  # Cosine between a surface and the line of sight below which depth says little.
ALIKE = 0.85  # Cosine between the normals of two points that may be the same: surfaces seen from behind are not.
REACH = 3.0  # A point may lie so many times farther from its partner along the surface than across it.


@dataclass(frozen=True)
class Surface:
    """What a depth picture shows, with normals; all in the camera's frame, metres.

    Attributes:
        points: (H, W, 3).
        normals: (H, W, 3), of length 1, towards the camera; 0 where unknown.
        valid: (H, W), whether all four neighbours lie on the same surface, which is not seen at a grazing angle.
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
        """Says which points lie on this surface where this camera looks.

        Args:
            points: (N, 3) in this camera's frame.
            normals: (N, 3) in this camera's frame.
            within_m: How far from the surface, across it.

        Returns:
            (N,): in the picture, near what is seen there, and facing the same way.
        """
        z = points[:, 2]
        pixels = np.floor((points / np.where(z > 0, z, 1.0)[:, None]) @ self.intrinsics.T).astype(np.int64)
        columns, rows = pixels[:, 0], pixels[:, 1]
        inside = (z > 0) & (columns >= 0) & (columns < self.valid.shape[1]) & (rows >= 0) & (rows < self.valid.shape[0])
        rows, columns = np.where(inside, rows, 0), np.where(inside, columns, 0)
        away, facing = points - self.points[rows, columns], self.normals[rows, columns]
        near = np.abs((away * facing).sum(1)) < within_m
        near &= np.linalg.norm(away, axis=1) < REACH * within_m
        return np.asarray(inside & self.valid[rows, columns] & near & ((normals * facing).sum(1) > ALIKE))


def surface_of(view: DepthView) -> Surface:
    """Finds the normals of a depth picture from differences between the neighbours of each pixel."""
    depth, points = view.metres, back_projected(view.metres, view.intrinsics)
    normals, valid = np.zeros_like(points), np.zeros(depth.shape, np.bool_)
    centre = depth[1:-1, 1:-1]
    beside = np.stack((depth[1:-1, 2:], depth[1:-1, :-2], depth[2:, 1:-1], depth[:-2, 1:-1]))
    same = (beside > 0).all(axis=0) & (np.abs(beside - centre) < EDGE * centre).all(axis=0)
    across = np.cross(points[2:, 1:-1] - points[:-2, 1:-1], points[1:-1, 2:] - points[1:-1, :-2])
    length = np.linalg.norm(across, axis=-1, keepdims=True)
    across /= np.where(length > 0, length, 1.0)
    towards = -points[1:-1, 1:-1] / np.maximum(np.linalg.norm(points[1:-1, 1:-1], axis=-1, keepdims=True), 1e-9)
    cosine = (across * towards).sum(-1, keepdims=True)
    normals[1:-1, 1:-1] = across * np.sign(cosine)
    valid[1:-1, 1:-1] = same & (np.abs(cosine[..., 0]) > GRAZING)
    return Surface(points, normals, valid, view.intrinsics)


def rotated(T_ab: Floats, directions: Floats) -> Floats:
    """Returns directions (N, 3) of frame b in frame a."""
    return np.asarray(directions @ T_ab[:3, :3].T)


def common(a: Surface, b: Surface, T_ab: Floats, within_m: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Says which of the listed points of each of two surfaces the camera of the other sees too.

    Args:
        a: One surface.
        b: The other.
        T_ab: (4, 4), takes coordinates in the frame of b's camera to that of a's.
        within_m: How far they may lie apart, across the surface.

    Returns:
        For each listed point of a, and for each of b.
    """
    T_ba = inverse(T_ab)
    (points_a, normals_a), (points_b, normals_b) = a.listed, b.listed
    return (
        b.sees(transformed(T_ba, points_a), rotated(T_ba, normals_a), within_m),
        a.sees(transformed(T_ab, points_b), rotated(T_ab, normals_b), within_m),
    )
