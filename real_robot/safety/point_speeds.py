"""Lengths that points of the arms travel in a period, and shares of speeds that shorten them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.link_points import LinkPoints
from stringline.real_robot.safety.measured import Measured, cross

Vector = NDArray[np.float64]

_TINY = 1e-300
# Share of the limit that a reduced speed aims at: the estimate of the share is linear.
_AIM = 0.99


class PointSpeeds:
    """P points (`LinkPoints`) of A arms with H hinges in total.

    Args:
        link_points: Points of each arm.
        largest_m: Largest length of a step, metres.

    Attributes:
        slowed: (A,) arms that were about as fast as allowed in the last cycle.
    """

    def __init__(self, link_points: Sequence[LinkPoints], largest_m: float) -> None:
        self._largest_m = largest_m
        places = [len(points.places) for points in link_points]
        self._first = np.cumsum([0, *places[:-1]])
        hinges = [len(points.hinges) for points in link_points]
        firsts = np.cumsum([0, *hinges]).tolist()
        self._moves = np.zeros((sum(places), sum(hinges)))
        rows = iter(self._moves)
        for points, first in zip(link_points, firsts[:-1], strict=True):
            for link, _ in points.places:
                next(rows)[first : first + link + 1] = 1.0
        self.slowed = np.zeros(len(places), dtype=np.bool_)

    def fastest(self, steps: Vector) -> Vector:
        """Returns the largest length (A,) of steps (T, P, 3) of each arm, metres."""
        squares = _dot(steps, steps).max(axis=0)
        return np.asarray(np.sqrt(np.maximum.reduceat(squares, self._first)))

    def shares(self, slow: Vector, fast: Vector) -> Vector:
        """Returns the largest shares (A,) of the way from slow to fast steps that are allowed.

        The steps are (T, P, 3), metres.
        """
        largest = _AIM * self._largest_m
        way = fast - slow
        # |slow + share * way|^2 = largest^2
        a = _dot(way, way)
        b = _dot(slow, way)
        c = np.minimum(_dot(slow, slow) - largest**2, 0.0)
        found = (np.sqrt(b * b - a * c) - b) / np.maximum(a, _TINY)
        too_fast = _dot(fast, fast) > largest**2
        least = np.where(too_fast, np.minimum(found, 1.0), 1.0).min(axis=0)
        return np.asarray(np.minimum.reduceat(least, self._first))

    def first_steps(self, measured: Measured, changes: Vector) -> Vector:
        """Returns the motion (N, P, 3) by N changes (N, H) of the first pose, to first order."""
        axes = measured.axes[0]
        # A hinge moves a point p by axis x p + anchor x axis per radian.
        screws = np.concatenate([axes, cross(measured.anchors[0], axes)], axis=1)
        moved = (self._moves * changes[:, None]) @ screws
        return np.asarray(cross(moved[..., :3], measured.points[0]) + moved[..., 3:])


def _dot(a: Vector, b: Vector) -> Vector:
    return np.asarray(np.einsum("...i,...i->...", a, b))
