"""The datagrams that arrived at emulated controllers, as records of a file."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEAD = struct.Struct("<IBH")
_ACTIVE = 1
_TAKEN = 2


@dataclass(frozen=True)
class Captured:
    """A datagram of a client.

    Attributes:
        period: Number of the controller's period.
        active: Whether commands moved the arm.
        taken: Whether it was a new answer to the newest message, and not lost on its way.
        data: The datagram.
    """

    period: int
    active: bool
    taken: bool
    data: bytes

    def to_bytes(self) -> bytes:
        """Returns the record."""
        return (
            _HEAD.pack(self.period, self.active * _ACTIVE | self.taken * _TAKEN, len(self.data))
            + self.data
        )


def captured_in(data: bytes) -> Iterator[Captured]:
    """Yields the complete records."""
    at = 0
    while at + _HEAD.size <= len(data):
        period, flags, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        if at > len(data):
            return
        yield Captured(period, bool(flags & _ACTIVE), bool(flags & _TAKEN), data[at - size : at])
