"""A camera's own stamps on the host's monotonic clock."""

from collections import deque

_SAMPLES = 300


class DeviceClock:
    """Maps stamps by the smallest delay between stamp and arrival that was seen lately, which counts as none.

    An image that waited in a queue keeps the age it has: its arrival is late, its stamp is not.
    Samples are counted and not timed, so that a process that stood still does not take its backlog
    for fresh. Stamps may be of any clock; if they go backwards, that clock was set, and the mapping
    begins anew.

    Args:
        latency_s: Between capture and stamp, as measured.
    """

    def __init__(self, latency_s: float = 0.0) -> None:
        self._latency_s = latency_s
        self._delays: deque[float] = deque(maxlen=_SAMPLES)
        self._stamp = float("-inf")

    def captured(self, stamp: float, received: float) -> float:
        """Returns when an image was taken, on the host's clock.

        Args:
            stamp: Of the camera, seconds.
            received: Time of its arrival on the host's clock, seconds.
        """
        if stamp < self._stamp:
            self._delays.clear()
        self._stamp = stamp
        self._delays.append(received - stamp)
        return stamp + min(self._delays) - self._latency_s
