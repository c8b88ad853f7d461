"""Bounded mailboxes between two processes: fixed-size records in shared memory, without locks.

One process writes, the other reads. The writer never waits: a full mailbox drops its oldest record.
A reader copies a record and checks its number and checksum afterwards, which detects records that
were overwritten meanwhile.
"""

import zlib
from ctypes import Array as SharedArray
from ctypes import c_ubyte
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
from numpy.typing import NDArray

Record = NDArray[np.void]
Memory = SharedArray[c_ubyte]

_ATTEMPTS = 10


def _slot(content: np.dtype[np.void]) -> np.dtype[np.void]:
    """Returns the layout of a record with its number, counted from 1, and its checksum."""
    return np.dtype([("number", "<i8"), ("checksum", "<u4"), ("content", content)], align=True)


def shared_memory(content: np.dtype[np.void], slots: int) -> Memory:
    """Returns memory for a mailbox, an argument of the spawned process."""
    return RawArray(c_ubyte, _slot(content).itemsize * slots)


class Mailbox:
    """One end of a mailbox in a `shared_memory`, for records of the layout `content`."""

    def __init__(self, memory: Memory, content: np.dtype[np.void]) -> None:
        self._slots: NDArray[Any] = np.frombuffer(
            memoryview(memory).cast("B"), dtype=_slot(content)
        )
        self._written = int(self._slots["number"].max())
        self._read = 0

    def put(self, record: Record) -> None:
        """Writes a record (of shape ())."""
        number = self._written + 1
        slot = self._slots[number % len(self._slots) :][:1]
        slot["number"] = 0
        slot["content"] = record
        slot["checksum"] = zlib.crc32(slot["content"].tobytes())
        slot["number"] = number
        self._written = number

    def newest(self) -> Record | None:
        """Returns a copy of the newest record, None before the first one."""
        for _ in range(_ATTEMPTS):
            number = int(self._slots["number"].max())
            if number == 0:
                return None
            record = self._copy(number)
            if record is not None:
                return record
        return None

    def recent(self) -> list[Record]:
        """Returns copies of all records in the mailbox, oldest first."""
        return self._since(0)

    def fresh(self) -> list[Record]:
        """Returns copies of the records that this end has not read yet, oldest first."""
        return self._since(self._read)

    def _since(self, after: int) -> list[Record]:
        numbers = sorted(int(number) for number in self._slots["number"] if number > after)
        self._read = max([self._read, *numbers])
        return [record for number in numbers if (record := self._copy(number)) is not None]

    def _copy(self, number: int) -> Record | None:
        slot = self._slots[number % len(self._slots) :][:1].copy()
        whole = slot["number"][0] == number and slot["checksum"][0] == zlib.crc32(
            slot["content"].tobytes()
        )
        record: Record = slot["content"][0:1].reshape(())
        return record if whole else None
