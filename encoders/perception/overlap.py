"""Overlap of oriented boxes: the exact IoU and the sampled one."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import COUNT
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.labelled_image import CORNER_SIGNS, TOLERANCE, Box3d

Indices = NDArray[np.intp]

# Corners of the faces in the order of CORNER_SIGNS, anticlockwise as seen from outside.
_FACES = np.array(
    [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
)
_CHUNK = 4096
"""Pairs that are clipped at once; they take some 30 MB."""


def exact_iou(a: Box3d, b: Box3d) -> float:
    """Returns the volume of the intersection over that of the union, 0 to 1.

    The frame does not matter, if it is the same for both. Equal boxes have 1, touching ones 0, each
    within some 1e-15 of the distance of the boxes from each other over the shortest side.
    """
    return float(iou_matrix([a], [b])[0, 0])


def iou_matrix(first: Sequence[Box3d], second: Sequence[Box3d]) -> Array:
    """Returns `exact_iou` of each of the first boxes with each of the second, (N, M)."""
    found = np.zeros((len(first), len(second)))
    if not found.size:
        return found
    a = _Stack(first)
    b = _Stack(second)
    # Subtracted first, so that the distance to the origin costs no precision.
    apart = np.linalg.norm(a.centres[:, None] - b.centres, axis=-1)
    near = np.argwhere(apart < a.reaches[:, None] + b.reaches)
    for start in range(0, len(near), _CHUNK):
        rows, columns = near[start : start + _CHUNK].T
        limit = np.minimum(a.volumes[rows], b.volumes[columns])
        # Rounding may leave 1e-16 outside of the possible volumes.
        shared = np.clip(_shared_volumes(a, rows, b, columns), 0.0, limit)
        found[rows, columns] = shared / (a.volumes[rows] + b.volumes[columns] - shared)
    return found


def sampled_iou(predicted: Box3d, target: Box3d, *, points: int = 100_000, seed: int = 0) -> float:
    """Returns the IoU by random points, as published (STRING, Schenck et al., 2025, F.2.3).

    r, the share of points uniform in the predicted box that lie inside the target, gives
    r V_p / (V_t + (1 - r) V_p). `sampled_standard_error` is its standard error.
    """
    COUNT.check(points=points)
    # A point c of the cube is R_t^-1 (p - t + R_p S_p c) in the frame of the target.
    arms = np.linalg.solve(target.rotation, predicted.rotation * predicted.size)
    offset = np.linalg.solve(target.rotation, predicted.centre - target.centre)
    local = arms @ _cube(points, seed)
    local += offset[:, None]
    np.abs(local, out=local)
    share = float((local <= target.size[:, None] / 2).all(axis=0).mean())
    volume = _volume(predicted)
    return share * volume / (_volume(target) + (1 - share) * volume)


@lru_cache(maxsize=4)
def _cube(points: int, seed: int) -> Array:
    """Returns points (3, points) that are uniform in the cube of side 1 about 0."""
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (3, points))


def sampled_standard_error(predicted: Box3d, target: Box3d, points: int = 100_000) -> float:
    """Returns the standard error of `sampled_iou`, by the exact IoU.

    With V the volume of the prediction and T that of the target, the derivative of
    r V / (T + (1 - r) V) by r is V (T + V) / (T + (1 - r) V)^2.
    """
    COUNT.check(points=points)
    iou = exact_iou(predicted, target)
    volume = _volume(predicted)
    wanted = _volume(target)
    share = iou * (volume + wanted) / (1 + iou) / volume
    slope = volume * (wanted + volume) / (wanted + (1 - share) * volume) ** 2
    return float(slope * np.sqrt(max(share * (1 - share), 0.0) / points))


class _Stack:
    """Boxes as arrays; each of length N."""

    def __init__(self, boxes: Sequence[Box3d]) -> None:
        self.centres = np.stack([box.centre for box in boxes])
        self.rotations = np.stack([box.rotation for box in boxes])
        self.sizes = np.stack([box.size for box in boxes])
        self.volumes = np.array([_volume(box) for box in boxes])
        # Axes within the tolerance lengthen a diagonal by this factor at most.
        self.reaches = (1 + 3 * TOLERANCE) * np.linalg.norm(self.sizes, axis=-1) / 2


def _volume(box: Box3d) -> float:
    # Axes from a file are orthogonal within a tolerance only: the determinant is not quite 1.
    return float(box.size.prod() * np.linalg.det(box.rotation))


def _shared_volumes(
    a: _Stack, rows: NDArray[np.intp], b: _Stack, columns: NDArray[np.intp]
) -> Array:
    """Returns the volumes of intersection of pairs of boxes.

    In the frame of b, whose faces are x = +-X, y = +-Y, z = +-Z, a vertical line at (x, y) enters a
    at z_0 and leaves it at z_1, and shares the length c(z_1) - c(z_0) with b, where
    c(z) = max(z + Z, 0) - max(z - Z, 0) is the height over the floor of b, at most 2 Z. So the
    volume is the sum over the faces of a, clipped at +-X and +-Y, of the integral of c over their
    projection, which is negative for faces that look down. Of each summand the integral is a sum
    of signed prisms after one more clip. The faces of b do not occur, so faces of both boxes that
    coincide are not counted twice or missed, and each step is continuous.
    """
    offsets = a.centres[rows] - b.centres[columns]
    arms = CORNER_SIGNS / 2 * a.sizes[rows][:, None]
    corners = offsets[:, None] + arms @ a.rotations[rows].swapaxes(1, 2)
    frames = b.rotations[columns]
    local = np.linalg.solve(frames, corners.swapaxes(1, 2)).swapaxes(1, 2)
    polygons = local[:, _FACES].reshape(-1, 4, 3)
    half = np.repeat(b.sizes[columns] / 2, len(_FACES), axis=0)[:, None]
    for axis in (0, 1):
        for sign in (1.0, -1.0):
            polygons = _clipped(polygons, half[..., axis] - sign * polygons[..., axis])
    total = np.zeros(len(polygons))
    for sign in (1.0, -1.0):
        above = polygons - sign * np.array([0.0, 0.0, -1.0]) * half
        total += sign * _prisms(_clipped(above, above[..., 2]))
    found: Array = total.reshape(len(rows), -1).sum(axis=1) * np.linalg.det(frames)
    return found


def _clipped(polygons: Array, distances: Array) -> Array:
    """Returns the parts of convex polygons (K, V, 3) at distances (K, V) of 0 and above.

    The polygons get as many vertices as the largest needs; the others repeat one of theirs
    (I. E. Sutherland and G. W. Hodgman, "Reentrant polygon clipping", Communications of the ACM 17,
    1974, p. 32-42).
    """
    after = np.roll(distances, -1, axis=1)
    inside = distances >= 0
    crosses = inside != (after >= 0)
    shares = distances / np.where(crosses, distances - after, 1.0)
    cuts = polygons + shares[..., None] * (np.roll(polygons, -1, axis=1) - polygons)
    points = np.stack((polygons, cuts), axis=2).reshape(len(polygons), -1, 3)
    keeps = np.stack((inside, crosses), axis=2).reshape(len(polygons), -1)
    width = max(int(keeps.sum(axis=1).max()), 1)
    order = np.argsort(~keeps, axis=1, kind="stable")[:, :width]
    points = np.take_along_axis(points, order[..., None], axis=1)
    kept = np.take_along_axis(keeps, order, axis=1)
    return np.where(kept[..., None], points, points[:, :1])


def _prisms(polygons: Array) -> Array:
    """Returns the signed volumes between polygons (K, V, 3) and the plane z = 0."""
    first = polygons[:, :1]
    second = polygons[:, 1:-1]
    third = polygons[:, 2:]
    one = second - first
    two = third - first
    areas = (one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0]) / 2
    found: Array = (areas * (first + second + third)[..., 2]).sum(axis=1) / 3
    return found
