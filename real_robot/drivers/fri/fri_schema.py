"""From wire to values and back, by tables of fields: what a message is made of, and how values are read and written.

A message is a dict by field name; repeated fields are lists. Unknown fields are skipped, as
everywhere in protobuf. What no controller would send is refused: a missing required field, one
value twice, numbers and enumerators out of range.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from stringline.real_robot.drivers.fri.wire import (
    BYTES,
    FIXED64,
    VARINT,
    FriDecodeError,
    Raw,
    read_fields,
    read_varint,
    tag,
    varint,
)

Values = dict[str, Any]

_DOUBLE = struct.Struct("<d")


@dataclass(frozen=True)
class Kind:
    """A kind of value.

    Attributes:
        wire_type: How it lies on the wire.
        read: From there.
        write: To there, without tag.
    """

    wire_type: int
    read: Callable[[Any], Any]
    write: Callable[[Any], bytes]


@dataclass(frozen=True)
class Field:
    """A field of a message.

    Attributes:
        number: On the wire.
        name: In the dict.
        kind: Of its values.
        most: How many there may be; more than one makes it a list.
        required: Whether a message without it is none.
        packed: Whether several numbers are written under one tag. They are read either way.
    """

    number: int
    name: str
    kind: Kind
    most: int = 1
    required: bool = False
    packed: bool = False


class Message:
    """A kind of message.

    Args:
        name: For errors.
        fields: In the order of their numbers, which is the order on the wire.
    """

    def __init__(self, name: str, *fields: Field) -> None:
        self.name = name
        self.fields = fields
        self._by_number = {field.number: field for field in fields}
        self._required = tuple(field.name for field in fields if field.required)

    def decode(self, data: bytes) -> Values:
        """Returns the values of a message.

        Raises:
            FriDecodeError: The bytes are no such message.
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
        """Returns the bytes of a message; what is not in `values`, or None, is left out."""
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
            raise FriDecodeError(f"{len(data)} bytes are no row of doubles.")
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
            raise FriDecodeError(f"{raw} is no number of {bits} bits.")
        return raw

    return read


def _read_int32(raw: int) -> int:
    value = raw - (1 << 64) if raw >> 63 else raw
    if not -(1 << 31) <= value < 1 << 31:
        raise FriDecodeError(f"{value} is no number of 32 bits.")
    return value


def _read_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FriDecodeError(f"{raw!r:.80} is no text.") from error


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
            raise FriDecodeError(f"{raw} is no {kind.__name__}.")
        return known[raw]

    return Kind(VARINT, read, lambda value: varint(int(value)))


def nested(message: Message) -> Kind:
    """Returns the kind of a message within a message."""
    return Kind(BYTES, message.decode, message.encode)
