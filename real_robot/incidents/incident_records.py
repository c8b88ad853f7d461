"""Records of an incident log, and a ring of them in shared memory.

Record, little-endian: F5 53 4C 69 | CRC-32 (4 bytes) of the rest | length of the payload (4) |
kind (1) | source (1) | 0 (2) | number (8) | monotonic nanoseconds (8) | payload. With its length
and checksum a truncated file stays readable. A file is a sequence of records and begins with a
header in JSON. The records of the device process are numbered from 1 without gaps, so a gap tells
the number of missing ones; those of the recorder have 0.

The ring holds the records of the last half minute of a device process. Its writer never waits. It
announces the end of each write before it writes, so a reader knows which bytes were overwritten
while it copied. The memory outlives its writer and is readable after a crash of the device process.
"""

import struct
import time
import zlib
from collections.abc import Iterator
from ctypes import c_ubyte
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap
from multiprocessing.sharedctypes import RawArray

from stringline.real_robot.ipc.mailbox import Memory

MAGIC = b"\xf5SLi"
LONGEST_PAYLOAD = 1 << 16
HEAD = struct.Struct("<4sIIBBHqq")
_CHECKED_FROM = 8
_CHECKSUM = struct.Struct("<I")

Payload = bytes | bytearray | memoryview


class Kind(IntEnum):
    """The kind of a record. Readers skip unknown kinds."""

    HEADER = 1  # JSON about the whole log.
    EVENT = 2  # JSON: the name of the event, `what`, and its details.
    SENT = 3  # Raw bytes to a bus, whose number is the source.
    RECEIVED = 4  # Raw bytes from a bus, whose number is the source.
    CYCLE = 5  # One cycle of the device process, in the layout of the header.
    CHUNK = 6  # A received chunk, see `incident_log.pack_chunk`.
    END = 7  # JSON: the reason of the end, and the number of lost records.


@dataclass(frozen=True)
class Entry:
    """A record.

    Attributes:
        kind: One of `Kind`, or a number of a later version.
        source: Number of the bus of raw bytes, 0 otherwise.
        number: Counts the records of the device process from 1; 0 for those of the recorder.
        ns: Monotonic nanoseconds.
        payload: Content, see `Kind`.
    """

    kind: int
    source: int
    number: int
    ns: int
    payload: bytes


@dataclass(frozen=True)
class Damage:
    """A damaged part of a log: `size` bytes at the offset `at`."""

    at: int
    size: int
    reason: str


def pack_into(buffer: bytearray, entry: tuple[int, int, int, int], payload: Payload) -> int:
    """Writes a record to the beginning of a buffer, without allocations, and returns its size.

    The buffer has at least `HEAD.size` + `LONGEST_PAYLOAD` bytes. The entry is kind, source, number
    and nanoseconds. The payload is contiguous.

    Raises:
        ValueError: The payload is too long.
    """
    view = memoryview(payload).cast("B")
    size = HEAD.size + len(view)
    if len(view) > LONGEST_PAYLOAD:
        raise ValueError(f"A record has {len(view)} bytes; allowed: {LONGEST_PAYLOAD}.")
    kind, source, number, ns = entry
    HEAD.pack_into(buffer, 0, MAGIC, 0, len(view), kind, source, 0, number, ns)
    buffer[HEAD.size : size] = view
    _CHECKSUM.pack_into(buffer, len(MAGIC), zlib.crc32(memoryview(buffer)[_CHECKED_FROM:size]))
    return size


def encode(entry: Entry) -> bytes:
    """Returns the bytes of a record."""
    buffer = bytearray(HEAD.size + len(entry.payload))
    pack_into(buffer, (entry.kind, entry.source, entry.number, entry.ns), entry.payload)
    return bytes(buffer)


def scan(data: bytes | mmap) -> Iterator[Entry | Damage]:
    """Yields all intact records, and the damaged parts between them, in order.

    No content raises an error; a damaged part ends at the next intact record.
    """
    at = 0
    end = len(data)
    while at < end:
        if size := whole(data, at):
            _, _, _, kind, source, _, number, ns = HEAD.unpack_from(data, at)
            yield Entry(kind, source, number, ns, bytes(data[at + HEAD.size : at + size]))
            at += size
            continue
        following = next_record(data, at + 1)
        cut = following == end and (end - at < HEAD.size or _claimed(data, at) > end - at)
        yield Damage(
            at,
            following - at,
            "the file ends within a record" if cut else "no record with a valid checksum",
        )
        at = following


def whole(data: bytes | mmap, at: int) -> int:
    """Returns the size of the intact record at an offset, or 0 without one."""
    size = _claimed(data, at)
    if not size or at + size > len(data):
        return 0
    (checksum,) = _CHECKSUM.unpack_from(data, at + len(MAGIC))
    return size if zlib.crc32(data[at + _CHECKED_FROM : at + size]) == checksum else 0


def record_ends(data: bytes) -> list[int]:
    """Returns the offset after each complete record, up to the first incomplete one."""
    ends = []
    at = 0
    while at + HEAD.size <= len(data):
        at += HEAD.size + HEAD.unpack_from(data, at)[2]
        ends.append(at)
    return ends if at <= len(data) else ends[:-1]


def next_record(data: bytes | mmap, start: int) -> int:
    """Returns the offset of the first intact record from `start` on, or the length of the data."""
    at = data.find(MAGIC, start)
    while at >= 0 and not whole(data, at):
        at = data.find(MAGIC, at + 1)
    return at if at >= 0 else len(data)


def _claimed(data: bytes | mmap, at: int) -> int:
    """Returns the size in the head of a record, or 0 if no record begins there."""
    if at + HEAD.size > len(data) or data[at : at + len(MAGIC)] != MAGIC:
        return 0
    length = int(HEAD.unpack_from(data, at)[2])
    return HEAD.size + length if length <= LONGEST_PAYLOAD else 0


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
            most: Largest number of copied bytes, at least two of the longest records; if None, all.
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
