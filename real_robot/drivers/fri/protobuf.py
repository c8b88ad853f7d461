"""Protocol Buffers: the wire format, and messages that are described by tables of their fields.

On the wire, numbered fields have one of four types. Varints have seven bits per byte, least
significant first; a tag is `8 * field number + wire type`. Groups, which FRI does not use, are
refused. Any other bytes are fields or an error.

A message is a dict by field name; repeated fields are lists. Unknown fields are skipped, as
everywhere in Protocol Buffers. Messages that a controller would not send are refused: a missing
required field, a value given twice, numbers and enumerators out of range.

This codec stands in place of the library protobuf. That is faster (benchmarks/bridge.py, on one
core: 1.7 us to decode and 1.4 us to encode a message, here 30.8 us and 7.2 us), but would add
generated code and a binary dependency to the device process. Here each byte is read once, so the
time is bounded by the length of a datagram, the checks above are part of decoding, and a fuzz test
covers all of it; 38 us are 0.4 % of a cycle of 10 ms.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

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


Values = dict[str, Any]

_DOUBLE = struct.Struct("<d")


@dataclass(frozen=True)
class Kind:
    """A kind of value.

    Attributes:
        read: Decodes the content of a field.
        write: Encodes a value, without tag and length.
    """

    wire_type: int
    read: Callable[[Any], Any]
    write: Callable[[Any], bytes]


@dataclass(frozen=True)
class Field:
    """A field of a message.

    Attributes:
        name: Key in the dict.
        most: Largest number of values; above one the field is a list.
        required: Whether a message without it is refused.
        packed: Whether several numbers are written under one tag; they are read either way.
    """

    number: int
    name: str
    kind: Kind
    most: int = 1
    required: bool = False
    packed: bool = False


class Message:
    """A type of message.

    Args:
        name: Name in errors.
        fields: Fields in the order of their numbers, which is the order on the wire.
    """

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self._by_number = {field.number: field for field in fields}
        self._required = tuple(field.name for field in fields if field.required)

    def decode(self, data: bytes) -> Values:
        """Returns the values of a message.

        Raises:
            FriDecodeError: The bytes are not such a message.
        """
        found: Values = {}
        for number, wire_type, raw in read_fields(data):
            field = self._by_number.get(number)
            if field is not None:
                self._take(found, field, wire_type, raw)
        for name in self._required:
            if name not in found:
                raise FriDecodeError(f"{self.name} lacks {name}.")
        return found

    def _take(self, found: Values, field: Field, wire_type: int, raw: Raw) -> None:
        kind = field.kind
        name = field.name
        packed = field.most > 1 and wire_type == BYTES != kind.wire_type
        if wire_type != kind.wire_type and not packed:
            raise FriDecodeError(
                f"{self.name}.{name} has wire type {wire_type}; expected is {kind.wire_type}."
            )
        if field.most == 1:
            if name in found:
                raise FriDecodeError(f"{self.name} has {name} twice.")
            found[name] = kind.read(raw)
            return
        values = found.setdefault(name, [])
        assert not packed or isinstance(raw, bytes)
        values += _unpacked(kind, raw) if packed and isinstance(raw, bytes) else [kind.read(raw)]
        if len(values) > field.most:
            raise FriDecodeError(f"{self.name}.{name} has more than {field.most} entries.")

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Returns the bytes of a message; missing and None values are omitted."""
        return b"".join(
            _written(field, value)
            for field in self.fields
            if (value := values.get(field.name)) is not None
        )


def _written(field: Field, value: Any) -> bytes:
    if field.most == 1:
        return _single(field, value)
    if field.packed:
        content = b"".join(map(field.kind.write, value))
        return tag(field.number, BYTES) + varint(len(content)) + content if value else b""
    return b"".join(_single(field, one) for one in value)


def _single(field: Field, value: Any) -> bytes:
    content = field.kind.write(value)
    length = varint(len(content)) if field.kind.wire_type == BYTES else b""
    return tag(field.number, field.kind.wire_type) + length + content


def _unpacked(kind: Kind, data: bytes) -> list[Any]:
    if kind.wire_type == FIXED64:
        if len(data) % 8:
            raise FriDecodeError(f"{len(data)} bytes are not a row of doubles.")
        return [kind.read(data[at : at + 8]) for at in range(0, len(data), 8)]
    found = []
    at = 0
    while at < len(data):
        value, at = read_varint(data, at)
        found.append(kind.read(value))
    return found


def _read_unsigned(bits: int) -> Callable[[int], int]:
    def read(raw: int) -> int:
        if raw >> bits:
            raise FriDecodeError(f"{raw} is not a number of {bits} bits.")
        return raw

    return read


def _read_int32(raw: int) -> int:
    value = raw - (1 << 64) if raw >> 63 else raw
    if not -(1 << 31) <= value < 1 << 31:
        raise FriDecodeError(f"{value} is not a number of 32 bits.")
    return value


def _read_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FriDecodeError(f"{raw!r:.80} is not text.") from error


UINT32 = Kind(VARINT, _read_unsigned(32), varint)
UINT64 = Kind(VARINT, _read_unsigned(64), varint)
INT32 = Kind(VARINT, _read_int32, lambda value: varint(value & (1 << 64) - 1))
DOUBLE = Kind(FIXED64, lambda raw: _DOUBLE.unpack(raw)[0], _DOUBLE.pack)
TEXT = Kind(BYTES, _read_text, str.encode)


def enumerated(kind: type[IntEnum]) -> Kind:
    """Returns the kind of an enumeration."""
    known = {int(entry): entry for entry in kind}

    def read(raw: int) -> IntEnum:
        if raw not in known:
            raise FriDecodeError(f"{raw} is not a {kind.__name__}.")
        return known[raw]

    return Kind(VARINT, read, lambda value: varint(int(value)))


def nested(message: Message) -> Kind:
    """Returns the kind of a nested message."""
    return Kind(BYTES, message.decode, message.encode)
