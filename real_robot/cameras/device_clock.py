"""Conversion of the stamps of a camera to the monotonic clock of the host."""

from collections import deque

_SAMPLES = 300


class DeviceClock:
    """Subtracts the smallest recent delay between stamp and arrival, which counts as zero.

    So an image that waited in a queue keeps its age. The window is a number of samples, not a time:
    a process that was suspended does not take its backlog for fresh. The clock of the stamps is
    arbitrary; if it goes backwards, it was set, and the mapping starts again.

    Args:
        latency_s: Measured time from capture to stamp.
    """

    def __init__(self, latency_s: float = 0.0) -> None:
        self._latency_s = latency_s
        self._delays: deque[float] = deque(maxlen=_SAMPLES)
        self._stamp = float("-inf")

    def captured(self, stamp: float, received: float) -> float:
        """Returns the capture time (s) of an image that was `received` on the host's clock."""
        if stamp < self._stamp:
            self._delays.clear()
        self._stamp = stamp
        self._delays.append(received - stamp)
        return stamp + min(self._delays) - self._latency_s
