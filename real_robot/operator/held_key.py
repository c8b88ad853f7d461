"""Hold-to-run by a key, which a terminal repeats while it is held down."""

import time
from collections.abc import Callable
from ctypes import c_double

# A terminal repeats a key 25 to 30 times a second.
_GAP_S = 0.15
# Keys that waited for longer in the terminal say nothing about the present.
_STALE_S = 0.1


class HeldKey:
    """Permits motion while a key is repeated.

    A single press does not: the second one within 0.15 s is the first that counts. So motion begins
    with the terminal's repetition, about half a second after the key goes down.

    Args:
        permission: Memory of the time of the last permission.
    """

    def __init__(self, permission: c_double, clock: Callable[[], float] = time.monotonic) -> None:
        self._permission = permission
        self._clock = clock
        self._looked_s = self._pressed_s = float("-inf")
        self._prompt = False

    def look(self) -> None:
        """Notes that the terminal is read now."""
        now = self._clock()
        self._prompt = now - self._looked_s <= _STALE_S
        self._looked_s = now

    def press(self) -> None:
        """Notes that the key was read."""
        if not self._prompt:
            self._pressed_s = float("-inf")
            return
        now = self._clock()
        if now - self._pressed_s <= _GAP_S:
            self._permission.value = now
        self._pressed_s = now
