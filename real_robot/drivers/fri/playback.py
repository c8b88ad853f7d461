"""Commands that are made by one clock and sent by another, as two controllers have no common one.

Commands form a path, a point each period; each answer advances by about one point along it, a few
points behind. Playing up to 1 % faster or slower keeps that distance, whichever clock is faster.
Thereby speed changes by up to 1.03 times its change along the path plus 2 % of the speed, and no
step is larger than the largest of the path.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Points between the last command and the next answer: enough for some jitter of either side.
_WANTED = 3.0
_GENTLE = 0.01  # Share by which it may play faster or slower.
_FAR_BEHIND = 4.0
_ROUNDING = 1e-12
# Bound on the change of speed in playback: shares of that of the path, and of the speed.
CHANGE_SHARE = 1.03
SPEED_SHARE = 0.02


class Playback:
    """A path and a position on it. Positions are (J,).

    Args:
        position: Beginning of the path, at rest.

    Attributes:
        dry: Whether the path ended in the middle of the last step.
    """

    def __init__(self, position: Vector) -> None:
        self._points = deque([position])
        self._share = 0.0
        self._largest = np.zeros_like(position)
        self._waits = True
        self.dry = False

    @property
    def backlog(self) -> float:
        """Points that are not played yet."""
        return len(self._points) - 1 - self._share

    @property
    def position(self) -> Vector:
        """The last position played."""
        if self._share == 0.0:
            return self._points[0]
        return np.asarray(self._points[0] + self._share * (self._points[1] - self._points[0]))

    def give(self, position: Vector) -> None:
        """Appends a point; during a rest, points that are not played are dropped."""
        if self.backlog > _FAR_BEHIND and all(
            np.array_equal(position, point) for point in list(self._points)[-2:]
        ):
            return
        self._largest = np.maximum(self._largest, np.abs(position - self._points[-1]))
        self._points.append(position)

    def play(self) -> Vector:
        """Advances by about one point, once there are enough of them, and returns the position."""
        backlog = self.backlog
        before = self.position
        self._waits = self._waits and backlog < _WANTED
        if self._waits:
            return before
        rate = 1.0 + min(max(_GENTLE * (backlog - _WANTED), -_GENTLE), _GENTLE)
        points = self._points.copy()
        share = self._share
        self._go(min(rate, backlog))
        if rate > 1.0 and self._is_large(self.position - before):
            self._points = points
            self._share = share
            rate = 1.0
            self._go(min(rate, backlog))
        self.dry = rate > backlog + _ROUNDING and bool((self.position != before).any())
        return self.position

    def _is_large(self, step: Vector) -> bool:
        return bool((np.abs(step) > self._largest + _ROUNDING).any())

    def _go(self, by: float) -> None:
        self._share += by
        while self._share >= 1.0 - _ROUNDING and len(self._points) > 1:
            self._points.popleft()
            self._share = max(self._share - 1.0, 0.0)
