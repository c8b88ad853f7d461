"""A ring buffer in shared memory with the records of the last half minute of a device process.

The records have the format of the files, see `incident_format`. The writer never waits. It
announces the end of each write before it writes, so a reader knows which bytes were overwritten
while it copied. The memory outlives its writer and is readable after a crash of the device process.
"""

import time
from ctypes import c_ubyte
from enum import IntEnum
from multiprocessing.sharedctypes import RawArray

from stringline.real_robot.incidents.incident_format import (
    HEAD,
    LONGEST_PAYLOAD,
    Payload,
    next_record,
    pack_into,
    record_ends,
)
from stringline.real_robot.ipc.mailbox import Memory

_MARKS = 16
_MARK_SIZE = 8
# Upper bound for a cycle of eighteen servos and two buses, with all requests and answers.
BYTES_PER_CYCLE = 4096


class Mark(IntEnum):
    """Indices of the counters beside the ring. Each has one writer."""

    WRITTEN = 0  # Bytes written so far. The device process writes this and all up to `ENDED`.
    ANNOUNCED = 1  # Bytes written after the current record.
    FAULTS = 2  # Number of faults.
    PROCESS = 3  # Number of the device process.
    ENDED = 4  # Whether it ended normally.
    LOST = 5  # Records that were overwritten before they were saved. The recorder writes these.
    FAILURES = 6  # Failed attempts to write.
    FILES = 7  # Number of files.


def ring_memory(capacity: int) -> Memory:
    """Returns memory for a ring, which spawned processes get as an argument.

    Raises:
        ValueError: The capacity, in bytes, is too small for the longest record.
    """
    if capacity < 2 * (HEAD.size + LONGEST_PAYLOAD):
        raise ValueError(
            f"A ring has {capacity} bytes; allowed: at least {2 * (HEAD.size + LONGEST_PAYLOAD)}."
        )
    return RawArray(c_ubyte, _MARKS * _MARK_SIZE + capacity)


def capacity_for(seconds: float, period_s: float) -> int:
    """Returns the capacity for cycles of some seconds, bytes."""
    return max(round(seconds / period_s) * BYTES_PER_CYCLE, 4 * LONGEST_PAYLOAD)


class Ring:
    """One end of a ring.

    Attributes:
        marks: Counters, see `Mark`.
    """

    def __init__(self, memory: Memory) -> None:
        view = memoryview(memory).cast("B")
        self.marks = view[: _MARKS * _MARK_SIZE].cast("q")
        self._bytes = view[_MARKS * _MARK_SIZE :]
        self._scratch = bytearray(HEAD.size + LONGEST_PAYLOAD)
        self._ready = memoryview(self._scratch)
        self._number = 0

    def put(self, kind: int, payload: Payload, source: int = 0) -> None:
        """Writes a record over the oldest ones."""
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
        """Returns complete records, and the position after them, where the next read starts.

        Args:
            start: Position as returned by an earlier call; 0: the oldest record.
            most: Largest number of copied bytes, at least two of the longest records; None: all.
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
        kept = max(record_ends(data), default=0)
        # If everything was overwritten, the next read starts at the oldest record.
        return data[:kept], begin + kept if kept else start
