"""Which named groups of shapes touch one another."""

from collections.abc import Mapping, Sequence

import numpy as np
from dm_control import mjcf


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
