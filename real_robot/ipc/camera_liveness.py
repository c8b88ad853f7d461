"""When each camera took its newest image, and what is counted about it, in memory that all processes share.

A number each and one writer each, hence no lock that a killed process could hold.
"""

from collections.abc import Sequence
from ctypes import Array as SharedArray
from ctypes import c_double, c_int64
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.context import SpawnContext


class Count(IntEnum):
    """What is counted about a camera, over all its processes."""

    IMAGES = 0
    LOST = 1  # Gaps in the camera's own numbers.
    OUT_OF_ORDER = 2  # Images that were not newer than the one before; they are dropped.


@dataclass(frozen=True, eq=False)
class Liveliness:
    """What is known about cameras without asking them.

    Attributes:
        names: Of the cameras.
        times: Capture times, seconds of the monotonic clock; minus infinity before the first image.
        counts: Of each camera, as `Count` says.
    """

    names: tuple[str, ...]
    times: SharedArray[c_double]
    counts: SharedArray[c_int64]

    @classmethod
    def of(cls, names: Sequence[str], context: SpawnContext) -> "Liveliness":
        """Makes the memory."""
        times = context.RawArray(c_double, [float("-inf")] * len(names))
        return cls(tuple(names), times, context.RawArray(c_int64, len(Count) * len(names)))

    def ages_s(self, now: float) -> tuple[float, ...]:
        """Returns how old the newest image of each camera is; infinite before the first one."""
        return tuple(max(0.0, now - time) for time in self.times)

    def count(self, place: int, what: Count) -> int:
        """Returns a count of the camera at that place."""
        return int(self.counts[place * len(Count) + what])

    def add(self, place: int, what: Count, more: int = 1) -> None:
        """Adds to a count; only the camera's own process does."""
        self.counts[place * len(Count) + what] += more
