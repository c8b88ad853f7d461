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
    Measured,
    Pair,
)
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.slopes import ArmSlopes

Vector = NDArray[np.float64]

# The base and the first link are mounted on the table.
_FIRST_MOVING_LINK = 1
# Beyond this distance above the smallest allowed one, capsules need no exact distance.
_FAR_M = 0.1
# An axis within this angle of the line to the next hinge turns the next link and does not bend the
# arm (sine).
_ROLLING = 0.1


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
        box: (2, 3) lowest and highest corner of the space within walls, base frame, metres; None:
            no walls.
        cell: Tools, cameras and obstacles.
        exact_up_to: Distances are exact up to 10 cm above this one, metres.

    Attributes:
        mounts: Capsules of each arm: its links, then its wrist cameras, then its tool.
        own_pairs: Pairs of capsules of an arm whose distance is measured, for each arm. Between
            them are two hinges that bend the arm, or, if the arm carries one of the capsules, one
            that bends it and another one. Capsules with fewer hinges between them overlap in usual
            poses, where the limits of the joints keep the links themselves apart.
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
        self._radius = np.zeros(shape)
        self._moving = np.zeros(shape, dtype=np.bool_)
        for place, of_arm in enumerate(self.mounts):
            self._radius[place, : len(of_arm)] = [mount.radius for mount in of_arm]
            self._moving[place, : len(of_arm)] = _moves(of_arm)
        self.own_pairs = tuple(
            _own_pairs(chain, of_arm, len(links))
            for chain, of_arm in zip(embodiment.chains, self.mounts, strict=True)
        )
        self._measured: Measured | None = None
        self._model = CollisionModel(
            embodiment,
            self.mounts,
            cell.obstacles,
            _pairs(embodiment.arms, self.mounts, self.own_pairs, cell),
            far=_FAR_M + max(exact_up_to, 0.0),
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
        self._measured = self._model.measure(q.reshape(-1, q.shape[-1]))
        middles, halves, nearest = self._measured
        extents = np.abs(halves)
        heights = middles[..., 2] - extents[..., 2] - self._radius - self._table_height
        walls = np.full(heights.shape, np.inf)
        if self._box is not None:
            gaps = np.minimum(middles - extents - self._box[0], self._box[1] - middles - extents)
            walls = gaps.min(axis=-1) - self._radius
        found = (
            np.where(self._moving, heights, np.inf),
            np.where(self._moving, walls, np.inf),
            *(nearest[:, kind] for kind in (OTHER_ARM, SAME_ARM, OBSTACLE)),
        )
        return Room(*(each.reshape(*q.shape[:-1], *each.shape[1:]) for each in found))

    def overlaps(self, q: Vector) -> list[str]:
        """Returns a sentence for each obstacle of the cell in which an arm is at a pose (J,)."""
        self.measure(q)
        deepest: dict[tuple[str, str], float] = {}
        for capsule, obstacle, distance in self._model.from_obstacles():
            key = obstacle, capsule.partition("/")[0]
            deepest[key] = min(deepest.get(key, 0.0), distance)
        return [
            f"The arm {arm!r} is {-1e3 * depth:.0f} mm inside the obstacle {obstacle!r} of the "
            f"cell. Correct the limits file, or move the arm out by hand."
            for (obstacle, arm), depth in deepest.items()
            if depth < 0
        ]

    def slopes(self, place: int) -> ArmSlopes:
        """Returns the slopes around an arm, given by its number, at the pose measured last."""
        assert self._measured is not None
        links = [mount.link for mount in self.mounts[place]]
        return ArmSlopes(self._model, self._measured, links, place, self._box)


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
