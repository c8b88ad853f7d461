"""Commands that are given in one beat and sent in another: two controllers have no common clock.

What is given is a path, a point each period; each answer goes about one point further along it. A little faster or slower keeps
the distance between giver and taker; faster only as long as no joint's step gets larger than the largest that was ever given.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_WANTED = 2.0  # Points between what was given last and what is sent next: enough for some jitter of either side.
_GENTLE, _HURRIED = 0.05, 1.0  # By how much faster or slower, near that distance, and far behind.
_FAR_BEHIND = 4.0


class Playback:
    """A path and a place on it. Positions are (J,).

    Args:
        position: Where it begins.
    """

    def __init__(self, position: Vector) -> None:
        self._points, self._share = deque([position]), 0.0
        self._largest = np.zeros_like(position)

    @property
    def backlog(self) -> float:
        """Points that were given and are not sent yet."""
        return len(self._points) - 1 - self._share

    @property
    def position(self) -> Vector:
        """What was sent last."""
        if self._share == 0.0:
            return self._points[0]
        return np.asarray(self._points[0] + self._share * (self._points[1] - self._points[0]))

    def give(self, position: Vector) -> None:
        """Takes the next point; of a long rest one is enough where nobody asks for any."""
        if self.backlog > _FAR_BEHIND and all(np.array_equal(position, point) for point in list(self._points)[-2:]):
            return
        self._largest = np.maximum(self._largest, np.abs(position - self._points[-1]))
        self._points.append(position)

    def play(self) -> Vector:
        """Goes on by about one point and returns where that is."""
        backlog, before = self.backlog, self.position
        most = _HURRIED if backlog > _FAR_BEHIND else _GENTLE
        rate = min(max(1.0 + _GENTLE * (backlog - _WANTED), 1.0 - _GENTLE), 1.0 + most)
        points, share = self._points.copy(), self._share
        self._go(min(rate, backlog))
        if rate > 1.0 and (np.abs(self.position - before) > self._largest + 1e-12).any():
            self._points, self._share = points, share
            self._go(min(1.0, backlog))
        return self.position

    def _go(self, by: float) -> None:
        self._share += by
        while self._share >= 1.0 - 1e-12 and len(self._points) > 1:
            self._points.popleft()
            self._share = max(self._share - 1.0, 0.0)
