"""The frame of a message in a datagram, from FRI 2.7 on: its length and a checksum.

A datagram of n + 8 bytes: n (u32), the message, and the CRC-32 of the message with zlib's
polynomial (u32), both little-endian. Until 2.5 a datagram is the bare message.
"""

import struct
import zlib

from stringline.real_robot.drivers.fri.protobuf_wire import FriDecodeError

_NUMBER = struct.Struct("<I")
FRAME_SIZE = 2 * _NUMBER.size


def framed(message: bytes) -> bytes:
    """Returns the datagram of a message."""
    return _NUMBER.pack(len(message)) + message + _NUMBER.pack(zlib.crc32(message))


def unframed(datagram: bytes) -> bytes:
    """Returns the message in a datagram.

    Raises:
        FriDecodeError: The length or the checksum is wrong.
    """
    size = len(datagram) - FRAME_SIZE
    if size < 0 or _NUMBER.unpack_from(datagram)[0] != size:
        raise FriDecodeError(
            f"A datagram of {len(datagram)} bytes lacks the frame of FRI 2.7, which has the length "
            "of the message and its checksum."
        )
    message = datagram[_NUMBER.size : -_NUMBER.size]
    if _NUMBER.unpack_from(datagram, _NUMBER.size + size)[0] != zlib.crc32(message):
        raise FriDecodeError("The checksum of a message is wrong.")
    return message
