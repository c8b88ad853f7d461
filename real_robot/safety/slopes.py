"""Slopes of distances: how the hinges of an arm change the room around its capsules."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stringline.real_robot.safety.collision_model import (
    OBSTACLE,
    OTHER_ARM,
    SAME_ARM,
    CollisionModel,
    Measured,
    cross,
)

Vector = NDArray[np.float64]

KINDS: Mapping[str, int] = {"between": OTHER_ARM, "own": SAME_ARM, "obstacles": OBSTACLE}
"""Fields of `Room` that are distances of pairs, and the kind of pairs."""

_UP = np.array([0.0, 0.0, 1.0])


class Direction(NamedTuple):
    """How a distance changes: by the motion of a point along a normal.

    Attributes:
        normal: (3,) unit vector, base frame.
        point: (3,) metres, base frame.
        from_link: The hinges after that of this link move the point; -1: all.
        to_link: The hinges up to that of this link do.
    """

    normal: Vector
    point: Vector
    from_link: int
    to_link: int


class ArmSlopes:
    """Slopes at the pose that `model` measured last.

    Args:
        links: Link of each capsule of the arm.
        place: Number of the arm.
        box: (2, 3) lowest and highest corner of the space within walls, or None.

    Attributes:
        hinges: Hinges of the arm.
    """

    def __init__(
        self,
        model: CollisionModel,
        measured: Measured,
        links: Sequence[int],
        place: int,
        box: Vector | None,
    ) -> None:
        self._contacts = model.contacts()
        self._kinds, self._places = model.sides(self._contacts.geoms)
        self.hinges = model.hinges(place)
        self._middles = measured.middles[-1, place]
        self._halves = measured.halves[-1, place]
        self._first = place * measured.middles.shape[2]
        self._links = links
        self._box = box

    def of(self, which: Sequence[tuple[str, int]]) -> Vector:
        """Returns the slopes (N, H) of N distances, by field of `Room` and number of the capsule.

        Metres per radian. The least of several distances has the slope of the nearest thing.
        """
        directions = [
            self._of_pair(KINDS[name], capsule) if name in KINDS else self._of_plane(name, capsule)
            for name, capsule in which
        ]
        normals, points, from_link, to_link = (
            np.array(part) for part in zip(*directions, strict=True)
        )
        axes, offsets, _ = self.hinges
        slopes = cross(points, normals) @ axes.T + normals @ offsets.T
        hinge = np.arange(len(axes))
        moves = (hinge > from_link[:, None]) & (hinge <= to_link[:, None])
        return np.asarray(np.where(moves, slopes, 0.0))

    def _of_plane(self, name: str, capsule: int) -> Direction:
        """Returns the direction away from the table, or from the nearest wall."""
        middle, half = self._middles[capsule], self._halves[capsule]
        normal = _UP
        if name == "walls":
            assert self._box is not None
            gaps = np.stack([middle - self._box[0], self._box[1] - middle]) - np.abs(half)
            side, axis = np.unravel_index(gaps.argmin(), gaps.shape)
            normal = np.eye(3)[axis] * (-1.0 if side else 1.0)
        along = half @ normal
        return Direction(normal, middle - np.sign(along) * half, -1, self._links[capsule])

    def _of_pair(self, kind: int, capsule: int) -> Direction:
        """Returns the direction away from the nearest other capsule or obstacle."""
        ours = self._places == self._first + capsule
        found = np.flatnonzero((self._kinds == kind) & ours.any(axis=1))
        nearest = found[self._contacts.distances[found].argmin()]
        normal, point = self._contacts.normals[nearest], self._contacts.points[nearest]
        link = self._links[capsule]
        if kind == SAME_ARM:
            links = [self._links[place - self._first] for place in self._places[nearest]]
            away = normal if links[1] > links[0] else -normal
            return Direction(away, point, min(links), max(links))
        return Direction(normal if ours[nearest, 1] else -normal, point, -1, link)
