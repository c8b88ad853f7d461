"""FRI's messages compared with google.protobuf, with descriptions of their own, and alone."""

import dataclasses
import functools
import math
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from stringline.real_robot.drivers.fri.controller_io import IoValue
from stringline.real_robot.drivers.fri.enums import (
    CommandMode,
    ControlMode,
    DriveState,
    IoDirection,
    IoType,
    OperationMode,
    Overlay,
    Quality,
    SafetyState,
    SessionState,
)
from stringline.real_robot.drivers.fri.messages import (
    COMMAND_ID,
    MONITORING_ID,
    Command,
    Monitoring,
)
from stringline.real_robot.drivers.fri.protobuf import (
    FriDecodeError,
    Message,
    read_fields,
    read_varint,
    varint,
)
from stringline.real_robot.drivers.fri.versions import VERSIONS, FriVersion, version_of

FUZZ = settings(max_examples=60, deadline=None, derandomize=True)

# One field after the other: number, name, type. `!` is required, `*` repeated, `+` repeated under
# one tag.
ENUMS = {
    "SessionState": "IDLE MONITORING_WAIT MONITORING_READY COMMANDING_WAIT COMMANDING_ACTIVE",
    "Quality": "POOR FAIR GOOD EXCELLENT",
    "SafetyState": "NORMAL STOP0_OR_1 STOP1_ON_PATH STOP2",
    "OperationMode": "T1 T2 AUT",
    "DriveState": "OFF TRANSITIONING ACTIVE",
    "ControlMode": "POSITION CARTESIAN_IMPEDANCE JOINT_IMPEDANCE NONE",
    "CommandMode": "NONE POSITION WRENCH TORQUE CARTESIAN_POSE",
    "Overlay": "NONE JOINT CARTESIAN",
    "IoType": "BOOLEAN DIGITAL ANALOG",
    "IoDirection": "INPUT OUTPUT",
    "Redundancy": "E1=0 NONE=4",
}
COMMON = {
    "JointValues": "1 value double*",
    "CartesianVector": "1 element double+",
    "TimeStamp": "1 sec uint32! 2 nanosec uint32!",
    "Transformation": "1 name string! 2 matrix double+ 3 timestamp TimeStamp",
    "QuaternionTransformation": "1 name string! 2 element double+ 3 timestamp TimeStamp",
    "RedundancyInformation": "1 strategy Redundancy! 2 value double!",
    "FriIOValue": (
        "1 name string! 2 type IoType! 3 direction IoDirection! 4 digitalValue uint64 5 "
        "analogValue double"
    ),
    "MessageHeader": (
        "1 messageIdentifier uint32! 2 sequenceCounter uint32! 3 reflectedSequenceCounter uint32!"
    ),
    "ConnectionInfo": (
        "1 sessionState SessionState! 2 quality Quality! 3 sendPeriod uint32 4 receiveMultiplier "
        "uint32"
    ),
    "RobotInfo": "1 numberOfJoints int32 2 safetyState SafetyState 5 driveState DriveState* 6 "
    "operationMode OperationMode "
    "7 controlMode ControlMode",
    "Checksum": "1 crc32 int32",
    "MessageEndOf": "1 messageLength int32 2 messageChecksum Checksum",
}
V1 = {
    "MessageMonitorData": "1 measuredJointPosition JointValues 2 measuredTorque JointValues "
    "3 commandedJointPosition JointValues 4 commandedTorque JointValues 5 externalTorque "
    "JointValues "
    "8 readIORequest FriIOValue* 15 timestamp TimeStamp",
    "MessageIpoData": "1 jointPosition JointValues 10 clientCommandMode CommandMode "
    "11 overlayType Overlay 12 trackingPerformance double",
    "MessageCommandData": "1 jointPosition JointValues "
    "2 cartesianWrenchFeedForward CartesianVector 3 jointTorque JointValues "
    "4 commandedTransformations Transformation* 5 writeIORequest FriIOValue*",
    "FRIMonitoringMessage": "1 header MessageHeader! 2 robotInfo RobotInfo "
    "3 monitorData MessageMonitorData 4 connectionInfo ConnectionInfo 5 ipoData MessageIpoData "
    "6 requestedTransformations Transformation* "
    "15 endOfMessageData MessageEndOf",
    "FRICommandMessage": (
        "1 header MessageHeader! 2 commandData MessageCommandData 15 endOfMessageData MessageEndOf"
    ),
}
V2 = {
    "MessageMonitorData": "1 measuredJointPosition JointValues 2 measuredTorque JointValues "
    "4 commandedTorque JointValues "
    "5 externalTorque JointValues 8 readIORequest FriIOValue* 9 measuredCartesianPose "
    "QuaternionTransformation "
    "10 measuredRedundancyInformation RedundancyInformation 15 timestamp TimeStamp",
    "MessageIpoData": "1 jointPosition JointValues 2 cartesianPose QuaternionTransformation "
    "3 redundancyInformation RedundancyInformation 10 clientCommandMode CommandMode 11 "
    "overlayType Overlay "
    "12 trackingPerformance double",
    "MessageCommandData": "1 jointPosition JointValues "
    "2 cartesianWrenchFeedForward CartesianVector 3 jointTorque JointValues "
    "4 commandedTransformations QuaternionTransformation* 5 writeIORequest FriIOValue* "
    "6 cartesianPose QuaternionTransformation 7 redundancyInformation RedundancyInformation",
    "FRIMonitoringMessage": V1["FRIMonitoringMessage"].replace(
        " Transformation*", " QuaternionTransformation*"
    ),
    "FRICommandMessage": V1["FRICommandMessage"],
}
MOST = {"value": 7, "element": 6, "driveState": 7, "matrix": 12}
TYPES = {"double": 1, "uint64": 4, "int32": 5, "string": 9, "uint32": 13}
MESSAGE, ENUM = 11, 14


@functools.cache
def tables(version: str) -> dict[str, str]:
    """Returns the fields of all messages of a version."""
    found = COMMON | (V1 if version.startswith("1") else V2)
    if version == "1.11":
        for name in ("MessageMonitorData", "MessageCommandData"):
            found[name] = (
                found[name]
                .replace("8 readIORequest FriIOValue* ", "")
                .replace(" 5 writeIORequest FriIOValue*", "")
            )
    if version == "2.7":
        for name in ("FRIMonitoringMessage", "FRICommandMessage"):
            found[name] = found[name].replace(" 15 endOfMessageData MessageEndOf", "")
    return found


@functools.cache
def reference(version: str, name: str) -> Any:
    """Returns google.protobuf's class of a message."""
    return message_factory.GetMessageClass(pool(version).FindMessageTypeByName(f"fri.{name}"))


@functools.cache
def pool(version: str) -> descriptor_pool.DescriptorPool:
    """Describes all messages of a version to google.protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="fri.proto", package="fri", syntax="proto2")
    for enum, entries in ENUMS.items():
        described = file.enum_type.add(name=enum)
        for place, entry in enumerate(entries.split()):
            label, _, number = entry.partition("=")
            described.value.add(name=f"{enum}_{label}", number=int(number or place))
    for message, fields in tables(version).items():
        words = fields.split()
        described_message = file.message_type.add(name=message)
        for number, field, kind in zip(words[::3], words[1::3], words[2::3], strict=True):
            base = kind.rstrip("!*+")
            one = described_message.field.add(
                name=field, number=int(number), label={"!": 2, "*": 3, "+": 3}.get(kind[-1], 1)
            )
            code: Any = TYPES.get(base, ENUM if base in ENUMS else MESSAGE)
            one.type = code
            if base not in TYPES:
                one.type_name = f".fri.{base}"
            if kind.endswith("+"):
                one.options.packed = True
    found = descriptor_pool.DescriptorPool()
    found.Add(file)
    return found


def plain(message: Any) -> dict[str, Any]:
    """Returns a message of google.protobuf in our form, without absent fields."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            many = field.is_repeated
            parts = [_part(one) for one in (value if many else [value])]
            found[field.name] = parts if many else parts[0]
        else:
            found[field.name] = list(value) if field.is_repeated else value
    return found


def _part(message: Any) -> Any:
    if message.DESCRIPTOR.name == "JointValues":
        return tuple(message.value)
    return plain(message)


def same(one: Any, other: Any) -> bool:
    """Returns whether values are equal, NaN included."""
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[key], other[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (
        isinstance(one, float)
        and isinstance(other, float)
        and math.isnan(one)
        and math.isnan(other)
    )


NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(),
    "uint64": st.integers(0, 2**64 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "string": st.text(max_size=6),
}
NUMBERS |= {
    enum: st.sampled_from(
        [int(entry.partition("=")[2] or place) for place, entry in enumerate(entries.split())]
    )
    for enum, entries in ENUMS.items()
}


@functools.cache  # To make a strategy takes longer than to draw from it.
@st.composite
def filled(draw: st.DrawFn, version: str, name: str) -> Any:
    """Draws a message of google.protobuf."""
    message = reference(version, name)()
    words = tables(version)[name].split()
    for field, kind in zip(words[1::3], words[2::3], strict=True):
        base, many = kind.rstrip("!*+"), kind[-1] in "*+"
        if not kind.endswith("!") and not draw(st.integers(0, 3)):
            continue
        count = draw(st.integers(0, MOST.get(field, 3))) if many else 1
        for _ in range(count):
            if base in NUMBERS:
                value = draw(NUMBERS[base])
                getattr(message, field).append(value) if many else setattr(message, field, value)
            else:
                part = draw(filled(version, base))
                getattr(message, field).append(part) if many else getattr(message, field).CopyFrom(
                    part
                )
    return message


KINDS = [
    (version, f"FRI{kind}Message")
    for version in ("1.11", "1.15", "2.5", "2.7")
    for kind in ("Monitoring", "Command")
]


def ours(version: str, name: str) -> Message:
    found = version_of(version)
    return found.monitoring if name == "FRIMonitoringMessage" else found.command


@pytest.mark.slow
@pytest.mark.parametrize(("version", "name"), KINDS)
def test_it_agrees_with_protobuf_in_both_directions_byte_by_byte(version: str, name: str) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(filled(version, name))
    def agree(theirs: Any) -> None:
        data = theirs.SerializeToString()
        values = ours(version, name).decode(data)
        assert same(values, plain(theirs))
        again = ours(version, name).encode(values)
        assert same(plain(reference(version, name).FromString(again)), values)
        assert again == data

    agree()


@pytest.mark.slow
@pytest.mark.parametrize(("version", "name"), KINDS)
def test_damaged_messages_that_it_decodes_protobuf_decodes_equally(version: str, name: str) -> None:
    taken = []

    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(
        filled(version, name),
        st.lists(st.integers(0, 1 << 16), min_size=1, max_size=3),
        st.integers(0, 40),
    )
    def agree(theirs: Any, flips: list[int], cut: int) -> None:
        data = bytearray(theirs.SerializeToString())
        for flip in flips:
            data[flip // 8 % len(data)] ^= 1 << flip % 8
        damaged = bytes(data[: max(len(data) - (cut if cut < 20 else 0), 1)])
        with suppress(FriDecodeError):
            values = ours(version, name).decode(damaged)
            assert same(values, plain(reference(version, name).FromString(damaged)))
            taken.append(values)

    agree()
    assert taken


def test_joints_under_one_tag_are_read_as_well() -> None:
    packed = (
        b"\x0a"
        + varint(56)
        + b"".join(
            reference("1.15", "JointValues")(value=[q]).SerializeToString()[1:] for q in range(7)
        )
    )
    header = Command(0, 0).to_bytes(version_of("1.15"))
    data = header + b"\x12" + varint(len(packed) + 2) + b"\x0a" + varint(len(packed)) + packed
    command = Command.of(version_of("1.15"), data)
    assert command.position == tuple(map(float, range(7)))


def full() -> Monitoring:
    joints = tuple(0.1 * index for index in range(7))
    return Monitoring(
        sequence=7,
        reflected=3,
        session=SessionState.COMMANDING_ACTIVE,
        quality=Quality.EXCELLENT,
        send_period_ms=10,
        receive_multiplier=1,
        safety=SafetyState.NORMAL,
        drives=(DriveState.ACTIVE,) * 7,
        operation=OperationMode.AUT,
        control=ControlMode.JOINT_IMPEDANCE,
        measured=joints,
        torque=joints,
        commanded=joints,
        commanded_torque=joints,
        external_torque=joints,
        time=(1_700_000_000, 5),
        ipo=joints,
        command_mode=CommandMode.POSITION,
        overlay=Overlay.JOINT,
        tracking=0.99,
    )


@pytest.mark.parametrize("version", list(VERSIONS))
def test_a_monitoring_message_is_decoded_as_it_was_encoded(version: str) -> None:
    known, message = version_of(version), full()
    if not known.echoes:
        message = dataclasses.replace(message, commanded=())
    if known.has_io:
        inputs = (
            IoValue("Gripper", IoType.ANALOG, IoDirection.INPUT, 0.25),
            IoValue("Lid", IoType.BOOLEAN, IoDirection.INPUT, 1),
        )
        message = dataclasses.replace(message, inputs=inputs)
    got = Monitoring.of(known, message.to_bytes(known))
    assert got == message
    encoded = known.message(message.to_bytes(known))
    theirs = reference(version, "FRIMonitoringMessage").FromString(encoded)
    assert theirs.header.messageIdentifier == MONITORING_ID == 0x245142
    assert list(theirs.ipoData.jointPosition.value) == list(message.ipo)
    assert theirs.SerializeToString() == encoded


@pytest.mark.parametrize("version", list(VERSIONS))
def test_a_command_is_decoded_as_it_was_encoded(version: str) -> None:
    known = version_of(version)
    outputs = (IoValue("Gripper", IoType.DIGITAL, IoDirection.OUTPUT, 1.0),) if known.has_io else ()
    for command in (Command(4, 7, tuple(map(float, range(7))), outputs), Command(4, 7)):
        datagram = command.to_bytes(known)
        assert Command.of(known, datagram) == command
        data = known.message(datagram)
        theirs = reference(version, "FRICommandMessage").FromString(data)
        assert theirs.header.messageIdentifier == COMMAND_ID == 0x34001
        assert theirs.SerializeToString() == data


def test_the_bytes_of_a_command_are_these() -> None:
    data = Command(5, 9, (1.0, 0.0, 0.0, -2.0, 0.0, 0.0, 0.0)).to_bytes(version_of("1.15"))
    zero = "09" + 8 * "00"
    joints = "09000000000000f03f" + zero + zero + "0900000000000000c0" + zero + zero + zero
    assert data.hex() == "0a08" + "0881800d" + "1005" + "1809" + "1241" + "0a3f" + joints
    assert len(data) == 77


def test_messages_have_the_sizes_that_real_ones_have() -> None:
    message = dataclasses.replace(full(), control=None)
    assert (
        abs(len(message.to_bytes(version_of("1.15"))) - 467) <= 8
    )  # Counters and omitted fields make the difference.


@FUZZ
@given(st.sampled_from(list(VERSIONS)), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(version: str, data: bytes) -> None:
    known = version_of(version)
    head = full().to_bytes(known)[:14]
    for part in (data, head + data, data[:100] + head):
        for read in (Monitoring.of, Command.of):
            with suppress(FriDecodeError):
                read(known, part)


def test_wrong_messages_are_refused_with_a_reason() -> None:
    known = version_of("1.15")
    good = full().to_bytes(known)
    for data, words in (
        (b"", "FRIMonitoringMessage lacks header"),
        (good[:-1], "claims .* bytes"),
        (bytes(1501), "1501 bytes; allowed: 1500"),
        (Command(0, 0).to_bytes(known), "Message 0x34001 is not a monitoring message"),
        (good + good, "has header twice"),
        (good + b"\x23", "wire type 3"),
        (good + b"\x20\x01", "connectionInfo has wire type 0; expected is 2"),
        (good + b"\x00\x01", "field number 0 is out of range"),
        (b"\xff" * 12, "longer than 64 bits"),
        (b"\x80", "A number is truncated"),
        (
            known.monitoring.encode({"header": _header()}) + b"\x22\x04\x08\x09\x10\x01",
            "9 is not a SessionState",
        ),
        (
            known.monitoring.encode({"header": {**_header(), "sequenceCounter": 1 << 40}}),
            "not a number of 32 bits",
        ),
        (
            known.monitoring.encode({"header": _header()}) + b"\x12\x10" + b"\x28\x02" * 8,
            "more than 7 entries",
        ),
    ):
        with pytest.raises(FriDecodeError, match=words):
            Monitoring.of(known, data)
    with pytest.raises(FriDecodeError, match="not a command"):
        Command.of(known, known.monitoring.encode({"header": _header()}))
    with pytest.raises(ValueError, match=r"no version of FRI '1.51'. Did you mean .*'1.15'"):
        version_of("1.51")


def _header() -> dict[str, int]:
    return {"messageIdentifier": MONITORING_ID, "sequenceCounter": 1, "reflectedSequenceCounter": 0}


def test_a_message_without_sections_allows_nothing() -> None:
    known: FriVersion = version_of("2.7")
    message = Monitoring.of(known, known.datagram(known.monitoring.encode({"header": _header()})))
    assert (message.session, message.quality, message.safety) == (
        SessionState.IDLE,
        Quality.POOR,
        None,
    )
    assert message.joints == 0
    assert message.measured == ()


@FUZZ
@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_numbers_are_decoded_as_they_were_encoded(value: int, rest: bytes) -> None:
    data = varint(value)
    assert read_varint(data + rest, 0) == (value, len(data))
    assert len(data) == max(1, math.ceil(value.bit_length() / 7))
    assert list(read_fields(b"\x08" + data)) == [(1, 0, value)]


def test_version_3_is_referred_to_what_its_client_calls_itself() -> None:
    with pytest.raises(ValueError, match=r"no version of FRI '3.0'. .* set version '2.7'"):
        version_of("3.0")
    with pytest.raises(ValueError, match="no version of FRI '1.13'. Did you mean"):
        version_of("1.13")
