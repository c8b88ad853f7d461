"""The frame of FRI 2.7: length and checksum around each message."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stringline.real_robot.drivers.fri.enums import Quality, SessionState
from stringline.real_robot.drivers.fri.messages import Command, Monitoring
from stringline.real_robot.drivers.fri.protobuf import FriDecodeError
from stringline.real_robot.drivers.fri.versions import VERSIONS, framed, unframed, version_of

POSITION = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def test_the_frame_has_these_bytes() -> None:
    # The check value of CRC-32 for this text is 0xCBF43926.
    assert framed(b"123456789") == b"\x09\x00\x00\x00123456789\x26\x39\xf4\xcb"


@given(st.binary(max_size=300))
def test_a_message_is_taken_out_of_its_frame(message: bytes) -> None:
    datagram = framed(message)
    assert len(datagram) == len(message) + 8
    assert unframed(datagram) == message


@given(st.binary(max_size=60), st.data())
def test_every_damaged_byte_is_noticed(message: bytes, data: st.DataObject) -> None:
    datagram = bytearray(framed(message))
    at = data.draw(st.integers(0, len(datagram) - 1))
    datagram[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FriDecodeError, match="lacks the frame" if at < 4 else "checksum"):
        unframed(bytes(datagram))
    with pytest.raises(FriDecodeError, match=r"lacks the frame of FRI 2\.7"):
        unframed(framed(message)[:-1])


@pytest.mark.parametrize("name", VERSIONS)
def test_only_datagrams_of_2_7_have_a_frame(name: str) -> None:
    version = version_of(name)
    command = Command(3, 4, POSITION)
    monitoring = Monitoring(sequence=5, session=SessionState.MONITORING_WAIT, quality=Quality.GOOD)
    for message in (command, monitoring):
        datagram = message.to_bytes(version)
        size = int.from_bytes(datagram[:4], "little")
        assert (size == len(datagram) - 8) == (name == "2.7")
        if name == "2.7":
            assert zlib.crc32(datagram[4:-4]) == int.from_bytes(datagram[-4:], "little")
    assert Command.of(version, command.to_bytes(version)) == command


def test_the_bare_message_of_2_5_is_refused_by_2_7_with_the_reason() -> None:
    bare = Monitoring(sequence=5).to_bytes(version_of("2.5"))
    with pytest.raises(FriDecodeError, match=r"lacks the frame of FRI 2\.7"):
        Monitoring.of(version_of("2.7"), bare)
