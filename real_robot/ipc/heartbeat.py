"""A sign of life of whoever is in charge: a time in shared memory, renewed by a thread as long as its process runs.

A pipe tells when the owner is dead, not when it stands still; a time that is no longer renewed
tells both. Chunks are no sign of life: the last one may reach a second ahead.
"""

import threading
import time
from ctypes import c_double
from multiprocessing.context import SpawnContext

_PERIOD_S = 0.05


def heartbeat_memory(context: SpawnContext) -> c_double:
    """Returns memory for a heartbeat, to be given to the other process when that is spawned."""
    return context.RawValue(c_double, time.monotonic())


def silence_s(memory: c_double) -> float:
    """Returns for how long the heart has not beaten, seconds."""
    return max(0.0, time.monotonic() - memory.value)


class Heartbeat:
    """Renews the time, from `start` until `stop`.

    Args:
        memory: As `heartbeat_memory` returned it.
    """

    def __init__(self, memory: c_double) -> None:
        self._memory = memory
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="stringline heartbeat", daemon=True)

    def start(self) -> None:
        """Begins to beat."""
        self._memory.value = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Ends; a heart that never beat may be stopped too."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            self._memory.value = time.monotonic()
