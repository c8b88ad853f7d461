"""How drake-iiwa-driver tells the time: its own clock's, by a low-pass filtered difference to the controller's."""

_KEPT = 0.99


class ClockFilter:
    """The difference between two clocks.

    Args:
        samples: Needed before it says anything.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._taken = 0
        self._difference_us = 0.0

    @property
    def difference_us(self) -> int:
        """Host minus controller, microseconds."""
        return int(self._difference_us)

    def take(self, controller_us: int, host_us: int) -> None:
        """Takes two times of one moment, microseconds."""
        now = float(host_us - controller_us)
        self._difference_us = (
            now if not self._taken else _KEPT * self._difference_us + (1 - _KEPT) * now
        )
        self._taken = min(self._taken + 1, self._samples)

    def to_host(self, controller_us: int) -> int:
        """Returns a time of the controller by the host's clock, -1 as long as that is not known."""
        return self.difference_us + controller_us if self._taken >= self._samples else -1
