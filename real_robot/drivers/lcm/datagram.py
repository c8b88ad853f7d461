"""LCM's small datagrams over UDP: what channel a message is on, and which one it is."""

import struct

from stringline.real_robot.drivers.lcm.schema import LcmDecodeError

LONGEST_CHANNEL = 63
# Messages that need more than one datagram are not known here; those of arms and grippers are small.
LONGEST_MESSAGE = 65_000

_HEAD = struct.Struct(">4sI")
_SMALL, _FRAGMENT = b"LC02", b"LC03"


def pack_datagram(sequence: int, channel: str, message: bytes) -> bytes:
    """Returns a datagram.

    Raises:
        ValueError: The channel's name or the message is too long.
    """
    name = channel.encode()
    if not 0 < len(name) <= LONGEST_CHANNEL or b"\0" in name or len(message) > LONGEST_MESSAGE:
        raise ValueError(
            f"A channel {channel!r:.80} and {len(message)} bytes; allowed: names of 1 to {LONGEST_CHANNEL} bytes and up to "
            f"{LONGEST_MESSAGE} bytes."
        )
    return _HEAD.pack(_SMALL, sequence % (1 << 32)) + name + b"\0" + message


def unpack_datagram(data: bytes) -> tuple[int, str, bytes]:
    """Returns sequence number, channel and message.

    Raises:
        LcmDecodeError: It is no small datagram of LCM.
    """
    if len(data) < _HEAD.size or data[:4] not in (_SMALL, _FRAGMENT):
        raise LcmDecodeError(f"{data[:4]!r} does not begin a datagram of LCM.")
    magic, sequence = _HEAD.unpack_from(data)
    if magic == _FRAGMENT:
        raise LcmDecodeError("A message in several datagrams is not read here.")
    name, end, _ = data[_HEAD.size : _HEAD.size + LONGEST_CHANNEL + 1].partition(b"\0")
    try:
        channel = name.decode()
    except UnicodeDecodeError as error:
        raise LcmDecodeError(f"The channel {name!r:.80} is no text.") from error
    if not end or not channel:
        raise LcmDecodeError("The channel has no name, or no end.")
    return sequence, channel, data[_HEAD.size + len(name) + 1 :]
