"""Heartbeats: times in shared memory, which a process, an input or a camera renews.

A pipe shows that the owner has died, but not that it is suspended; an old heartbeat shows both.
Chunks are no substitute: the last one may reach a second ahead.

An input that permits motion renews its time for as long as it does. Capture times and counters of
cameras have one writer each, so there is no lock that a killed process could hold.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import Array as SharedArray
from ctypes import c_bool, c_double, c_int64
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.sharedctypes import RawArray, RawValue

_PERIOD_S = 0.02
# Clocks of one computer, read one after the other, differ by less.
_AHEAD_S = 0.005
NEVER_SILENT = math.inf  # Time of the last beat of a process that need not beat.


def heartbeat_memory(seconds: float | None = None) -> c_double:
    """Returns memory for a heartbeat, an argument of the spawned process.

    Args:
        seconds: Time of the first beat on the monotonic clock, such as `NEVER_SILENT`; if None,
            now.
    """
    return RawValue(c_double, time.monotonic() if seconds is None else seconds)


def hold_memory() -> c_bool:
    """Returns memory for a request to hold, which takes effect without an answer."""
    return RawValue(c_bool, False)


def is_age(seconds: float) -> bool:
    """Returns whether a value can be the age of something: no NaN, and not of the future."""
    return seconds >= -_AHEAD_S


def silence_s(memory: c_double) -> float:
    """Returns the time since the last heartbeat, seconds; 0 before it is due."""
    silence = time.monotonic() - memory.value
    return 0.0 if silence < 0 else silence  # NaN stays NaN, which is no age.


@contextmanager
def beating(memory: c_double) -> Iterator[None]:
    """Renews the time in a `heartbeat_memory` during a block."""
    heartbeat = Heartbeat(memory)
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.stop()


class Heartbeat:
    """Renews the time in a `heartbeat_memory`, from `start` until `stop`."""

    def __init__(self, memory: c_double) -> None:
        self._memory = memory
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="stringline heartbeat", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._memory.value = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, if it was started."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            self._memory.value = time.monotonic()


@dataclass(frozen=True, eq=False)
class MotionInputs:
    """Times at which inputs last permitted motion; if None, the input is not used.

    Attributes:
        permission: Of the hold-to-run input; without its permission the arms hold.
        stop_line: Of the external stop; without its permission there is a fault.
    """

    permission: c_double | None = None
    stop_line: c_double | None = None

    def ages_s(self) -> tuple[float, float]:
        """Returns the times since the permissions, seconds; 0 without an input."""
        return _age_s(self.permission), _age_s(self.stop_line)


NO_INPUTS = MotionInputs()


def input_memory() -> c_double:
    """Returns memory for the time of an input that has not permitted motion yet."""
    return heartbeat_memory(0.0)


def _age_s(memory: c_double | None) -> float:
    return 0.0 if memory is None else silence_s(memory)


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
