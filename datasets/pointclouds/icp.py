"""Alignment of the surfaces that two cameras see, by the ICP of open3d.

Surfaces come from depth images; aligned are their points that the other camera sees as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.cameras.resampling import resample_depth, resample_intrinsics
from stringline.datasets.embodiments.transforms import inverse, pose
from stringline.datasets.pointclouds.clouds import (
    DepthView,
    Floats,
    back_projected,
    open3d,
    transformed,
)

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


# Largest distance of corresponding points in each round: from each start, then from the best one.
COARSE_M = (0.03, 0.02, 0.01)
FINE_M = (0.02, 0.01, 0.01, 0.005, 0.005)
# Clouds slide on a table: starts in all directions find minima that a single start misses.
START_M = 0.02
ITERATIONS = 20  # Per round.
VOXEL_M = 0.003
FEWEST_POINTS = 600
SMALLEST_OVERLAP = 0.15
# For the worst determined of the 6 motions: mean square of the displacement of points across their
# surfaces, relative to their displacement. On a plane it is 0.
WEAKEST = 0.0005


@dataclass(frozen=True)
class PosedSurface:
    """A surface in the frame of a camera, and the pose (4, 4) of the camera."""

    surface: Surface
    T_base_camera: Floats


@dataclass(frozen=True)
class Alignment:
    """The motion that aligns the cloud of a camera at one step, or the reason of a rejection.

    Attributes:
        overlap: Share of the points of one camera that the other one sees, the larger of both.
        T: (4, 4) in the base frame, moves points of the source onto those of the target; None if
            rejected.
        fitness: Share of the common points with a partner within 5 mm, as computed by open3d.
        rmse_mm: Root mean squared distance of partners, which includes the spacing of points.
        rejected: The reason of a rejection, or empty.
    """

    overlap: float
    T: Floats | None = None
    fitness: float = 0.0
    rmse_mm: float = float("nan")
    rejected: str = ""


def align(target: PosedSurface, source: PosedSurface) -> Alignment:
    """Aligns the cloud of a source camera to that of a target camera in their common view.

    Point-to-plane ICP (Chen and Medioni 1992) with Tukey's weights, from coarse to fine. Each round
    uses the points that both cameras see, on surfaces that face the same way.
    """
    shifts = [np.zeros(3), *(sign * START_M * axis for axis in np.eye(3) for sign in (1, -1))]
    found = [_rounds(target, source, pose(shift), COARSE_M) for shift in shifts]
    overlap, T, result, clouds, rejected = max(found, key=lambda each: each[0])
    if not rejected:
        overlap, T, result, clouds, rejected = _rounds(target, source, T, FINE_M)
    if rejected:
        return Alignment(overlap, rejected=rejected)
    weakest = determined(*_partners(result, *clouds))
    if weakest < WEAKEST:
        return Alignment(
            overlap,
            rejected=(
                f"the common view is too flat to determine all six motions ({weakest:.1e} of "
                f"{WEAKEST})"
            ),
        )
    return Alignment(overlap, T, float(result.fitness), 1000 * float(result.inlier_rmse))


def _rounds(
    target: PosedSurface, source: PosedSurface, T: Floats, distances: Sequence[float]
) -> tuple[float, Floats, Any, Any, str]:
    """Returns overlap, motion, open3d's last result and clouds, and the reason of a rejection."""
    result: Any = None
    clouds: Any = None
    overlap = 0.0
    for distance in distances:
        T_ab = inverse(target.T_base_camera) @ T @ source.T_base_camera
        in_a, in_b = common(target.surface, source.surface, T_ab, distance)
        overlap = float(max(in_a.sum() / max(len(in_a), 1), in_b.sum() / max(len(in_b), 1)))
        if min(in_a.sum(), in_b.sum()) < FEWEST_POINTS or overlap < SMALLEST_OVERLAP:
            least = f"allowed: {FEWEST_POINTS} and {SMALLEST_OVERLAP:.0%}"
            shared = f"{min(in_a.sum(), in_b.sum())} points, {overlap:.1%} of a cloud"
            return overlap, T, None, None, f"the common view is too small ({shared}; {least})"
        of_source = _cloud(source.surface, source.T_base_camera, in_b).voxel_down_sample(VOXEL_M)
        clouds = _cloud(target.surface, target.T_base_camera, in_a), of_source
        result = _icp(clouds[0], clouds[1], T, distance)
        T = np.asarray(result.transformation)
    return overlap, T, result, clouds, ""


def determined(points: Floats, normals: Floats) -> float:
    """Measures how well point-to-plane distances determine a motion (Gelfand et al. 2003, sec. 3).

    Returns the smallest eigenvalue of the mean of J J^T with J = (p x n / s, n), for points p (N,
    3) relative to their mean, the root s of their mean square, and unit normals n (N, 3). 0 without
    points.
    """
    if not len(points):
        return 0.0
    centred = points - points.mean(axis=0)
    size = max(np.sqrt((centred**2).sum(axis=1).mean()), 1e-9)
    J = np.hstack((np.cross(centred / size, normals), normals))
    return float(np.linalg.eigvalsh(J.T @ J / len(J))[0])


def _cloud(surface: Surface, T_base_camera: Floats, chosen: Any) -> Any:
    points, normals = (array[chosen] for array in surface.listed)
    library = open3d()
    cloud = library.geometry.PointCloud(
        library.utility.Vector3dVector(transformed(T_base_camera, points))
    )
    cloud.normals = library.utility.Vector3dVector(rotated(T_base_camera, normals))
    return cloud


def _icp(target: Any, source: Any, T: Floats, distance: float) -> Any:
    registration = open3d().pipelines.registration
    method = registration.TransformationEstimationPointToPlane(registration.TukeyLoss(distance))
    stop = registration.ICPConvergenceCriteria(1e-7, 1e-7, ITERATIONS)
    return registration.registration_icp(source, target, distance, T, method, stop)


def _partners(result: Any, target: Any, source: Any) -> tuple[Floats, Floats]:
    pairs = np.asarray(result.correspondence_set).reshape(-1, 2)
    return np.asarray(source.points)[pairs[:, 0]], np.asarray(target.normals)[pairs[:, 1]]
