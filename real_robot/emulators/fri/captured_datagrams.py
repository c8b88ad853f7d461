"""What arrived at emulated controllers, datagram by datagram."""

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
        taken: Whether this one was a new answer to the newest message; what was lost on its way was
            not.
        data: As it came in.
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
    """Yields the records that are whole."""
    at = 0
    while at + _HEAD.size <= len(data):
        period, flags, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        if at > len(data):
            return
        yield Captured(period, bool(flags & _ACTIVE), bool(flags & _TAKEN), data[at - size : at])
