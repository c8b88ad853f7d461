"""Append-only log files: complete records, also on a full or slow disk."""

import json
import os
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from stringline.datasets.files.atomic import write_all
from stringline.real_robot.incidents.incident_format import HEAD, Entry, Kind, encode, record_ends
from stringline.real_robot.incidents.incident_ring import Mark, Ring

_ATTEMPT_EVERY_S = 0.5
_SYNC_EVERY_S = 1.0
_PIECE = 1 << 20


class LogFile:
    """A log file that is being written.

    Records that the disk rejects stay in the ring and are written later; those that are overwritten
    there before are lost, and counted.

    Args:
        path: Path of the file, which must not exist.
        start: Position of the first record in the ring; 0: the oldest one.
    """

    def __init__(self, path: Path, ring: Ring, start: int, header: Mapping[str, Any]) -> None:
        self.path = path
        self.lost = 0
        self._ring = ring
        self._place = start
        self._header = encode(
            Entry(Kind.HEADER, 0, 0, time.monotonic_ns(), json.dumps(header).encode())
        )
        self._file: FileIO | None = None
        self._size = self._number = 0
        self._again = self._synced = 0.0

    def pump(self) -> None:
        """Writes the new records of the ring. After an error it waits for half a second."""
        if time.monotonic() < self._again:
            return
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("ab", buffering=0)
                self._ring.marks[Mark.FILES] += 1
            if self._size or self._append(self._header):
                while self._append_new() and time.monotonic() >= self._again:
                    pass
            if time.monotonic() > self._synced + _SYNC_EVERY_S:
                self._sync()
        except OSError:
            self._failed()

    def _append_new(self) -> bool:
        """Writes a part of the new records, to bound the memory; returns whether it found any."""
        data, end = self._ring.read(self._place, _PIECE)
        if data:
            first = int(HEAD.unpack_from(data)[6])
            if self._number:
                self._lose(first - self._number - 1)
            kept = self._append(data)
            self._place = end - len(data) + kept
            self._number = first - 1 + len(record_ends(data[:kept]))
        return bool(data)

    def _append(self, data: bytes) -> int:
        """Writes records, and returns the size of those that were written completely."""
        assert self._file is not None
        try:
            write_all(self._file.fileno(), memoryview(data))
            kept = len(data)
        except OSError:
            self._failed()
            written = os.fstat(self._file.fileno()).st_size - self._size
            kept = max(record_ends(data[:written]), default=0)
            self._file.truncate(self._size + kept)
        self._size += kept
        return kept

    def _failed(self) -> None:
        self._ring.marks[Mark.FAILURES] += 1
        self._again = time.monotonic() + _ATTEMPT_EVERY_S

    def _lose(self, records: int) -> None:
        self.lost += records
        self._ring.marks[Mark.LOST] += records

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self, reason: str) -> None:
        """Writes the remaining records and the reason of the end, and syncs; never raises."""
        self._again = 0.0
        self.pump()
        if self._again:  # The write failed; otherwise new records in the ring came after the end.
            self._lose(len(record_ends(self._ring.read(self._place)[0])))
        if self._file is None:
            return
        end = {"what": reason, "lost": self.lost, "failures": self._ring.marks[Mark.FAILURES]}
        try:
            self._append(
                encode(Entry(Kind.END, 0, 0, time.monotonic_ns(), json.dumps(end).encode()))
            )
            self._sync()
        except OSError:
            self._failed()
        self._file.close()
        self._file = None
