"""Placement of rectangles without overlap."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stringline.sim.scenes.solids import Vectors

_SIGNS = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], dtype=np.float64)
_TOUCH_M = 1e-9


@dataclass(frozen=True)
class Rectangle:
    """A turned rectangle in a plane.

    Attributes:
        x: Its middle, metres.
        y: Its middle.
        half_x: Half length along its first axis.
        half_y: Half length along its second axis.
        yaw: Angle of its first axis, rad.
    """

    x: float
    y: float
    half_x: float
    half_y: float
    yaw: float = 0.0

    def axes(self) -> Vectors:
        """Returns the axes (2, 2), one per row."""
        cos = np.cos(self.yaw)
        sin = np.sin(self.yaw)
        return np.array([(cos, sin), (-sin, cos)])

    def corners(self, margin: float = 0.0) -> Vectors:
        """Returns the corners (4, 2) of the rectangle, grown by a margin."""
        half = np.array([self.half_x + margin, self.half_y + margin])
        found: Vectors = np.array([self.x, self.y]) + (_SIGNS * half) @ self.axes()
        return found


def overlap(a: Rectangle, b: Rectangle, margin: float = 0.0) -> bool:
    """Returns whether two rectangles are nearer than a margin, by their separating axes."""
    reach = np.hypot(a.half_x, a.half_y) + np.hypot(b.half_x, b.half_y) + margin
    if (a.x - b.x) ** 2 + (a.y - b.y) ** 2 > reach**2:
        return False
    first = a.corners(margin)
    second = b.corners()
    for axis in (*a.axes(), *b.axes()):
        p = first @ axis
        q = second @ axis
        if p.max() <= q.min() + _TOUCH_M or q.max() <= p.min() + _TOUCH_M:
            return False
    return True


class Packing:
    """A level rectangle around the origin, and the rectangles on it."""

    def __init__(self, half_x: float, half_y: float, margin: float) -> None:
        self.half_x = half_x
        self.half_y = half_y
        self.margin = margin
        self.taken: list[Rectangle] = []

    def fits(self, one: Rectangle, others: Iterable[Rectangle] = ()) -> bool:
        """Returns whether a rectangle lies inside and overlaps none of those here and of others."""
        reach = np.abs(one.corners()).max(0)
        if reach[0] > self.half_x or reach[1] > self.half_y:
            return False
        return not any(overlap(one, other, self.margin) for other in (*self.taken, *others))

    def add(self, one: Rectangle) -> None:
        """Takes the space of a rectangle."""
        self.taken.append(one)
