"""The only commands that a driver sends; only the safety filter can make them."""

from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

# The permission to make commands. Only the safety filter imports it, which a test asserts.
SEAL: Final = object()


class SafeCommand:
    """Joint targets that passed every stage of the safety filter.

    Args:
        position: (J,) rad, and opening of the grippers.
        sequence: Number of the command, counted by its filter.
        seal: `SEAL`.

    Raises:
        TypeError: The seal is another object.
    """

    __slots__ = ("_position", "_seal", "_sequence")
    _position: NDArray[np.float64]
    _sequence: int

    def __init__(self, position: NDArray[np.float64], sequence: int, seal: object) -> None:
        if seal is not SEAL:
            raise TypeError(
                "A SafeCommand is made by the SafetyFilter only; hand your targets to the filter."
            )
        kept = np.array(position, dtype=np.float64)
        kept.setflags(write=False)
        object.__setattr__(self, "_position", kept)
        object.__setattr__(self, "_sequence", sequence)
        object.__setattr__(self, "_seal", seal)

    def __init_subclass__(cls) -> NoReturn:
        """Refuses subclasses, which could skip the check."""
        raise TypeError("SafeCommand cannot be derived from.")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuses changes after the filter's last check."""
        raise AttributeError(f"A SafeCommand does not change; {name!r} was to be set to {value!r}.")

    def __reduce__(self) -> NoReturn:
        """Refuses copies and transfer: commands are made in the process that writes them."""
        raise TypeError("A SafeCommand stays in the process of the filter that made it.")

    @property
    def position(self) -> NDArray[np.float64]:
        """(J,), read-only."""
        return self._position

    @property
    def sequence(self) -> int:
        """Number of the command."""
        return self._sequence


def checked(command: object) -> SafeCommand:
    """Returns a command of the safety filter unchanged.

    Raises:
        TypeError: The object is anything else.
    """
    if type(command) is not SafeCommand or getattr(command, "_seal", None) is not SEAL:
        raise TypeError(
            f"Only a SafeCommand made by the SafetyFilter can be written to the robot; got "
            f"{type(command).__name__}."
        )
    return command
