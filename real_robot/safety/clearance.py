"""Distances of the arms from the table, from walls and from each other, by capsules."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Embodiment

Vector = NDArray[np.float64]

# The base and the first link are mounted on the table.
_FIRST_MOVING_LINK = 1
# Beyond this distance above the smallest allowed one, arms need no exact distance.
_FAR_M = 0.1


class Room(NamedTuple):
    """Distances around each of C capsules of A arms, metres; negative in an overlap.

    Attributes:
        heights: (..., A, C) height of the lowest point above the table; infinite for links that
            are mounted on the table.
        between: (..., A, C) distance from the nearest other arm, or a lower bound of a large one;
            infinite for a single arm.
        walls: (..., A, C) distance from the nearest wall of the box; infinite without walls, and
            for links that never move.
    """

    heights: Vector
    between: Vector
    walls: Vector


class Clearance:
    """Distances of an embodiment at joint vectors.

    Args:
        table_height: Height of the table top in the base frame, metres.
        box: (2, 3) lowest and highest corner of the space within walls, base frame, metres; None:
            no walls.
        exact_up_to: Distances between arms are exact up to 10 cm above this one, metres.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        table_height: float = 0.0,
        box: Vector | None = None,
        *,
        exact_up_to: float = 0.0,
    ) -> None:
        self._embodiment = embodiment
        self._table_height = table_height
        self._box = box
        self._far = _FAR_M + max(exact_up_to, 0.0)
        self._radius = np.array([mount.radius for mount in embodiment.capsule_mounts])
        halves = [
            float(np.linalg.norm(mount.end - mount.start)) / 2
            for mount in embodiment.capsule_mounts
        ]
        self._around = np.array(halves) + self._radius
        self._moving = np.array(
            [mount.link >= _FIRST_MOVING_LINK for mount in embodiment.capsule_mounts]
        )

    def measure(self, q: Vector) -> Room:
        """Returns the distances at joint vectors (..., J)."""
        axes = self._embodiment.capsule_axes(q)
        lowest = axes.min(axis=-2)
        highest = axes.max(axis=-2)
        heights = lowest[..., 2] - self._radius - self._table_height
        walls = np.full(heights.shape, np.inf)
        if self._box is not None:
            walls = (
                np.minimum(lowest - self._box[0], self._box[1] - highest).min(axis=-1)
                - self._radius
            )
        return Room(self._of_moving(heights), self._between(axes), self._of_moving(walls))

    def _of_moving(self, values: Vector) -> Vector:
        return np.where(self._moving, values, np.inf)

    def _between(self, axes: Vector) -> Vector:
        nearest = np.full(axes.shape[:-2], np.inf)
        for one, other in combinations(range(len(self._embodiment.arms)), 2):
            gaps = self._gaps(axes[..., one, :, :, :], axes[..., other, :, :, :])
            nearest[..., one, :] = np.minimum(
                nearest[..., one, :], gaps.min(axis=-1, initial=np.inf)
            )
            nearest[..., other, :] = np.minimum(
                nearest[..., other, :], gaps.min(axis=-2, initial=np.inf)
            )
        return nearest

    def _gaps(self, one: Vector, other: Vector) -> Vector:
        """Returns the distances (..., C, C) of the capsules of two arms with axes (..., C, 2, 3).

        For pairs that are far apart in all poses it is the distance of their bounding spheres, a
        cheap lower bound.
        """
        middles = one.mean(axis=-2)[..., :, None, :] - other.mean(axis=-2)[..., None, :, :]
        gaps: Vector = np.sqrt(_dot(middles, middles)) - self._around[:, None] - self._around
        near = (gaps < self._far).any(axis=tuple(range(gaps.ndim - 2)))
        mine, theirs = np.nonzero(near)
        between = segment_distance(
            one[..., mine, 0, :],
            one[..., mine, 1, :],
            other[..., theirs, 0, :],
            other[..., theirs, 1, :],
        )
        gaps[..., mine, theirs] = between - self._radius[mine] - self._radius[theirs]
        return gaps


def segment_distance(start_a: Vector, end_a: Vector, start_b: Vector, end_b: Vector) -> Vector:
    """Returns the distances (...) between segments with ends (..., 3).

    Ericson (2005), Real-Time Collision Detection, section 5.1.9: nearest points of the lines,
    clamped to the segments in turn. Exact to a few micrometres: shorter segments count as points.
    """
    along_a = end_a - start_a
    along_b = end_b - start_b
    between = start_a - start_b
    aa = _dot(along_a, along_a)
    bb = _dot(along_b, along_b)
    ab = _dot(along_a, along_b)
    a_between = _dot(along_a, between)
    b_between = _dot(along_b, between)
    tiny = 1e-12
    determinant = aa * bb - ab * ab
    s = np.where(
        determinant > tiny, (ab * b_between - a_between * bb) / np.maximum(determinant, tiny), 0.0
    )
    s = np.clip(s, 0.0, 1.0)
    t = np.clip(np.where(bb > tiny, (ab * s + b_between) / np.maximum(bb, tiny), 0.0), 0.0, 1.0)
    s = np.clip(np.where(aa > tiny, (ab * t - a_between) / np.maximum(aa, tiny), 0.0), 0.0, 1.0)
    nearest = between + s[..., None] * along_a - t[..., None] * along_b
    return np.asarray(np.sqrt(_dot(nearest, nearest)))


def _dot(a: Vector, b: Vector) -> Vector:
    return np.asarray(np.einsum("...i,...i->...", a, b))
