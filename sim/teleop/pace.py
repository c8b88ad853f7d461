"""Steps at a fixed rate by the clock, which fall behind rather than hurry when the machine is too slow."""

import time
from collections.abc import Callable

LEAST_REST_S = 1e-3  # Other threads get as much in every period.
MOST_BEHIND_S = 0.1  # Time that is lost beyond this is not made up for: the world would rush.
SMOOTHING = 0.98


class Pace:
    """Waits for the end of each period.

    Args:
        hz: Periods per second.
        clock: Seconds.
        sleep: Waits for seconds.

    Attributes:
        speed: Periods in the last second or so over those that there should have been: 1 when the
            machine keeps up.
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
        """How fast the world runs, as a share of real time."""
        return self._period / self._mean

    def wait(self) -> None:
        """Waits until the period that began with the last call is over."""
        self._next += self._period
        now = self._clock()
        self._sleep(max(self._next - now, LEAST_REST_S))
        now = self._clock()
        self._next = max(self._next, now - MOST_BEHIND_S)
        self._mean = SMOOTHING * self._mean + (1 - SMOOTHING) * (now - self._last)
        self._last = now
