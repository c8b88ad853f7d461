"""Antipodal grasps of a convex hull."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.forms import WIDEST, Hold

# Largest angle between the closing direction and the normal of the surface at a pad. Friction of
# .7 holds up to 35 degrees.
SKEW_DEG = 22.0
APART_DEG = 12.0  # Smallest angle between the closing directions of two grasps.
MOST = 16
SPREAD = 200  # Directions that are tried beside the normals of faces.


def hull_holds(points: NDArray[np.float64]) -> Sequence[Hold]:
    """Returns grasps of the hull of points (N, 3), m, those with the smallest angles first.

    The pads close on a line through the hull's centroid, where both surfaces are within 22 degrees
    of perpendicular to it and the hull is at most 90 mm wide. At most 16 grasps are returned, whose
    directions differ by 12 degrees or more.
    """
    from scipy.spatial import ConvexHull

    hull = ConvexHull(points)
    faces = np.unique(hull.equations.round(7), axis=0)
    centre = _centroid(points[hull.simplices])
    found = [
        each for across in _directions(faces) if (each := _hold(points, faces, centre, across))
    ]
    chosen: list[Hold] = []
    for _, hold in sorted(found, key=lambda each: each[0]):
        if all(abs(hold.across @ other.across) < _APART for other in chosen):
            chosen.append(hold)
    return chosen[:MOST]


_APART = float(np.cos(np.radians(APART_DEG)))


def _centroid(triangles: NDArray[np.float64]) -> Vector:
    """Returns the centroid (3,) of the solid within triangles (T, 3, 3) of a convex surface."""
    inside = triangles.mean(axis=(0, 1))
    volumes = abs(np.linalg.det(triangles - inside))
    middles = (triangles.sum(axis=1) + inside) / 4
    return np.asarray(volumes @ middles / volumes.sum())


def _directions(faces: Matrix) -> Iterator[Vector]:
    """Yields unit vectors along which the pads may close: of faces, and spread over a sphere."""
    yield from faces[:, :3]
    heights = np.linspace(0.0, 1.0, SPREAD)
    turns = np.pi * (1 + 5**0.5) * np.arange(SPREAD)  # The golden angle (Vogel, 1979).
    radii = np.sqrt(1 - heights**2)
    yield from np.stack([radii * np.cos(turns), radii * np.sin(turns), heights], axis=1)


def _hold(
    points: Matrix, faces: Matrix, centre: Vector, across: Vector
) -> tuple[float, Hold] | None:
    """Returns a grasp along a direction with its angle, rad; None where the pads would slip.

    Args:
        points: (N, 3).
        faces: (F, 4), outward normals and offsets of the faces.
        centre: (3,), a point inside.
        across: (3,), the direction.
    """
    if np.ptp(points @ across) > WIDEST:
        return None
    slopes = faces[:, :3] @ across
    with np.errstate(divide="ignore"):
        away = -(faces[:, :3] @ centre + faces[:, 3]) / slopes  # Where the line leaves each plane.
    first = int(np.where(slopes > 0, away, np.inf).argmin())
    last = int(np.where(slopes < 0, away, -np.inf).argmax())
    angle = float(np.arccos(np.clip(min(slopes[first], -slopes[last]), -1.0, 1.0)))
    if angle > np.radians(SKEW_DEG):
        return None
    middle = centre + across * (away[first] + away[last]) / 2
    return angle, Hold(middle, across, float(away[first] - away[last]))
