"""Success predicates: contacts, footprints on the table, and conditions that must hold for a time."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dm_control import mjcf
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.transforms import Matrix, inverse


class Contacts:
    """Groups of shapes of one compiled model.

    Args:
        physics: The compiled model.
        groups: Shapes by the group's name; a shape belongs to one group at most.
    """

    def __init__(self, physics: mjcf.Physics, groups: Mapping[str, Sequence[mjcf.Element]]) -> None:
        self._names = list(groups)
        self._group = np.full(physics.model.ngeom, -1)
        for index, shapes in enumerate(groups.values()):
            self._group[np.array(physics.bind(shapes).element_id)] = index

    def touching(self, physics: mjcf.Physics) -> set[frozenset[str]]:
        """Returns the pairs of groups that are in contact now."""
        pairs = self._group[physics.data.contact.geom]
        return {frozenset((self._names[a], self._names[b])) for a, b in pairs if a >= 0 and b >= 0}


TRIES = 40


def gap(T_table_a: Matrix, half_a: ArrayLike, T_table_b: Matrix, half_b: ArrayLike) -> float:
    """Returns how far apart two boxes are from above, metres; below zero where they overlap.

    It is the widest gap along a side of one of them (separating axes, Gottschalk et al. 1996); the
    distance is never below it.

    Args:
        T_table_a: (4, 4), pose of the first; its z axis points up.
        half_a: (2,) half of its lengths along its x and y axis, metres.
        T_table_b: (4, 4), of the second.
        half_b: (2,), of the second.
    """
    # (2, 2), one side's direction per row.
    sides_a = T_table_a[:2, :2].T
    sides_b = T_table_b[:2, :2].T
    axes = np.concatenate([sides_a, sides_b])
    between = np.abs(axes @ (T_table_b[:2, 3] - T_table_a[:2, 3]))
    radii = np.abs(axes @ sides_a.T) @ np.asarray(half_a) + np.abs(axes @ sides_b.T) @ np.asarray(
        half_b
    )
    return float((between - radii).max())


def draw_apart(
    draw: Callable[[], tuple[Matrix, Matrix]],
    space: Callable[[Matrix, Matrix], float],
    least: float,
) -> tuple[Matrix, Matrix]:
    """Returns the first of 40 draws of two poses with that much space between them; if none has, the one with the most."""
    found = [draw() for _ in range(TRIES)]
    return next(
        (poses for poses in found if space(*poses) > least),
        max(found, key=lambda poses: space(*poses)),
    )


REST_SECONDS = 0.5
# m/s of the fastest point. aloha_sim asks for 1e-3 at one instant; rolling to rest takes seconds
# until then.
REST_SPEED = 0.01


@dataclass(frozen=True)
class Touching:
    """Which groups of shapes are in contact now.

    Attributes:
        pairs: Of names: props, `table`, `left` and `right` for the arms without their pads,
            `left/left_pad` and so on.
        arms: Names of the arms.
    """

    pairs: Collection[frozenset[str]]
    arms: Sequence[str]

    def between(self, a: str, b: str) -> bool:
        """Says whether two groups touch."""
        return frozenset((a, b)) in self.pairs

    def held(self, arm: str, prop: str) -> bool:
        """Says whether both pads of an arm touch a prop."""
        return all(self.between(f"{arm}/{side}_pad", prop) for side in ("left", "right"))

    def by_arm(self, arm: str, prop: str) -> bool:
        """Says whether any part of an arm touches a prop."""
        return any(
            self.between(part, prop) for part in (arm, f"{arm}/left_pad", f"{arm}/right_pad")
        )

    def by_any_arm(self, props: Iterable[str]) -> bool:
        """Says whether an arm touches one of the props."""
        return any(self.by_arm(arm, prop) for prop in props for arm in self.arms)


class Lasting:
    """For how long something has been true without a break."""

    def __init__(self) -> None:
        self._since = np.inf

    def reset(self) -> None:
        """Forgets."""
        self._since = np.inf

    def update(self, holds: bool, now: float, seconds: float = REST_SECONDS) -> bool:
        """Takes note of whether it holds at the time `now`, and says whether it has held for that many seconds."""
        self._since = min(self._since, now) if holds else np.inf
        return bool(now - self._since >= seconds - 1e-9)


def upright(T_base_prop: Matrix, cosine: float = 0.95) -> bool:
    """Says whether a prop's z axis points up, to within 18 degrees by default."""
    return bool(T_base_prop[2, 2] > cosine)


def in_frame(T_base_frame: Matrix, T_base_prop: Matrix, points: Matrix) -> Matrix:
    """Returns points (..., 3) of a prop in the frame of another.

    Args:
        T_base_frame: (4, 4), of the other.
        T_base_prop: (4, 4), of the prop.
        points: (..., 3), in the prop's frame, metres.
    """
    T_frame_prop = inverse(T_base_frame) @ T_base_prop
    return np.asarray(points @ T_frame_prop[:3, :3].T + T_frame_prop[:3, 3])
