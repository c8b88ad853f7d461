"""Converts timestamped action chunks to the target of the current moment."""

import numpy as np
from numpy.typing import NDArray

from stringline.policies.chunks.chunk import ActionChunk

Vector = NDArray[np.float64]


class ChunkSampler:
    """Interpolates linearly between the waypoints of the newest chunk.

    Past waypoints are skipped by time, not by count. Until the first waypoint of a new chunk is
    due, the previous chunk stays in force. The last waypoint is held for one interval, as a
    controller of that rate holds an action; the target is None after that.

    Attributes:
        taken: Number of chunks so far; they are numbered from 1.
        in_force: Number of the chunk of the last target, 0 without a target.
    """

    def __init__(self) -> None:
        self._chunks: list[tuple[ActionChunk, float]] = []
        self.taken = self.in_force = 0

    def replace(self, chunk: ActionChunk, observed_s: float | None = None) -> None:
        """Adds a chunk, in force from its first waypoint on.

        Args:
            chunk: Finite.
            observed_s: Time of its observation; None: the time of its first action.
        """
        observed_s = float(chunk.time[0]) if observed_s is None else observed_s
        self._chunks = [*self._chunks[-1:], (chunk, observed_s)]
        self.taken += 1

    def _in_force(self, now: float) -> tuple[ActionChunk, float] | None:
        return next((taken for taken in reversed(self._chunks) if taken[0].time[0] <= now), None)

    def overdue_s(self, now: float) -> float:
        """Returns the time since the last waypoint of the chunk in force; 0 before it."""
        taken = self._in_force(now)
        return 0.0 if taken is None else max(0.0, now - float(taken[0].time[-1]))

    def plan_age_s(self, now: float) -> float:
        """Returns the time since the observation of the chunk in force; 0 without a chunk."""
        taken = self._in_force(now)
        return 0.0 if taken is None else now - taken[1]

    def clear(self) -> None:
        """Drops all chunks."""
        self._chunks = []

    def target(self, now: float) -> Vector | None:
        """Returns the target (J,) at time `now`, or None if no chunk covers it."""
        for age, (chunk, _) in enumerate(reversed(self._chunks)):
            if chunk.time[0] <= now:
                target = _interpolate(chunk, now)
                self.in_force = 0 if target is None else self.taken - age
                return target
        self.in_force = 0
        return None


def _interpolate(chunk: ActionChunk, now: float) -> Vector | None:
    after = int(np.searchsorted(chunk.time, now, side="right"))
    before = chunk.action[after - 1].astype(np.float64)
    if after == len(chunk.time):
        interval = chunk.time[-1] - chunk.time[-2] if len(chunk.time) > 1 else 0.0
        return before if now < chunk.time[-1] + interval or now == chunk.time[-1] else None
    share = (now - chunk.time[after - 1]) / (chunk.time[after] - chunk.time[after - 1])
    return np.asarray(before + share * (chunk.action[after].astype(np.float64) - before))
