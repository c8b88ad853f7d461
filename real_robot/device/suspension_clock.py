"""The time in which the computer was suspended."""

import time
from collections.abc import Callable

# The two clocks are read one after the other.
_ROUNDING_S = 1e-3


def _boot_time_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SuspensionClock:
    """Measures suspensions of the computer, during which `time.monotonic` stands still.

    Linux's CLOCK_BOOTTIME continues during a suspension.

    Args:
        awake_s: Returns seconds without suspensions.
        passed_s: Returns seconds with suspensions.
    """

    def __init__(
        self,
        awake_s: Callable[[], float] = time.monotonic,
        passed_s: Callable[[], float] = _boot_time_s,
    ) -> None:
        self._awake_s = awake_s
        self._passed_s = passed_s
        self._asleep_s = passed_s() - awake_s()

    def elapsed_s(self) -> float:
        """Returns the duration of suspensions since the last call, seconds."""
        asleep_s = self._passed_s() - self._awake_s()
        elapsed_s = asleep_s - self._asleep_s
        if elapsed_s < _ROUNDING_S:
            return 0.0
        self._asleep_s = asleep_s
        return elapsed_s
