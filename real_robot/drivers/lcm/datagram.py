"""LCM's datagrams over UDP: a message that fits into one (`LC02`), or its fragments (`LC03`).

Layouts are those of LCM's documentation, `docs/content/udp-multicast-protocol.md`; sizes are those
of its C library. Any bytes are a datagram or an error.
"""

import struct
from typing import NamedTuple

from stringline.real_robot.drivers.lcm.lcm_schema import LcmDecodeError

LONGEST_CHANNEL = 63
LONGEST_DATAGRAM = 65_507  # Of UDP over IPv4.

_SMALL = b"LC02"
_FRAGMENT = b"LC03"
_HEAD = struct.Struct(">4sI")
_FRAGMENT_HEAD = struct.Struct(">4sIIIHH")
# Of a channel's name, its end and a message together.
_LONGEST_SMALL = LONGEST_DATAGRAM - _HEAD.size
_LONGEST_PIECE = LONGEST_DATAGRAM - _FRAGMENT_HEAD.size
_MOST_PIECES = 0xFFFF
LONGEST_MESSAGE = _MOST_PIECES * _LONGEST_PIECE - LONGEST_CHANNEL - 1


class Whole(NamedTuple):
    """A message in one datagram.

    Attributes:
        sequence: Number of the message at its publisher, modulo 2^32.
    """

    sequence: int
    channel: str
    message: bytes


class Fragment(NamedTuple):
    """A fragment of a message.

    Attributes:
        sequence: Number of the message, the same for all its fragments.
        size: Bytes of the whole message.
        offset: Offset of the fragment in the message.
        number: Number of the fragment, from 0.
        channel: Name of the channel, only in the first fragment.
        piece: Bytes of the fragment.
    """

    sequence: int
    size: int
    offset: int
    number: int
    total: int
    channel: str
    piece: bytes


def pack_datagrams(sequence: int, channel: str, message: bytes) -> list[bytes]:
    """Returns the datagrams of a message, in order.

    Raises:
        ValueError: The channel's name or the message is too long.
    """
    name = channel.encode()
    if not 0 < len(name) <= LONGEST_CHANNEL or b"\0" in name or len(message) > LONGEST_MESSAGE:
        raise ValueError(
            f"A channel {channel!r:.80} and {len(message)} bytes; allowed: names of 1 to "
            f"{LONGEST_CHANNEL} bytes and up to {LONGEST_MESSAGE} bytes."
        )
    number = sequence % (1 << 32)
    body = name + b"\0" + message
    if len(body) <= _LONGEST_SMALL:
        return [_HEAD.pack(_SMALL, number) + body]
    pieces = [body[at : at + _LONGEST_PIECE] for at in range(0, len(body), _LONGEST_PIECE)]
    # Offsets are those in the message, which follows the name in the first fragment.
    offsets = [max(0, index * _LONGEST_PIECE - len(name) - 1) for index in range(len(pieces))]
    return [
        _FRAGMENT_HEAD.pack(_FRAGMENT, number, len(message), offset, index, len(pieces)) + piece
        for index, (offset, piece) in enumerate(zip(offsets, pieces, strict=True))
    ]


def unpack_datagram(data: bytes) -> Whole | Fragment:
    """Decodes a datagram.

    Raises:
        LcmDecodeError: It is not a datagram of LCM.
    """
    if data[:4] == _SMALL and len(data) >= _HEAD.size:
        _, sequence = _HEAD.unpack_from(data)
        return Whole(sequence, *_split(data[_HEAD.size :]))
    if data[:4] == _FRAGMENT and len(data) >= _FRAGMENT_HEAD.size:
        return _fragment(data)
    raise LcmDecodeError(f"{data[:4]!r} does not begin a datagram of LCM.")


def _fragment(data: bytes) -> Fragment:
    _, sequence, size, offset, number, total = _FRAGMENT_HEAD.unpack_from(data)
    channel = ""
    piece = data[_FRAGMENT_HEAD.size :]
    if number == 0:
        channel, piece = _split(piece)
    if number >= total or offset + len(piece) > size:
        raise LcmDecodeError(
            f"Fragment {number} of {total} with {len(piece)} bytes at {offset} does not fit a "
            f"message of {size} bytes."
        )
    return Fragment(sequence, size, offset, number, total, channel, piece)


def _split(body: bytes) -> tuple[str, bytes]:
    """Returns the channel, and the bytes after its name."""
    name, end, _ = body[: LONGEST_CHANNEL + 1].partition(b"\0")
    try:
        channel = name.decode()
    except UnicodeDecodeError as error:
        raise LcmDecodeError(f"The channel {name!r:.80} is not text.") from error
    if not end or not channel:
        raise LcmDecodeError("The channel has no name, or no end.")
    return channel, body[len(name) + 1 :]
