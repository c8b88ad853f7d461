"""Success predicates: contacts, poses and rest."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dm_control import mjcf

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.transforms import Matrix, inverse

CLEAR_M = 0.02  # Height above the table from which an object counts as lifted.
REST_SECONDS = 0.5
# m/s of an object's fastest point. aloha_sim requires 1e-3 at one instant, which a rolling object
# reaches after seconds only.
REST_SPEED = 0.01


class ContactGroups:
    """Groups of shapes of one compiled model, by name; a shape belongs to one group at most."""

    def __init__(self, physics: mjcf.Physics, groups: Mapping[str, Sequence[mjcf.Element]]) -> None:
        self.names = list(groups)
        self._group = np.full(physics.model.ngeom, -1)
        for index, shapes in enumerate(groups.values()):
            self._group[np.array(physics.bind(shapes).element_id)] = index

    def pairs(self, physics: mjcf.Physics) -> set[frozenset[str]]:
        """Returns the pairs of groups that are in contact."""
        pairs = self._group[physics.data.contact.geom]
        return {frozenset((self.names[a], self.names[b])) for a, b in pairs if a >= 0 and b >= 0}


@dataclass(frozen=True)
class ContactState:
    """The groups of shapes that are in contact at one moment.

    Attributes:
        pairs: Pairs of names: props, `table`, an arm without its pads (`left`), and its pads
            (`left/left_pad`).
        arms: Names of the arms.
        groups: All names that can be in `pairs`; if empty, no name is checked.
    """

    pairs: Collection[frozenset[str]]
    arms: Sequence[str]
    groups: Collection[str] = ()

    def between(self, a: str, b: str) -> bool:
        """Returns whether two groups are in contact.

        Raises:
            ValueError: There is no such group.
        """
        if self.groups and not (a in self.groups and b in self.groups):
            wrong = b if a in self.groups else a
            raise unknown_name("prop, arm or table", wrong, self.groups)
        return frozenset((a, b)) in self.pairs

    def held(self, arm: str, prop: str) -> bool:
        """Returns whether both pads of an arm are in contact with a prop.

        Raises:
            ValueError: There is no such arm or prop.
        """
        if arm not in self.arms:
            raise unknown_name("arm", arm, self.arms)
        return all(self.between(f"{arm}/{side}_pad", prop) for side in ("left", "right"))

    def held_by_any(self, prop: str) -> bool:
        """Returns whether both pads of one of the arms are in contact with a prop."""
        return any(self.held(arm, prop) for arm in self.arms)

    def by_arm(self, arm: str, prop: str) -> bool:
        """Returns whether any part of an arm is in contact with a prop."""
        parts = (arm, f"{arm}/left_pad", f"{arm}/right_pad")
        return any(self.between(part, prop) for part in parts)

    def touches_arms_only(self, prop: str) -> bool:
        """Returns whether nothing but arms is in contact with a prop."""
        others = {other for pair in self.pairs if prop in pair for other in pair - {prop}}
        return all(other.partition("/")[0] in self.arms for other in others)

    def by_any_arm(self, props: Iterable[str]) -> bool:
        """Returns whether any arm is in contact with one of the props."""
        return any(self.by_arm(arm, prop) for prop in props for arm in self.arms)


def upright(T_base_prop: Matrix, cosine: float = 0.95) -> bool:
    """Returns whether a prop's z axis points up, to within 18 degrees by default."""
    return bool(T_base_prop[2, 2] > cosine)


def in_frame(T_base_frame: Matrix, T_base_prop: Matrix, points: Matrix) -> Matrix:
    """Returns points (..., 3) of a prop, given in its frame in metres, in another frame."""
    T_frame_prop = inverse(T_base_frame) @ T_base_prop
    return np.asarray(points @ T_frame_prop[:3, :3].T + T_frame_prop[:3, 3])
