"""The age of a program's messages, whose times are those of another clock."""

import math
from collections import deque

_KEPT = 500  # Messages; the clocks drift apart by microseconds meanwhile.


class ArrivalClock:
    """Measures ages by the messages that arrived fastest.

    The difference of the two clocks is unknown. Its smallest value over the last messages contains
    the shortest delay, so ages are relative to that of the fastest message.
    """

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=_KEPT)

    def note(self, utime: int, now_s: float) -> None:
        """Takes a message's time, microseconds, and the local time of its arrival, seconds."""
        difference = now_s - 1e-6 * utime
        # Another clock, or one that was set.
        if self._differences and abs(difference - self._differences[-1]) > 1.0:
            self._differences.clear()
        self._differences.append(difference)

    def age_s(self, utime: int, now_s: float) -> float:
        """Returns the age of a message at a local time; infinite before the first."""
        if not self._differences:
            return math.inf
        return now_s - 1e-6 * utime - min(self._differences)
