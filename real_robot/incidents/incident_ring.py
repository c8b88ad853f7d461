"""The last half minute of a device process, in shared memory: written without ever waiting, read by whoever comes.

A ring of records as in a file, see `incident_format`. The writer announces how far it will write
before it writes, so a reader knows what was overwritten while it copied. The memory outlives its
writer, so it is still read after a crash of the device process.
"""

import time
from ctypes import c_ubyte
from enum import IntEnum
from multiprocessing.context import SpawnContext

from stringline.real_robot.incidents.incident_format import (
    HEAD,
    LONGEST_PAYLOAD,
    Payload,
    next_record,
    pack_into,
    whole_records,
)
from stringline.real_robot.ipc.mailbox import Memory

_MARKS = 16
_MARK_SIZE = 8
# What a cycle of eighteen servos and two buses notes at most, requests and answers included.
BYTES_PER_CYCLE = 4096


class Mark(IntEnum):
    """Numbers beside the ring. Each has one writer."""

    WRITTEN = 0  # Bytes put so far. Written by the device process, as all down to `ENDED`.
    ANNOUNCED = 1  # Bytes put once the record at hand is done.
    FAULTS = 2  # Faults so far.
    PROCESS = 3  # Number of the device process.
    ENDED = 4  # Whether it ended in good order.
    # Records that no file took before they were overwritten. Written by the recorder, as all below.
    LOST = 5
    FAILURES = 6  # Attempts to write that failed.
    FILES = 7  # Files begun.


def ring_memory(context: SpawnContext, capacity: int) -> Memory:
    """Returns memory for a ring of that many bytes, to be given to other processes when they are spawned.

    Raises:
        ValueError: A record does not fit.
    """
    if capacity < 2 * (HEAD.size + LONGEST_PAYLOAD):
        raise ValueError(
            f"A ring of {capacity} bytes; allowed: {2 * (HEAD.size + LONGEST_PAYLOAD)} and more."
        )
    return context.RawArray(c_ubyte, _MARKS * _MARK_SIZE + capacity)


def capacity_for(seconds: float, period_s: float) -> int:
    """Returns the bytes that so many seconds of cycles take."""
    return max(round(seconds / period_s) * BYTES_PER_CYCLE, 4 * LONGEST_PAYLOAD)


class Ring:
    """One end of a ring.

    Args:
        memory: As `ring_memory` returned it.
    """

    def __init__(self, memory: Memory) -> None:
        view = memoryview(memory).cast("B")
        self.marks = view[: _MARKS * _MARK_SIZE].cast("q")
        self._bytes = view[_MARKS * _MARK_SIZE :]
        self._scratch = bytearray(HEAD.size + LONGEST_PAYLOAD)
        self._ready = memoryview(self._scratch)
        self._number = 0

    def put(self, kind: int, payload: Payload, source: int = 0) -> None:
        """Writes a record; the oldest make room.

        Raises:
            ValueError: It is too long.
        """
        self._number += 1
        size = pack_into(self._scratch, (kind, source, self._number, time.monotonic_ns()), payload)
        written = self.marks[Mark.WRITTEN]
        capacity = len(self._bytes)
        self.marks[Mark.ANNOUNCED] = written + size
        at = written % capacity
        first = min(size, capacity - at)
        self._bytes[at : at + first] = self._ready[:first]
        self._bytes[: size - first] = self._ready[first:size]
        self.marks[Mark.WRITTEN] = written + size

    def read(self, start: int, most: int | None = None) -> tuple[bytes, int]:
        """Returns whole records from a place on, and the place behind them, where the next read starts.

        Args:
            start: As an earlier call returned it; 0 for the oldest.
            most: Bytes that are copied at once, at least two of the longest records; None: all that
                there are.
        """
        end = self.marks[Mark.WRITTEN]
        capacity = len(self._bytes)
        begin = max(start, end - capacity)
        at = begin % capacity
        size = end - begin if most is None else min(end - begin, most)
        first = min(size, capacity - at)
        data = bytes(self._bytes[at : at + first]) + bytes(self._bytes[: size - first])
        overwritten = self.marks[Mark.ANNOUNCED] - capacity
        if overwritten > begin:
            data = data[overwritten - begin :]
            begin = overwritten
        if begin != start:
            skipped = next_record(data, 0)
            data = data[skipped:]
            begin = begin + skipped
        if most is None:
            return data, end
        kept = whole_records(data)
        # Nothing is left of what was overwritten as a whole; the next read starts with what is the
        # oldest then.
        return data[:kept], begin + kept if kept else start
