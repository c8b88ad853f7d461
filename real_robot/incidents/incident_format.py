"""Records of an incident log: each says how long it is and bears a checksum, so that a file cut anywhere is read up to there.

Record, little-endian: F5 53 4C 69 | CRC-32 (4 bytes) of all that follows | length of the payload
(4) | kind (1) | source (1) | 0 (2) | number (8) | monotonic nanoseconds (8) | payload. A file is
records one behind the other and nothing else. It begins with a header in JSON. What the device
process noted is numbered from 1 without gaps, so a gap tells how much is missing; records that the
writer of the file added have the number 0.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap

MAGIC = b"\xf5SLi"
LONGEST_PAYLOAD = 1 << 16
HEAD = struct.Struct("<4sIIBBHqq")
_CHECKED_FROM = 8
_CHECKSUM = struct.Struct("<I")

Payload = bytes | bytearray | memoryview


class Kind(IntEnum):
    """What a record tells. Readers pass over kinds that they do not know."""

    HEADER = 1  # JSON about the whole log.
    EVENT = 2  # JSON: `what` happened, and what is worth knowing about it.
    SENT = 3  # Raw bytes to a bus, the source.
    RECEIVED = 4  # Raw bytes from a bus, the source.
    CYCLE = 5  # One cycle of the device process, as the header's layout says.
    CHUNK = 6  # A chunk that came in, see `incident_log.pack_chunk`.
    END = 7  # JSON: why the log ends, and how much of it was lost.


@dataclass(frozen=True)
class Entry:
    """A record.

    Attributes:
        kind: One of `Kind`, or a number of a later version.
        source: The bus of raw bytes, 0 otherwise.
        number: Counts what the device process noted, from 1; 0 for what the writer of the file
            added.
        ns: Monotonic nanoseconds.
        payload: What the kind says.
    """

    kind: int
    source: int
    number: int
    ns: int
    payload: bytes


@dataclass(frozen=True)
class Damage:
    """A part of a log that is no record.

    Attributes:
        at: Byte where it begins.
        size: In bytes.
        reason: In words.
    """

    at: int
    size: int
    reason: str


def pack_into(buffer: bytearray, entry: tuple[int, int, int, int], payload: Payload) -> int:
    """Writes a record to the beginning of a buffer and returns its size; nothing that grows is allocated.

    Args:
        buffer: At least `HEAD.size` + `LONGEST_PAYLOAD` bytes.
        entry: Kind, source, number, nanoseconds.
        payload: Contiguous bytes.

    Raises:
        ValueError: The payload is too long.
    """
    view = memoryview(payload).cast("B")
    size = HEAD.size + len(view)
    if len(view) > LONGEST_PAYLOAD:
        raise ValueError(f"A record of {len(view)} bytes; allowed: {LONGEST_PAYLOAD}.")
    kind, source, number, ns = entry
    HEAD.pack_into(buffer, 0, MAGIC, 0, len(view), kind, source, 0, number, ns)
    buffer[HEAD.size : size] = view
    _CHECKSUM.pack_into(buffer, len(MAGIC), zlib.crc32(memoryview(buffer)[_CHECKED_FROM:size]))
    return size


def encode(entry: Entry) -> bytes:
    """Returns the bytes of a record.

    Raises:
        ValueError: The payload is too long.
    """
    buffer = bytearray(HEAD.size + len(entry.payload))
    return bytes(
        buffer[
            : pack_into(buffer, (entry.kind, entry.source, entry.number, entry.ns), entry.payload)
        ]
    )


def scan(data: bytes | mmap) -> Iterator[Entry | Damage]:
    """Yields every record that is whole, and each stretch of bytes between them that is none, in their order.

    Nothing that a file holds makes it fail; a damaged stretch ends where the next whole record
    begins.
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
            "the file ends within a record" if cut else "no record with a right checksum",
        )
        at = following


def whole(data: bytes | mmap, at: int) -> int:
    """Returns the size of the record that begins there, or 0 when there is none that is whole."""
    size = _claimed(data, at)
    if not size or at + size > len(data):
        return 0
    (checksum,) = _CHECKSUM.unpack_from(data, at + len(MAGIC))
    return size if zlib.crc32(data[at + _CHECKED_FROM : at + size]) == checksum else 0


def whole_records(data: bytes) -> int:
    """Returns how many bytes the whole records take with which data begins; a record that is cut off does not count."""
    at = 0
    while at + HEAD.size <= len(data) and (
        following := at + HEAD.size + HEAD.unpack_from(data, at)[2]
    ) <= len(data):
        at = following
    return at


def next_record(data: bytes | mmap, start: int) -> int:
    """Returns where the first whole record from `start` on begins, or the length of the data."""
    at = data.find(MAGIC, start)
    while at >= 0 and not whole(data, at):
        at = data.find(MAGIC, at + 1)
    return at if at >= 0 else len(data)


def _claimed(data: bytes | mmap, at: int) -> int:
    """Returns the size that a record claims to have, or 0 where none begins."""
    if at + HEAD.size > len(data) or data[at : at + len(MAGIC)] != MAGIC:
        return 0
    length = int(HEAD.unpack_from(data, at)[2])
    return HEAD.size + length if length <= LONGEST_PAYLOAD else 0
