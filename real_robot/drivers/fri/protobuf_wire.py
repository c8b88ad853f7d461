"""The wire format of Protocol Buffers: numbered fields of four wire types.

Varints have seven bits per byte, least significant first; a tag is `8 * field number + wire type`.
Groups, which FRI does not use, are refused. Any other bytes are fields or an error.
"""

from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
Raw = int | bytes

_LONGEST_VARINT = 10
_LONGEST_TAG = 5
_SIZES = {FIXED64: 8, FIXED32: 4}


class FriDecodeError(ValueError):
    """Bytes that are not an FRI message."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number (0 to 2^64 - 1) that begins at `at`, and the index of its end.

    Raises:
        FriDecodeError: The number is truncated, or too long.
    """
    value = 0
    shift = 0
    for byte in data[at : at + _LONGEST_VARINT]:
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    truncated = shift < 7 * _LONGEST_VARINT
    raise FriDecodeError(
        "A number is truncated." if truncated else "A number is longer than 64 bits."
    )


def read_fields(data: bytes) -> Iterator[tuple[int, int, Raw]]:
    """Yields number, wire type and content of each field: an int for varints, else the bytes.

    Raises:
        FriDecodeError: The bytes are not a message.
    """
    at = 0
    end = len(data)
    while at < end:
        start = at
        tag, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
        number = tag >> 3
        wire_type = tag & 7
        if not 0 < number < 1 << 29 or at - start > _LONGEST_TAG:
            raise FriDecodeError(f"The field number {number} is out of range.")
        if wire_type == VARINT:
            value, at = read_varint(data, at)
            yield number, wire_type, value
            continue
        size = _SIZES.get(wire_type, 0)
        if wire_type == BYTES:
            size, at = read_varint(data, at)
        elif not size:
            raise FriDecodeError(f"Field {number} has wire type {wire_type}; allowed: 0, 1, 2, 5.")
        if size > end - at:
            raise FriDecodeError(f"Field {number} claims {size} bytes; {end - at} are left.")
        yield number, wire_type, data[at : at + size]
        at += size


def varint(value: int) -> bytes:
    """Returns the bytes of a number from 0 to 2^64 - 1."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def tag(number: int, wire_type: int) -> bytes:
    """Returns the tag before a field."""
    return varint(number << 3 | wire_type)
