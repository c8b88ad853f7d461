"""Distances of capsules from each other and from obstacles, by MuJoCo (Todorov et al., 2012).

`mj_collision` with a margin measures all pairs of primitive shapes in one call, equal to the closed
forms up to rounding. One departure: a capsule whose axis is inside a box gets less than its true
depth, but a negative distance. Meshes are convex hulls. Outside of them the distances of
`mj_collision` are too large, so their pairs need `mj_geomDistance`, which is exact to 1e-8 m.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import CapsuleMount, Embodiment
from stringline.real_robot.safety.arm_copies import ArmCopies, Pair
from stringline.real_robot.safety.cell import Obstacle
from stringline.real_robot.safety.link_points import LinkPoints
from stringline.real_robot.safety.measured import OBSTACLE, Contacts, Measured, cross

Vector = NDArray[np.float64]

# Numbers of poses for which there is a model. A pass takes as long as all of its copies.
_COPIES = (1, 5, 12)


class CollisionModel:
    """Capsules on arms, and obstacles around them.

    Args:
        mounts: Capsules of each arm.
        obstacles: Obstacles in the base frame.
        pairs: Pairs whose distance is measured.
        far: Largest measured distance, metres.
        link_points: Points of each arm whose speed is limited.

    Attributes:
        obstacles: Number of obstacles.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        mounts: Sequence[Sequence[CapsuleMount]],
        obstacles: Sequence[Obstacle],
        pairs: Sequence[Pair],
        far: float,
        link_points: Sequence[LinkPoints],
    ) -> None:
        self.obstacles = len(obstacles)
        width = max(len(of_arm) for of_arm in mounts)
        self._names = [f"{arm}/{i}" for arm in embodiment.arms for i in range(width)]
        self._names += [obstacle.name for obstacle in obstacles]
        self._passes = [
            ArmCopies(
                embodiment, mounts, obstacles, pairs, far, link_points=link_points, count=count
            )
            for count in _COPIES
        ]
        # The smallest pass for each number of poses.
        self._pass_for = [
            self._passes[int(np.searchsorted(_COPIES, count))] for count in range(_COPIES[-1] + 1)
        ]
        hinges = [len(chain.links) for chain in embodiment.chains]
        firsts = np.cumsum([0, *hinges])
        # One place more than there are: what never moves, such as the table.
        self._moves = np.zeros((len(self._names) + 1, firsts[-1]))
        for place, of_arm in enumerate(mounts):
            for i, mount in enumerate(of_arm):
                moving = slice(firsts[place], firsts[place] + mount.link + 1)
                self._moves[place * width + i, moving] = 1.0

    def measure(self, q: Vector) -> Measured:
        """Returns the arms at joint vectors (N, J)."""
        most = _COPIES[-1]
        parts = [q[first : first + most] for first in range(0, max(len(q), 1), most)]
        return Measured.joined([self._pass_for[len(part)].measure(part) for part in parts])

    def slopes(self, measured: Measured, near: Contacts) -> Vector:
        """Returns how the H hinges change K distances: (K, H), metres per radian."""
        axes = measured.axes[near.poses]
        anchors = measured.anchors[near.poses]
        # A hinge moves a point p by axis x (p - anchor) per radian.
        levers = near.points[:, None] - anchors
        along = np.einsum("khi,khi->kh", axes, cross(levers, near.normals[:, None]))
        return np.asarray(along * (self._moves[near.places[:, 1]] - self._moves[near.places[:, 0]]))

    def from_obstacles(self, measured: Measured) -> list[tuple[str, str, float]]:
        """Returns capsule, obstacle and distance of the pairs that are near."""
        near = measured.contacts.where(measured.contacts.kinds == OBSTACLE)
        capsules, obstacles = np.sort(near.places, axis=1).T.tolist()
        return [
            (self._names[capsule], self._names[obstacle], distance)
            for capsule, obstacle, distance in zip(
                capsules, obstacles, near.distances.tolist(), strict=True
            )
        ]
