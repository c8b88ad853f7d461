"""Heartbeats: times in shared memory, which a process renews while it runs.

A pipe shows that the owner has died, but not that it is suspended; an old heartbeat shows both.
Chunks are no substitute: the last one may reach a second ahead.
"""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_bool, c_double
from multiprocessing.sharedctypes import RawValue

_PERIOD_S = 0.02
# Clocks of one computer, read one after the other, differ by less.
_AHEAD_S = 0.005
NEVER_SILENT = math.inf  # Time of the last beat of a process that need not beat.


def heartbeat_memory(seconds: float | None = None) -> c_double:
    """Returns memory for a heartbeat, an argument of the spawned process.

    Args:
        seconds: Time of the first beat on the monotonic clock, such as `NEVER_SILENT`; None: now.
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
