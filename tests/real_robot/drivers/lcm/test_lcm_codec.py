"""Drake's LCM types compared with classes of lcm-gen, and datagrams with those of LCM itself."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.real_robot.lcm_gen import DEFINITIONS, generated

from stringline.real_robot.drivers.lcm.drake_messages import (
    IIWA_COMMAND,
    IIWA_STATUS,
    IIWA_STATUS_TELEMETRY,
    SCHUNK_COMMAND,
    SCHUNK_STATUS,
)
from stringline.real_robot.drivers.lcm.lcm_link import (
    Fragment,
    LcmDecodeError,
    LcmLink,
    LcmType,
    Reassembly,
    pack_datagrams,
    unpack_datagram,
)

TYPES = (IIWA_COMMAND, IIWA_STATUS, IIWA_STATUS_TELEMETRY, SCHUNK_COMMAND, SCHUNK_STATUS)
FUZZ = settings(max_examples=60, deadline=None, derandomize=True)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Classes of the types, made by lcm-gen."""
    return generated(DEFINITIONS, tmp_path_factory.mktemp("lcm"))


@pytest.mark.parametrize(
    ("kind", "fingerprint"),
    [
        (IIWA_COMMAND, 0xDDC7C7738C815334),
        (IIWA_STATUS, 0xF16FB804284ABCA3),
        (IIWA_STATUS_TELEMETRY, 0x9C0F580E57B0D5D3),
        (SCHUNK_COMMAND, 0x4553BC1BFF499216),
        (SCHUNK_STATUS, 0xEC6AEE3FC5AE4612),
    ],
)
def test_fingerprints_are_those_of_lcm_gen(
    kind: LcmType, fingerprint: int, theirs: dict[str, Any]
) -> None:
    assert kind.fingerprint == fingerprint
    assert int.from_bytes(theirs[kind.name]._get_packed_fingerprint(), "big") == fingerprint


@st.composite
def values_of(draw: st.DrawFn, kind: LcmType) -> dict[str, Any]:
    """Draws the members of a message; rows of one length are equally long."""
    lengths = {member.size: draw(st.integers(0, 14)) for member in kind.members if member.size}
    numbers = {
        "int32_t": st.integers(-(2**31), 2**31 - 1),
        "int64_t": st.integers(-(2**63), 2**63 - 1),
    }
    found: dict[str, Any] = {}
    for member in kind.members:
        number = numbers.get(member.kind, st.floats(allow_nan=False))
        if member.size:
            found[member.name] = tuple(
                draw(st.lists(number, min_size=lengths[member.size], max_size=lengths[member.size]))
            )
        else:
            found[member.name] = lengths.get(member.name, draw(number))
    return found


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_it_agrees_with_lcm_gen_in_both_directions(kind: LcmType, theirs: dict[str, Any]) -> None:
    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(values_of(kind))
    def agree(values: dict[str, Any]) -> None:
        data = kind.encode(values)
        made = theirs[kind.name].decode(data)
        assert {
            member.name: _plain(getattr(made, member.name)) for member in kind.members
        } == values
        assert made.encode() == data
        assert kind.decode(made.encode()) == values

    agree()


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def test_a_command_of_seven_joints_has_eighty_bytes() -> None:
    data = IIWA_COMMAND.encode({"utime": 1, "joint_position": (0.1,) * 7})
    assert len(data) == 8 + 8 + 4 + 56 + 4 == 80
    assert IIWA_COMMAND.decode(data)["joint_torque"] == ()


@FUZZ
@given(st.sampled_from(TYPES), st.binary(max_size=150))
def test_any_bytes_are_a_message_or_an_error(kind: LcmType, data: bytes) -> None:
    for part in (data, kind.fingerprint.to_bytes(8, "big") + data):
        with suppress(LcmDecodeError):
            assert kind.encode(kind.decode(part)) == part  # type: ignore[arg-type]
        with suppress(LcmDecodeError):
            unpack_datagram(b"LC02" + part)
        with suppress(LcmDecodeError):
            unpack_datagram(b"LC03" + part)


def test_wrong_messages_are_refused_with_a_reason() -> None:
    good = IIWA_COMMAND.encode({"utime": 1, "joint_position": (0.1,) * 7})
    for data, words in (
        (b"", "Nothing is not the fingerprint of lcmt_iiwa_command"),
        (
            SCHUNK_STATUS.fingerprint.to_bytes(8, "big") + good[8:],
            "ec6aee3fc5ae4612 is not the fingerprint",
        ),
        (good[:-1], "truncated in num_torques"),
        (good + b"\0", "1 bytes too many"),
        (good[:16] + b"\xff\xff\xff\xff" + good[20:], "joint_position claims -1 entries"),
        (good[:16] + b"\x7f\xff\xff\xff" + good[20:], "joint_position claims 2147483647 entries"),
    ):
        with pytest.raises(LcmDecodeError, match=words):
            IIWA_COMMAND.decode(data)
    rows = {member.name: (0.0,) * 7 for member in IIWA_STATUS.members if member.size}
    with pytest.raises(
        ValueError, match="joint_velocity_estimated has 6 entries; others of num_joints have 7"
    ):
        IIWA_STATUS.encode({"utime": 0, **rows, "joint_velocity_estimated": (0.0,) * 6})
    with pytest.raises(ValueError, match="lcmt_schunk_wsg_command needs force"):
        SCHUNK_COMMAND.encode({"utime": 0, "target_position_mm": 1.0})
    with pytest.raises(ValueError, match="utime cannot be"):
        SCHUNK_COMMAND.encode({"utime": 1 << 70, "target_position_mm": 1.0, "force": 1.0})


@FUZZ
@given(
    st.integers(0, 2**32 - 1), st.text("ABC_xyz09", min_size=1, max_size=63), st.binary(max_size=40)
)
def test_datagrams_are_decoded_as_they_were_encoded(
    sequence: int, channel: str, message: bytes
) -> None:
    (data,) = pack_datagrams(sequence, channel, message)
    assert data[:8] == b"LC02" + sequence.to_bytes(4, "big")
    assert unpack_datagram(data) == (sequence, channel, message)


LONG = bytes(range(256)) * 800
HERE = ("127.0.0.1", 40000)


def pieces_of(message: bytes, sequence: int = 7) -> list[Fragment]:
    pieces = [unpack_datagram(data) for data in pack_datagrams(sequence, "IMAGES", message)]
    assert all(isinstance(piece, Fragment) for piece in pieces)
    return [piece for piece in pieces if isinstance(piece, Fragment)]


@pytest.mark.parametrize(
    "size", [65_490, 65_491, 65_492, 2 * 65_487 - 9, 2 * 65_487 - 8, len(LONG)]
)
def test_long_messages_are_assembled_from_fragments_in_any_order(size: int) -> None:
    datagrams = pack_datagrams(7, "IMAGES", LONG[:size])
    assert all(len(data) <= 65_507 for data in datagrams)
    if size <= 65_499 - len("IMAGES") - 1:  # One datagram takes the name, its end and the message.
        assert unpack_datagram(datagrams[0]) == (7, "IMAGES", LONG[:size])
        return
    pieces, reassembly = pieces_of(LONG[:size]), Reassembly()
    assert len(pieces) == -(-(size + len("IMAGES") + 1) // 65_487)
    for piece in reversed(pieces[1:]):
        assert reassembly.take(HERE, piece) is None
    assert reassembly.take(HERE, pieces[0]) == ("IMAGES", LONG[:size])
    assert (reassembly.refused, reassembly.given_up) == (0, 0)


def test_missing_duplicate_or_foreign_fragments_make_no_message_and_use_no_memory() -> None:
    pieces, reassembly = pieces_of(LONG), Reassembly(longest=len(LONG), most=2)
    assert [reassembly.take(HERE, piece) for piece in (pieces[0], pieces[0], pieces[1])] == [
        None
    ] * 3
    assert reassembly.refused == 1
    there = ("127.0.0.1", 40001)  # Another publisher counts for itself.
    assert [reassembly.take(there, piece) is not None for piece in pieces] == [False] * (
        len(pieces) - 1
    ) + [True]
    # The same number, but another message: the first one is given up.
    assert [reassembly.take(HERE, piece) for piece in pieces_of(LONG[:-1])][-1] == (
        "IMAGES",
        LONG[:-1],
    )
    assert reassembly.given_up == 1
    for sequence in range(3):
        reassembly.take(HERE, pieces_of(LONG, sequence)[0])
    assert reassembly.given_up == 2
    assert [reassembly.take(HERE, piece) for piece in pieces_of(LONG, 0)[1:]] == [None] * (
        len(pieces) - 1
    )
    assert reassembly.take(HERE, pieces_of(LONG + b"x", 9)[0]) is None
    assert reassembly.refused == 2
    for other in ({"offset": 5}, {"piece": LONG}):  # Gaps, and pieces that lie over each other.
        reassembly = Reassembly()
        changed = [pieces[0], pieces[1]._replace(**other), *pieces[2:]]
        assert {reassembly.take(HERE, piece) for piece in changed} == {None}
        assert reassembly.given_up >= 1


def test_wrong_datagrams_are_refused_with_a_reason() -> None:
    head = b"LC03" + bytes(4) + (100).to_bytes(4, "big")
    for data, words in (
        (b"LC01" + bytes(8), "does not begin a datagram of LCM"),
        (b"LC03" + bytes(10), "does not begin a datagram of LCM"),
        (b"LC02" + bytes(4) + b"x" * 70, "no name, or no end"),
        (b"LC02" + bytes(5), "no name, or no end"),
        (b"LC02" + bytes(4) + b"\xff\0", "is not text"),
        (head + bytes(6) + b"\0\2" + b"x" * 70, "no name, or no end"),
        (
            head + bytes(4) + b"\0\2\0\2" + b"x",
            "Fragment 2 of 2 with 1 bytes at 0 does not fit a message of 100 bytes",
        ),
        (
            head + b"\0\0\0\x63\0\1\0\2" + b"xx",
            "Fragment 1 of 2 with 2 bytes at 99 does not fit a message of 100 bytes",
        ),
    ):
        with pytest.raises(LcmDecodeError, match=words):
            unpack_datagram(data)
    with pytest.raises(ValueError, match="allowed: names of 1 to 63 bytes"):
        pack_datagrams(0, "", b"")


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        (
            {"address": "192.168.1.1:7667"},
            "The address of LCM is '192.168.1.1:7667'; allowed: group:port",
        ),
        ({"address": "239.255.76.67"}, "allowed: group:port"),
        ({"address": "239.255.76.67:70000"}, "allowed: group:port"),
        ({"interface": "eth0"}, "The interface is 'eth0'; allowed: an IPv4 address"),
        ({"ttl": 3}, "ttl is 3; allowed: 0"),
    ],
)
def test_impossible_arguments_of_a_link_are_refused(settings_: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LcmLink(**settings_)
