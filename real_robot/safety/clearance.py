"""Distances of the arms from the table, from walls, obstacles, each other and themselves."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import CapsuleMount, Chain, Embodiment
from stringline.real_robot.safety.cell import NO_OBSTACLES, Cell
from stringline.real_robot.safety.collision_model import (
    OBSTACLE,
    OTHER_ARM,
    SAME_ARM,
    CollisionModel,
    Contacts,
    LinkPoints,
    Measured,
    Pair,
)
from stringline.real_robot.safety.limits import SafetyLimits

Vector = NDArray[np.float64]

# The base and the first link are mounted on the table.
_FIRST_MOVING_LINK = 1
# Beyond this distance above the smallest allowed one, capsules need no exact distance.
_FAR_M = 0.1
# An axis within this angle of the line to the next revolute joint turns the next link and does not
# bend the arm (sine).
_ROLLING = 0.1
_UP = np.array([[0.0, 0.0, 1.0]])
_INWARDS = np.concatenate([np.eye(3), -np.eye(3)])  # Normals of the walls.


class Room(NamedTuple):
    """Distances around each of C capsules of A arms, metres; negative in an overlap.

    The last three are lower bounds where they are large. Capsules that an arm does not have, and
    those for which a distance has no meaning, have infinite ones.

    Attributes:
        heights: (..., A, C) height of the lowest point above the table; infinite for links that
            are mounted on the table.
        walls: (..., A, C) distance from the nearest wall of the box; infinite without walls, and
            for links that never move.
        between: (..., A, C) distance from the nearest other arm.
        own: (..., A, C) distance from the nearest capsule of the same arm, among `own_pairs`.
        obstacles: (..., A, C) distance from the nearest obstacle of the cell.
    """

    heights: Vector
    walls: Vector
    between: Vector
    own: Vector
    obstacles: Vector


class Clearance:
    """Distances of an embodiment at joint vectors.

    Args:
        table_height: Height of the table top in the base frame, metres.
        box: (2, 3) lowest and highest corner of the space within walls, base frame, metres; if
            None, no walls.
        cell: Tools, cameras and obstacles.
        exact_up_to: Distances are exact up to 10 cm above this one, metres.

    Attributes:
        mounts: Capsules of each arm: its links, then its wrist cameras, then its tool.
        own_pairs: Pairs of capsules of an arm whose distance is measured, for each arm. Between
            them are two revolute joints that bend the arm, or, if the arm carries one of the
            capsules, one that bends it and another one. Capsules with fewer revolute joints between
            them overlap in usual poses, where the limits of the joints keep the links themselves
            apart.
        link_points: Points of each arm whose speed is limited.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        table_height: float = 0.0,
        box: Vector | None = None,
        cell: Cell = NO_OBSTACLES,
        *,
        exact_up_to: float = 0.0,
    ) -> None:
        self._table_height = table_height
        self._box = box
        carried = cell.carried(embodiment)
        links = (*embodiment.capsule_mounts, *embodiment.enclosing_mounts)
        self.mounts = tuple((*links, *carried[arm]) for arm in embodiment.arms)
        shape = len(self.mounts), max(len(of_arm) for of_arm in self.mounts)
        # Radii; infinitely small where the distance from table and walls has no meaning.
        self._wide = np.full(shape, -np.inf)
        for place, of_arm in enumerate(self.mounts):
            radii = [mount.radius for mount in of_arm]
            self._wide[place, : len(of_arm)] = np.where(_moves(of_arm), radii, -np.inf)
        self._no_walls = np.full(shape, np.inf)
        self._above = self._wide + table_height
        self.own_pairs = tuple(
            _own_pairs(chain, of_arm, len(links))
            for chain, of_arm in zip(embodiment.chains, self.mounts, strict=True)
        )
        self.link_points = [
            LinkPoints(embodiment, chain, carried[chain.arm]) for chain in embodiment.chains
        ]
        self.model = CollisionModel(
            embodiment,
            self.mounts,
            cell.obstacles,
            _pairs(embodiment.arms, self.mounts, self.own_pairs, cell),
            far=_FAR_M + max(exact_up_to, 0.0),
            link_points=self.link_points,
        )

    @classmethod
    def of(cls, embodiment: Embodiment, limits: SafetyLimits) -> Self:
        """Builds the distances that limits bound."""
        return cls(
            embodiment,
            limits.table_height,
            limits.box,
            limits.cell,
            exact_up_to=max(limits.arm_clearance, limits.self_clearance, limits.cell_clearance),
        )

    def measure(self, q: Vector) -> Room:
        """Returns the distances at joint vectors (..., J)."""
        q = np.asarray(q, dtype=np.float64)
        found = self.room(self.model.measure(q.reshape(-1, q.shape[-1])))
        return Room(*(each.reshape(*q.shape[:-1], *each.shape[1:]) for each in found))

    def room(self, measured: Measured) -> Room:
        """Returns the distances at N measured poses."""
        ends = measured.ends
        heights = np.minimum(ends[..., 0, 2], ends[..., 1, 2]) - self._above
        walls = self._no_walls
        if self._box is not None:
            gaps = np.minimum(ends - self._box[0], self._box[1] - ends)
            walls = gaps.min(axis=(-2, -1)) - self._wide
        nearest = (measured.nearest[:, kind] for kind in (OTHER_ARM, SAME_ARM, OBSTACLE))
        return Room(heights, np.broadcast_to(walls, heights.shape), *nearest)

    def from_table(self, measured: Measured, near: NDArray[np.bool_]) -> Contacts:
        """Returns the ends of capsules in `near` (N, A, C) above the table, as contacts with it."""
        low = np.array([[0.0, 0.0, self._table_height]])
        return self._from_planes(measured, near, low, _UP)

    def from_walls(self, measured: Measured, near: NDArray[np.bool_]) -> Contacts:
        """Returns the ends of capsules in `near` (N, A, C) at each wall, as contacts with it."""
        assert self._box is not None
        return self._from_planes(measured, near, np.repeat(self._box, 3, axis=0), _INWARDS)

    def _from_planes(
        self, measured: Measured, near: NDArray[np.bool_], points: Vector, normals: Vector
    ) -> Contacts:
        """Returns ends of capsules beside planes through `points` (W, 3) with `normals` (W, 3)."""
        poses, arms, capsules = near.nonzero()
        ends = measured.ends[poses, arms, capsules]
        distances = ends @ normals.T - (points * normals).sum(axis=1)
        distances -= self._wide[arms, capsules][:, None, None]
        each = 2 * len(normals)
        places = np.repeat(arms * near.shape[2] + capsules, each)
        return Contacts(
            np.repeat(poses, each),
            np.stack([np.full_like(places, -1), places], axis=1),
            np.full_like(places, OBSTACLE),
            distances.ravel(),
            np.repeat(ends.reshape(-1, 3), len(normals), axis=0),
            np.tile(normals, (2 * len(poses), 1)),
        )

    def overlaps(self, q: Vector) -> list[str]:
        """Returns a sentence for each obstacle of the cell in which an arm is at a pose (J,)."""
        deepest: dict[tuple[str, str], float] = {}
        for capsule, obstacle, distance in self.model.from_obstacles(self.model.measure(q[None])):
            key = obstacle, capsule.partition("/")[0]
            deepest[key] = min(deepest.get(key, 0.0), distance)
        return [
            f"The arm {arm!r} is {-1e3 * depth:.0f} mm inside the obstacle {obstacle!r} of the "
            f"cell. Correct the limits file, or move the arm out by hand."
            for (obstacle, arm), depth in deepest.items()
            if depth < 0
        ]


def _moves(mounts: Sequence[CapsuleMount]) -> list[bool]:
    return [mount.link >= _FIRST_MOVING_LINK for mount in mounts]


def _own_pairs(
    chain: Chain, mounts: Sequence[CapsuleMount], links: int
) -> tuple[tuple[int, int], ...]:
    """Returns the pairs of capsules of an arm; the first `links` capsules are those of links."""
    following = [*(link.T_parent_link for link in chain.links[1:]), chain.T_last_gripper]
    bends = [
        bool(np.linalg.norm(np.cross(axis, T[:3, 3])) > _ROLLING * np.linalg.norm(T[:3, 3]))
        for axis, T in zip(chain.axes, following, strict=True)
    ]
    found = []
    for one, other in combinations(range(len(mounts)), 2):
        first, last = sorted((mounts[one].link, mounts[other].link))
        bending = sum(bends[first + 1 : last + 1])
        if bending >= 2 or (other >= links and bending and last - first >= 2):
            found.append((one, other))
    return tuple(found)


def _pairs(
    arms: Sequence[str],
    mounts: Sequence[Sequence[CapsuleMount]],
    own_pairs: Sequence[Sequence[tuple[int, int]]],
    cell: Cell,
) -> list[Pair]:
    """Returns the names of the capsules and obstacles whose distance is measured."""
    names = [
        [f"{arm}/{i}" for i in range(len(of_arm))] for arm, of_arm in zip(arms, mounts, strict=True)
    ]
    between = [pair for one, other in combinations(names, 2) for pair in product(one, other)]
    own = [
        (of_arm[one], of_arm[other])
        for of_arm, pairs in zip(names, own_pairs, strict=True)
        for one, other in pairs
    ]
    around = [
        (name, obstacle.name)
        for of_arm, capsules in zip(names, mounts, strict=True)
        for name, moves in zip(of_arm, _moves(capsules), strict=True)
        if moves
        for obstacle in cell.obstacles
    ]
    return [*between, *own, *around]
