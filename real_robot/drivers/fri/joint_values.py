"""Seven joints as FRI writes them: a message of doubles, each under a tag of its own."""

import struct
from collections.abc import Sequence

from stringline.real_robot.drivers.fri.fri_schema import DOUBLE, Field, Kind, Message
from stringline.real_robot.drivers.fri.protobuf_wire import BYTES, FIXED64
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS

_TAG = 1 << 3 | FIXED64
_ROW = struct.Struct("<" + "Bd" * JOINTS)
_TAGS = bytes([_TAG]) * JOINTS
_ANY = Message("JointValues", Field(1, "value", DOUBLE, JOINTS))


def _read(raw: bytes) -> tuple[float, ...]:
    # The usual form is decoded at once; others, such as doubles under one tag, field by field.
    if len(raw) == _ROW.size and raw[:: _ROW.size // JOINTS] == _TAGS:
        return _ROW.unpack(raw)[1::2]
    return tuple(_ANY.decode(raw).get("value", ()))


def _write(values: Sequence[float]) -> bytes:
    return b"".join(_TAGS[:1] + DOUBLE.write(value) for value in values)


JOINT_VALUES = Kind(BYTES, _read, _write)
