"""The age of a program's messages, whose times are those of another clock."""

import math
from collections import deque

_KEPT = 500  # Messages; the clocks drift apart by microseconds meanwhile.
_JUMP_S = 1.0


class ArrivalClock:
    """Measures ages by the messages that arrived fastest.

    The difference of the two clocks is unknown. Its smallest value over the last messages contains
    the shortest delay, so ages are relative to that of the fastest message.
    """

    def __init__(self) -> None:
        self._differences: deque[float] = deque(maxlen=_KEPT)
        self._utime = 0

    def note(self, utime: int, now_s: float) -> None:
        """Takes a message's time, microseconds, and the local time of its arrival, seconds."""
        difference = now_s - 1e-6 * utime
        ahead = bool(self._differences) and difference < self._differences[-1] - _JUMP_S
        if ahead or utime < self._utime:  # Another clock, or one that was set.
            self.clear()
        # A message that is seconds late may be of a clock that was set back by less than the time
        # that has passed. It is taken for one that waited while this process stood still: then
        # nothing is sent until messages are in time, or the last ones were as late.
        self._differences.append(difference)
        self._utime = utime

    def clear(self) -> None:
        """Forgets all messages, as of another clock."""
        self._differences.clear()

    def age_s(self, utime: int, now_s: float) -> float:
        """Returns the age of a message at a local time; infinite before the first."""
        if not self._differences:
            return math.inf
        return now_s - 1e-6 * utime - min(self._differences)
