"""The messages of each version of FRI, and the frame of a message in a datagram.

1.14, 1.15 and 1.16 are equal; later versions omit the commanded joints and add poses.
`externalForce` of 2.7 is not decoded: its form is not known here.

From 2.7 on, a message of n bytes has a frame, a datagram of n + 8 bytes: n (u32), the message, and
the CRC-32 of the message with zlib's polynomial (u32), both little-endian. Until 2.5 a datagram is
the bare message. Joints are a message of seven doubles, each under a tag of its own.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.fri import enums
from stringline.real_robot.drivers.fri.protobuf import (
    BYTES,
    DOUBLE,
    FIXED64,
    INT32,
    TEXT,
    UINT32,
    UINT64,
    Field,
    FriDecodeError,
    Kind,
    Message,
    enumerated,
    nested,
)
from stringline.real_robot.drivers.kuka.kuka_arm import JOINTS

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


MOST_TRANSFORMATIONS = 5
MOST_IO = 10

HEADER = Message(
    "MessageHeader",
    Field(1, "messageIdentifier", UINT32, required=True),
    Field(2, "sequenceCounter", UINT32, required=True),
    Field(3, "reflectedSequenceCounter", UINT32, required=True),
)
CONNECTION = Message(
    "ConnectionInfo",
    Field(1, "sessionState", enumerated(enums.SessionState), required=True),
    Field(2, "quality", enumerated(enums.Quality), required=True),
    Field(3, "sendPeriod", UINT32),
    Field(4, "receiveMultiplier", UINT32),
)
ROBOT = Message(
    "RobotInfo",
    Field(1, "numberOfJoints", INT32),
    Field(2, "safetyState", enumerated(enums.SafetyState)),
    Field(5, "driveState", enumerated(enums.DriveState), JOINTS),
    Field(6, "operationMode", enumerated(enums.OperationMode)),
    Field(7, "controlMode", enumerated(enums.ControlMode)),
)
TIME = Message(
    "TimeStamp", Field(1, "sec", UINT32, required=True), Field(2, "nanosec", UINT32, required=True)
)
IO_VALUE = Message(
    "FriIOValue",
    Field(1, "name", TEXT, required=True),
    Field(2, "type", enumerated(enums.IoType), required=True),
    Field(3, "direction", enumerated(enums.IoDirection), required=True),
    Field(4, "digitalValue", UINT64),
    Field(5, "analogValue", DOUBLE),
)
WRENCH = Message("CartesianVector", Field(1, "element", DOUBLE, 6, packed=True))
REDUNDANCY = Message(
    "RedundancyInformation",
    Field(1, "strategy", enumerated(enums.Redundancy), required=True),
    Field(2, "value", DOUBLE, required=True),
)
CHECKSUM = Message("Checksum", Field(1, "crc32", INT32))
END = Message(
    "MessageEndOf", Field(1, "messageLength", INT32), Field(2, "messageChecksum", nested(CHECKSUM))
)


def _pose(name: str, entries: str, count: int) -> Message:
    elements = Field(2, entries, DOUBLE, count, packed=True)
    return Message(
        name, Field(1, "name", TEXT, required=True), elements, Field(3, "timestamp", nested(TIME))
    )


MATRIX = _pose("Transformation", "matrix", 12)
QUATERNION = _pose("QuaternionTransformation", "element", 7)


@dataclass(frozen=True, eq=False)
class FriVersion:
    """A version of FRI.

    Attributes:
        name: Such as `1.15`.
        monitoring: Message of the controller.
        command: Answer of the client.
        echoes: Whether the controller reports the commanded joints, and the client repeats them
            while it only monitors.
        has_io: Whether messages contain inputs and outputs.
        has_frame: Whether a datagram contains the length of the message and its checksum.
    """

    name: str
    monitoring: Message
    command: Message
    echoes: bool
    has_io: bool
    has_frame: bool = False

    def datagram(self, message: bytes) -> bytes:
        """Returns the datagram of an encoded message."""
        return framed(message) if self.has_frame else message

    def message(self, datagram: bytes) -> bytes:
        """Returns the encoded message in a datagram.

        Raises:
            FriDecodeError: The frame of the datagram is wrong.
        """
        return unframed(datagram) if self.has_frame else datagram


_JOINT_ROWS = (
    "measuredJointPosition",
    "measuredTorque",
    # Only in 1.x. It is decoded in all versions, so that a controller of 1.x is recognised if 2.x
    # is configured.
    "commandedJointPosition",
    "commandedTorque",
    "externalTorque",
)


def _pose_fields(number: int, pose: str, elbow: str) -> tuple[Field, Field]:
    return Field(number, pose, nested(QUATERNION)), Field(number + 1, elbow, nested(REDUNDANCY))


def _monitor_data(*, first: bool, has_io: bool) -> Message:
    return Message(
        "MessageMonitorData",
        *(Field(number, name, JOINT_VALUES) for number, name in enumerate(_JOINT_ROWS, 1)),
        *[Field(8, "readIORequest", nested(IO_VALUE), MOST_IO)] * has_io,
        *(
            ()
            if first
            else _pose_fields(9, "measuredCartesianPose", "measuredRedundancyInformation")
        ),
        Field(15, "timestamp", nested(TIME)),
    )


def _ipo_data(*, first: bool) -> Message:
    return Message(
        "MessageIpoData",
        Field(1, "jointPosition", JOINT_VALUES),
        *(() if first else _pose_fields(2, "cartesianPose", "redundancyInformation")),
        Field(10, "clientCommandMode", enumerated(enums.CommandMode)),
        Field(11, "overlayType", enumerated(enums.Overlay)),
        Field(12, "trackingPerformance", DOUBLE),
    )


def _command_data(transformations: Kind, *, first: bool, has_io: bool) -> Message:
    return Message(
        "MessageCommandData",
        Field(1, "jointPosition", JOINT_VALUES),
        Field(2, "cartesianWrenchFeedForward", nested(WRENCH)),
        Field(3, "jointTorque", JOINT_VALUES),
        Field(4, "commandedTransformations", transformations, MOST_TRANSFORMATIONS),
        *[Field(5, "writeIORequest", nested(IO_VALUE), MOST_IO)] * has_io,
        *(() if first else _pose_fields(6, "cartesianPose", "redundancyInformation")),
    )


def _version(
    name: str, *, first: bool, has_io: bool, has_end: bool, has_frame: bool = False
) -> FriVersion:
    transformations = nested(MATRIX if first else QUATERNION)
    header = Field(1, "header", nested(HEADER), required=True)
    end = [Field(15, "endOfMessageData", nested(END))] * has_end
    monitoring = Message(
        "FRIMonitoringMessage",
        header,
        Field(2, "robotInfo", nested(ROBOT)),
        Field(3, "monitorData", nested(_monitor_data(first=first, has_io=has_io))),
        Field(4, "connectionInfo", nested(CONNECTION)),
        Field(5, "ipoData", nested(_ipo_data(first=first))),
        Field(6, "requestedTransformations", transformations, MOST_TRANSFORMATIONS),
        *end,
    )
    content = nested(_command_data(transformations, first=first, has_io=has_io))
    command = Message("FRICommandMessage", header, Field(2, "commandData", content), *end)
    return FriVersion(name, monitoring, command, echoes=first, has_io=has_io, has_frame=has_frame)


VERSIONS = {
    version.name: version
    for version in (
        _version("1.11", first=True, has_io=False, has_end=True),
        *(
            _version(name, first=True, has_io=True, has_end=True)
            for name in ("1.14", "1.15", "1.16")
        ),
        _version("2.5", first=False, has_io=True, has_end=True),
        _version("2.7", first=False, has_io=True, has_end=False, has_frame=True),
    )
}
DEFAULT_VERSION = "1.15"


def version_of(name: str) -> FriVersion:
    """Returns a version by its name.

    Raises:
        ValueError: The version is unknown.
    """
    if str(name).startswith("3."):
        raise ValueError(
            f"There is no version of FRI {name!r}. KUKA's client for the option FRI 3.0 calls "
            f"itself 2.7, so set version '2.7', and read docs/hardware-kuka.md first."
        )
    if name not in VERSIONS:
        raise unknown_name("version of FRI", name, VERSIONS)
    return VERSIONS[name]
