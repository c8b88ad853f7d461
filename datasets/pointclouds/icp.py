"""Laying the surface that one camera sees over the same surface as another sees it, by open3d."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.embodiments.transforms import inverse, pose
from stringline.datasets.pointclouds.clouds import Floats, transformed
from stringline.datasets.pointclouds.open3d_library import open3d
from stringline.datasets.pointclouds.surfaces import Surface, common, rotated

COARSE_M = (
    0.03,
    0.02,
    0.01,
)  # Within which points count as the same, round by round, from each start.
FINE_M = (0.02, 0.01, 0.01, 0.005, 0.005)  # The same, from the best start on.
START_M = (
    0.02  # Clouds slide on a table: starts to all sides find the valley that a single one misses.
)
ITERATIONS = 20  # Of a round.
VOXEL_M = 0.003
FEWEST_POINTS = 600
SMALLEST_OVERLAP = 0.15
# Of the 6 motions the worst determined one: the mean square of what it moves points across their
# surfaces, as a share of how far it moves them. On a bare plane it is 0.
WEAKEST = 0.0005


@dataclass(frozen=True)
class Sight:
    """A surface, and from where it is seen.

    Attributes:
        surface: In the camera's frame.
        T_base_camera: (4, 4).
    """

    surface: Surface
    T_base_camera: Floats


@dataclass(frozen=True)
class Move:
    """How a camera's cloud has to move at one step, or why that cannot be said.

    Attributes:
        overlap: Share of the points of the one camera that the other sees, for the camera where it
            is greater.
        T: (4, 4) in the base frame, takes the source's points to where the target sees them; None
            where refused.
        fitness: Share of the common points that found a partner within 5 mm, as open3d counts it.
        rmse_mm: Root of the mean squared distance of those; the spacing of points is part of it.
        refused: The reason, or nothing.
    """

    overlap: float
    T: Floats | None = None
    fitness: float = 0.0
    rmse_mm: float = float("nan")
    refused: str = ""


def align(target: Sight, source: Sight) -> Move:
    """Finds how the source's cloud has to move so that it fits the target's, where both cameras see the same.

    Point-to-plane ICP (Chen and Medioni 1992) with Tukey's weights, from coarse to fine. Before
    each round the points are chosen anew: those that the other camera sees, on surfaces that face
    the same way.

    Args:
        target: The camera that stays.
        source: The camera whose cloud is moved.
    """
    shifts = [np.zeros(3), *(sign * START_M * axis for axis in np.eye(3) for sign in (1, -1))]
    found = [_rounds(target, source, pose(shift), COARSE_M) for shift in shifts]
    overlap, T, result, clouds, refused = max(found, key=lambda each: each[0])
    if not refused:
        overlap, T, result, clouds, refused = _rounds(target, source, T, FINE_M)
    if refused:
        return Move(overlap, refused=refused)
    weakest = determined(*_partners(result, *clouds))
    if weakest < WEAKEST:
        return Move(
            overlap,
            refused=(
                f"what they see in common is too flat to fix all six motions ({weakest:.1e} of "
                f"{WEAKEST})"
            ),
        )
    return Move(overlap, T, float(result.fitness), 1000 * float(result.inlier_rmse))


def _rounds(
    target: Sight, source: Sight, T: Floats, distances: Sequence[float]
) -> tuple[float, Floats, Any, Any, str]:
    """Returns the overlap, where the source went, open3d's result and both clouds of the last round; or why there is none."""
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
            return overlap, T, None, None, f"they see too little in common ({shared}; {least})"
        of_source = _cloud(source.surface, source.T_base_camera, in_b).voxel_down_sample(VOXEL_M)
        clouds = _cloud(target.surface, target.T_base_camera, in_a), of_source
        result = _icp(clouds[0], clouds[1], T, distance)
        T = np.asarray(result.transformation)
    return overlap, T, result, clouds, ""


def determined(points: Floats, normals: Floats) -> float:
    """Says how well point-to-plane distances determine a motion (Gelfand et al. 2003, section 3).

    Args:
        points: (N, 3).
        normals: (N, 3), of length 1.

    Returns:
        The smallest eigenvalue of the mean of J J^T with J = (p x n / s, n); p is relative to the
        mean of all points and s the root of its mean square. 0 where no point is.
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
