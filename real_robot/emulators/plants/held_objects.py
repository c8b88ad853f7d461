"""Objects between the pads of grippers: they stop the pads, and fall when these push too little."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector

# The pads push like springs whose other end is at the target, N per opening.
_STIFFNESS = 43.0
# Force of the pads that carries an object by friction, N.
_CARRIES_N = 5.0
_OPENING = Range(above=0, below=1)


@dataclass
class _Object:
    """An object: the opening at which the pads touch it, and whether they carry it already."""

    opening: float
    carried: bool = False


class HeldObjects:
    """At most one object per arm, put between its pads by a hand.

    Once the pads carry an object, the hand lets go of it; from then on it falls as soon as the pads
    push with less than its weight needs, and is gone.
    """

    def __init__(self, embodiment: Embodiment) -> None:
        self._grippers: Mapping[str, int] = embodiment.grippers
        self._objects: dict[int, _Object] = {}

    def put(self, arm: str, opening: float) -> None:
        """Puts an object between the pads of an arm.

        Args:
            arm: Name of the arm.
            opening: Opening at which the pads touch it, between 0 and 1.

        Raises:
            ValueError: The arm or the opening is unknown.
        """
        _OPENING.check(opening=opening)
        self._objects[self._joint(arm)] = _Object(opening)

    def clear(self) -> None:
        """Removes all objects."""
        self._objects.clear()

    def carried(self, arm: str) -> bool:
        """Returns whether the pads of an arm carry an object.

        Raises:
            ValueError: The arm is unknown.
        """
        found = self._objects.get(self._joint(arm))
        return found is not None and found.carried

    def _joint(self, arm: str) -> int:
        if arm not in self._grippers:
            raise unknown_name("arm", arm, self._grippers)
        return self._grippers[arm]

    def stop(self, position: Vector, target: Vector, largest: Vector) -> tuple[Vector, Vector]:
        """Stops pads at objects.

        Args:
            position: (J,) positions without objects.
            target: (J,) targets of the joints.
            largest: (J,) limits of the joints' efforts, Nm and N.

        Returns:
            The positions (J,), and the efforts (J,) against the objects, negative where pads close.
        """
        position = position.copy()
        efforts = np.zeros_like(position)
        for joint, one in list(self._objects.items()):
            if position[joint] > one.opening and not one.carried:
                continue
            push = max(_STIFFNESS * float(one.opening - target[joint]), 0.0)
            push = min(push, float(largest[joint]))
            if push < _CARRIES_N and one.carried:
                del self._objects[joint]
                continue
            one.carried |= push >= _CARRIES_N
            position[joint] = max(position[joint], one.opening)
            efforts[joint] = -push
        return position, efforts
