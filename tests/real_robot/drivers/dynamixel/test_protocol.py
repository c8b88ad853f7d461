"""Packets against published vectors, and the parser against damaged ones."""

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.protocol import HEADER, Instruction, Packet, Parser

IDENTS = st.one_of(st.integers(0, 252), st.just(protocol.BROADCAST))
# Bytes of headers and stuffing come up often.
PARAMETERS = st.lists(st.sampled_from([0xFF, 0xFD, 0x00, 0x55, 0x12]), max_size=40).map(
    bytes
) | st.binary(max_size=40)
PACKETS = st.tuples(
    IDENTS,
    st.sampled_from([Instruction.READ, Instruction.WRITE, Instruction.SYNC_WRITE]),
    PARAMETERS,
)


@pytest.mark.parametrize(
    ("packet", "checksum"),
    [
        (protocol.ping(1), "194e"),
        (protocol.sync_read(132, 4, [1, 2]), "cefa"),
        (
            protocol.sync_write(
                116, {1: (150).to_bytes(4, "little"), 2: (170).to_bytes(4, "little")}
            ),
            "8287",
        ),
        (protocol.read(1, 132, 4), "1d15"),
        (protocol.encode(1, Instruction.REBOOT), "2f4e"),
        (protocol.write(1, 116, (512).to_bytes(4, "little")), "ca89"),
        (protocol.status(1, 0, (0xA6).to_bytes(4, "little")), "8cc0"),
    ],
)
def test_the_vendors_own_examples(packet: bytes, checksum: str) -> None:
    assert packet[-2:].hex() == checksum


def test_a_ping_byte_for_byte() -> None:
    assert protocol.ping(1) == bytes.fromhex("fffffd0001030001194e")


@given(st.lists(PACKETS, max_size=4))
@example([(254, Instruction.WRITE, b"\x12\xff\x12\xff\xff")])  # Its checksum is FD 00.
def test_encoded_packets_are_parsed(packets: list[tuple[int, int, bytes]]) -> None:
    stream = b"".join(protocol.encode(*packet) for packet in packets)
    assert Parser().feed(stream) == [Packet(*packet) for packet in packets]


@given(PACKETS)
def test_no_header_within_a_packet_before_its_checksum(packet: tuple[int, int, bytes]) -> None:
    assert HEADER not in protocol.encode(*packet)[len(HEADER) : -2]


@given(st.lists(PACKETS, min_size=1, max_size=3), st.data())
def test_packets_may_arrive_in_pieces(
    packets: list[tuple[int, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(protocol.encode(*packet) for packet in packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    parser, found = Parser(), list[Packet]()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:end])
    assert found == [Packet(*packet) for packet in packets]


@given(st.binary(max_size=60), PACKETS)
def test_noise_without_a_header_loses_no_packet(
    noise: bytes, packet: tuple[int, int, bytes]
) -> None:
    stream = noise.replace(b"\xff", b"\xfe") + protocol.encode(*packet)
    assert Parser().feed(stream) == [Packet(*packet)]


@given(PACKETS, PACKETS, st.data())
def test_a_truncated_packet_does_not_lose_the_next(
    first: tuple[int, int, bytes], second: tuple[int, int, bytes], data: st.DataObject
) -> None:
    whole = protocol.encode(*first)
    cut = whole[: data.draw(st.integers(7, len(whole) - 1))]
    follows = protocol.encode(*second)
    assume(
        not (cut + follows).startswith(whole)
    )  # Otherwise the next bytes complete it, which cannot be detected.
    # The stump may end in the beginning of a header; the next real header is found all the same.
    assert Parser().feed(cut + follows)[-1:] == [Packet(*second)]


def test_a_packet_is_read_although_it_lies_within_the_length_of_a_truncated_one() -> None:
    """The case that random packets above rarely contain."""
    cut = protocol.encode(1, 0x55, bytes(200))[:10]
    assert Parser().feed(cut + protocol.ping(2))[-1:] == [Packet(2, 0x01, b"")]


@given(PACKETS, st.data())
def test_a_flipped_bit_is_never_accepted(
    packet: tuple[int, int, bytes], data: st.DataObject
) -> None:
    whole = bytearray(protocol.encode(*packet))
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[place // 8] ^= 1 << place % 8
    assert Packet(*packet) not in Parser().feed(bytes(whole))


@given(
    st.lists(
        st.binary(max_size=50) | st.sampled_from([HEADER, b"\xff", b"\xff\xff\xfd"]), max_size=12
    )
)
def test_the_parser_continues_after_any_bytes(pieces: list[bytes]) -> None:
    parser = Parser()
    for piece in pieces:
        parser.feed(piece)
    parser.reset()
    assert parser.feed(protocol.ping(7)) == [Packet(7, Instruction.PING, b"")]


def test_an_id_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="id is 253; allowed: 0 to 252"):
        protocol.ping(253)
