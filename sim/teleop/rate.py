"""A fixed rate of steps in real time, without catching up on a machine that is too slow."""

import time
from collections.abc import Callable

LEAST_REST_S = 1e-3  # Time for other threads in every period.
MOST_BEHIND_S = 0.1  # Delays beyond this are not made up for: the world would rush.
SMOOTHING = 0.98


class Rate:
    """Keeps a rate by waiting for the end of each period.

    Args:
        hz: Periods per second.
        clock: Returns the time, seconds.
        sleep: Waits for a time, seconds.
    """

    def __init__(
        self,
        hz: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._period = 1.0 / hz
        self._clock = clock
        self._sleep = sleep
        self._next = self._last = clock()
        self._mean = self._period

    @property
    def speed(self) -> float:
        """Mean rate of the last second or so as a share of `hz`; 1 if the machine keeps up."""
        return self._period / self._mean

    def wait(self) -> None:
        """Waits for the end of the period that began with the last call."""
        self._next += self._period
        now = self._clock()
        self._sleep(max(self._next - now, LEAST_REST_S))
        now = self._clock()
        self._next = max(self._next, now - MOST_BEHIND_S)
        self._mean = SMOOTHING * self._mean + (1 - SMOOTHING) * (now - self._last)
        self._last = now
