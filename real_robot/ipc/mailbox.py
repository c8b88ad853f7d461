"""Bounded mailboxes between two processes: fixed-size records in shared memory, no pickle, and no waiting for each other.

One process writes, the other reads. The writer never waits: in a full mailbox the oldest record
makes room. A reader copies a record and looks at its number and checksum afterwards, so a record
that was overwritten meanwhile is not taken for a whole one.
"""

import zlib
from ctypes import Array as SharedArray
from ctypes import c_ubyte
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
from numpy.typing import NDArray

Record = NDArray[np.void]
Memory = SharedArray[c_ubyte]

_ATTEMPTS = 10


def _slot(content: np.dtype[np.void]) -> np.dtype[np.void]:
    """Layout of a record with its number, counted from 1, and its checksum."""
    return np.dtype([("number", "<i8"), ("checksum", "<u4"), ("content", content)], align=True)


def shared_memory(context: SpawnContext, content: np.dtype[np.void], slots: int) -> Memory:
    """Returns memory for a mailbox, to be given to the other process when that is spawned."""
    return context.RawArray(c_ubyte, _slot(content).itemsize * slots)


class Mailbox:
    """One end of a mailbox.

    Args:
        memory: As `shared_memory` returned it.
        content: Layout of a record.
    """

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
        """Returns a copy of the newest record, or None when there is none."""
        for _ in range(_ATTEMPTS):
            number = int(self._slots["number"].max())
            if number == 0:
                return None
            record = self._copy(number)
            if record is not None:
                return record
        return None

    def recent(self) -> list[Record]:
        """Returns copies of all records that are still there, oldest first."""
        return self._since(0)

    def fresh(self) -> list[Record]:
        """Returns copies of the records that this end has not had yet, oldest first."""
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
