"""The speed of work on this machine: a start, and a time for each unit."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Self


@dataclass(frozen=True)
class Speed:
    """The duration of work: `start_s + each_s * count`, seconds."""

    start_s: float
    each_s: float

    @classmethod
    def of_training(cls, total_s: float, ends: Sequence[float]) -> Self:
        """Returns the speed of a training, given its duration and the time at each step's end."""
        each_s = median(after - before for before, after in pairwise(ends))
        return cls(max(total_s - len(ends) * each_s, 0.0), each_s)


def measure(work: Callable[[int], object], done: Callable[[], int], few: int) -> Speed:
    """Measures work by its first units, which remain done.

    Args:
        work: Continues the work up to a number of units.
        done: Returns the number of finished units.
        few: Units of the first of two calls of `work`; the second has twice as many.
    """
    seconds = []
    for units in (few, 2 * few):
        target = done() + units
        started = time.monotonic()
        work(target)
        seconds.append(time.monotonic() - started)
    # Both calls contain the start. On a busy machine their difference may be too small.
    each = max((seconds[1] - seconds[0]) / few, seconds[1] / (4 * few))
    return Speed(max(seconds[1] - 2 * few * each, 0.0), each)
