"""What one pass over N poses measures: capsules, points and hinges of the arms, and their contacts.

The arms have C capsules each, P points and H hinges in total. Vectors are in the base frame, in
metres.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

OTHER_ARM, SAME_ARM, OBSTACLE = range(3)
KINDS = 3
_NEXT = np.array([1, 2, 0])
_LAST = np.array([2, 0, 1])


class Contacts(NamedTuple):
    """K pairs of near shapes, at most the largest measured distance apart.

    Attributes:
        poses: (K,) number of the pose.
        places: (K, 2) numbers of the capsules among the A times C, then those of obstacles.
        kinds: (K,) `OTHER_ARM`, `SAME_ARM` or `OBSTACLE`.
        distances: (K,) metres.
        points: (K, 3) between their nearest points.
        normals: (K, 3) unit vectors from the first shape to the second one.
    """

    poses: Indices
    places: Indices
    kinds: Indices
    distances: Vector
    points: Vector
    normals: Vector

    def where(self, kept: NDArray[np.bool_] | Indices) -> "Contacts":
        """Returns the pairs at `kept`, a mask (K,) or indices."""
        return Contacts(
            self.poses[kept],
            self.places[kept],
            self.kinds[kept],
            self.distances[kept],
            self.points[kept],
            self.normals[kept],
        )

    @staticmethod
    def joined(parts: Sequence["Contacts"]) -> "Contacts":
        """Returns the pairs of all parts."""
        return Contacts(
            np.concatenate([part.poses for part in parts]),
            np.concatenate([part.places for part in parts]),
            np.concatenate([part.kinds for part in parts]),
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.normals for part in parts]),
        )


class Measured(NamedTuple):
    """The arms at N poses.

    Attributes:
        ends: (N, A, C, 2, 3) ends of the axes of the capsules; of no meaning in unused places.
        nearest: (N, 3, A, C) distances from the nearest other arm, from the nearest capsule of the
            same arm, and from the nearest obstacle; at most the largest measured one.
        points: (N, P, 3) points fixed to links (`LinkPoints`), of one arm after the other.
        axes: (N, H, 3) directions of the hinges, of one arm after the other.
        anchors: (N, H, 3) points on their axes.
        contacts: Pairs that are near.
    """

    ends: Vector
    nearest: Vector
    points: Vector
    axes: Vector
    anchors: Vector
    contacts: Contacts

    def last(self, count: int) -> "Measured":
        """Returns the last `count` poses."""
        first = len(self.ends) - count
        contacts = self.contacts.where(self.contacts.poses >= first)
        return Measured(
            self.ends[first:],
            self.nearest[first:],
            self.points[first:],
            self.axes[first:],
            self.anchors[first:],
            contacts._replace(poses=contacts.poses - first),
        )

    @staticmethod
    def joined(parts: Sequence["Measured"]) -> "Measured":
        """Returns the poses of several passes, in their order."""
        if len(parts) == 1:
            return parts[0]
        firsts = np.cumsum([0, *(len(part.ends) for part in parts[:-1])]).tolist()
        contacts = [
            part.contacts._replace(poses=part.contacts.poses + first)
            for part, first in zip(parts, firsts, strict=True)
        ]
        return Measured(
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.nearest for part in parts]),
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.axes for part in parts]),
            np.concatenate([part.anchors for part in parts]),
            Contacts.joined(contacts),
        )


def cross(a: Vector, b: Vector) -> Vector:
    """Returns the cross products (..., 3) of vectors (..., 3), faster than `np.cross`."""
    return a[..., _NEXT] * b[..., _LAST] - a[..., _LAST] * b[..., _NEXT]
