"""Capture times and counters of all cameras, in shared memory.

Each number has one writer, so there is no lock that a killed process could hold.
"""

from collections.abc import Sequence
from ctypes import Array as SharedArray
from ctypes import c_double, c_int64
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.sharedctypes import RawArray


class Count(IntEnum):
    """Counters of a camera, over all its processes."""

    IMAGES = 0
    LOST = 1  # Gaps in the numbers of the camera.
    OUT_OF_ORDER = 2  # Images that were not newer than the previous one; they are dropped.


@dataclass(frozen=True, eq=False)
class CameraLiveness:
    """Liveness of cameras, which all processes read without a request.

    Attributes:
        times: Capture times of their newest images, monotonic seconds; minus infinity before the
            first image.
        counts: Counters of each camera, in the order of `Count`.
    """

    names: tuple[str, ...]
    times: SharedArray[c_double]
    counts: SharedArray[c_int64]

    @classmethod
    def of(cls, names: Sequence[str]) -> "CameraLiveness":
        """Allocates the memory."""
        times = RawArray(c_double, [float("-inf")] * len(names))
        return cls(tuple(names), times, RawArray(c_int64, len(Count) * len(names)))

    def ages_s(self, now: float) -> tuple[float, ...]:
        """Returns the age of the newest image of each camera; infinite before the first one.

        A capture time that is no number, or lies ahead, gives what is no age: see `is_age`.
        """
        return tuple(now - time for time in self.times)

    def count(self, place: int, what: Count) -> int:
        """Returns a counter of the camera with the index `place`."""
        return int(self.counts[place * len(Count) + what])

    def add(self, place: int, what: Count, more: int = 1) -> None:
        """Adds to a counter; only the process of the camera may."""
        self.counts[place * len(Count) + what] += more
