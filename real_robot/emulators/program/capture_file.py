"""Files in which emulators capture the bytes of drivers, as they are or as records."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HEAD = struct.Struct("<IBH")
_ARRIVAL = struct.Struct("<Qd")
_ACTIVE = 1
_TAKEN = 2


class CaptureFile:
    """A file of captured bytes, which are written at once; without a path it drops them."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("wb", buffering=0)

    @property
    def empty(self) -> bool:
        """Whether it contains no bytes."""
        return self._file is None or not self._file.tell()

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        if self._file is not None:
            self._file.write(data)

    def clear(self) -> None:
        """Removes all bytes."""
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()

    def close(self) -> None:
        """Closes the file; harmless if it is closed."""
        if self._file is not None:
            self._file.close()


def arrivals_beside(file: Path) -> Path:
    """Returns the file of the times at which the bytes of a captured file arrived."""
    return file.with_suffix(".times")


class ArrivalFile:
    """The times at which captured bytes arrived.

    Args:
        captured: File of the bytes; if None, nothing is written.
    """

    def __init__(self, captured: Path | None) -> None:
        self._file = CaptureFile(None if captured is None else arrivals_beside(captured))
        self._bytes = 0

    def note(self, count: int, seconds: float) -> None:
        """Records that so many bytes arrived at a time of the monotonic clock."""
        self._bytes += count
        self._file.write(_ARRIVAL.pack(self._bytes, seconds))

    def close(self) -> None:
        """Closes the file; harmless if it is closed."""
        self._file.close()


def arrivals_in(file: Path) -> list[tuple[int, float]]:
    """Returns the number of bytes that had arrived at each time, of a captured file.

    Without a file of arrivals, as in lock-step, there are none.
    """
    beside = arrivals_beside(file)
    data = beside.read_bytes() if beside.is_file() else b""
    whole = len(data) - len(data) % _ARRIVAL.size
    return [(count, seconds) for count, seconds in _ARRIVAL.iter_unpack(data[:whole])]


@dataclass(frozen=True)
class Captured:
    """A datagram or command of a driver.

    Attributes:
        period: Number of the period of the controller; of several, of the first.
        active: Whether commands moved the arm.
        data: The datagram, or the encoded command.
        taken: Over FRI, whether it was a new answer to the newest message, and not lost on its way.
    """

    period: int
    active: bool
    data: bytes
    taken: bool = False

    def to_bytes(self) -> bytes:
        """Returns the record."""
        flags = self.active * _ACTIVE | self.taken * _TAKEN
        return _HEAD.pack(self.period, flags, len(self.data)) + self.data


def captured_in(data: bytes) -> Iterator[Captured]:
    """Yields the complete records."""
    at = 0
    while at + _HEAD.size <= len(data):
        period, flags, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        if at > len(data):
            return
        yield Captured(period, bool(flags & _ACTIVE), data[at - size : at], bool(flags & _TAKEN))


class CapturedRecords:
    """The records of a file that grows.

    Args:
        file: File that the emulator captures; see its `--capture`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0

    def fresh(self) -> Iterator[Captured]:
        """Yields the complete records that were added since the last call."""
        with self._file.open("rb") as stream:
            stream.seek(self._at)
            data = stream.read()
        for one in captured_in(data):
            self._at += len(one.to_bytes())
            yield one
