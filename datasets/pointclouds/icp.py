"""Alignment of the surfaces that two cameras see, by the ICP of open3d."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.embodiments.transforms import inverse, pose
from stringline.datasets.pointclouds.clouds import Floats, transformed
from stringline.datasets.pointclouds.open3d_library import open3d
from stringline.datasets.pointclouds.surfaces import Surface, common, rotated

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
