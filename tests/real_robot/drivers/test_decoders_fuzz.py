"""Decoders of foreign bytes never crash or hang, and their memory is bounded by the bytes."""

import json
import os
import socket
import threading
import time
import tracemalloc
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stringline import ALOHA, ArmState, SafetyFilter, SafetyLimits
from stringline.policies.remote.protocol import pack, unpack
from stringline.real_robot.device.device_state import LONGEST_CHUNK, chunk_layout, chunk_of
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.bus import Bus, sync_read
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX
from stringline.real_robot.drivers.dynamixel.protocol import HEADER, LONGEST_LEN, Packet, Parser
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.dynamixel.dynamixel_servo import EmulatedServo
from stringline.real_robot.incidents.incident_log import Incident, unpack_chunk
from stringline.real_robot.incidents.incident_records import HEAD, LONGEST_PAYLOAD, MAGIC, scan
from stringline.real_robot.ipc import array_messages as messages
from stringline.real_robot.ipc.mailbox import Mailbox, shared_memory
from stringline.real_robot.safety.target_stages import ChunkSampler

FUZZ = settings(max_examples=150, deadline=None, derandomize=True)
PING = Packet(7, protocol.Instruction.PING, b"")
IDENTS = st.one_of(st.integers(0, 252), st.just(protocol.BROADCAST))
# Addresses and sizes of instructions come in two bytes each, and odd ones matter most.
WORDS = st.sampled_from(
    [0, 1, 2, 7, 36, 64, 116, 126, 168, 224, 251, 252, 1000, 0xFFFE, 0xFFFF]
).map(lambda number: number.to_bytes(2, "little"))
PARAMETERS = st.lists(WORDS | st.binary(max_size=12) | st.just(b"\xff\xff\xfd"), max_size=6).map(
    b"".join
)
PACKETS = st.builds(protocol.encode, IDENTS, st.integers(0, 255), PARAMETERS)
LIARS = st.builds(
    lambda ident, length: HEADER + bytes([ident]) + length.to_bytes(2, "little"),
    IDENTS,
    st.integers(0, 0xFFFF),
)
PIECES = st.lists(PACKETS | LIARS | st.binary(max_size=50) | st.just(HEADER), max_size=12)


def damaged(data: bytes, flips: list[int], cut: int) -> bytes:
    """Returns the data with some bits flipped and its end cut off."""
    changed = bytearray(data)
    for flip in flips:
        if changed:
            changed[flip // 8 % len(changed)] ^= 1 << flip % 8
    return bytes(changed[: len(changed) - cut % (len(changed) + 1)])


DAMAGE = st.tuples(
    st.lists(st.integers(0, 1 << 20), max_size=4), st.just(0) | st.integers(0, 1 << 20)
)


@contextmanager
def bounded(megabytes: float, seconds: float = 10.0) -> Iterator[None]:
    """Asserts that what happens within stays below that much more memory, and ends in time."""
    tracemalloc.start()
    start = time.monotonic()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
        assert time.monotonic() - start < seconds
    finally:
        tracemalloc.stop()


@FUZZ
@given(PIECES, DAMAGE)
def test_the_parser_finds_the_next_packet_after_any_bytes(
    pieces: list[bytes], damage: tuple[list[int], int]
) -> None:
    parser = Parser()
    for piece in pieces:
        parser.feed(damaged(piece, *damage))
    assert parser.feed(2 * protocol.ping(7))[-1:] == [PING]


def test_a_parser_keeps_no_more_than_a_packet() -> None:
    parser, liar = Parser(), HEADER + b"\x01" + LONGEST_LEN.to_bytes(2, "little")
    with bounded(0.5):
        for _ in range(100):
            parser.feed(liar + bytes(4096))
            parser.feed(HEADER * 500)
            parser.feed(b"\xff" * 4096)
    assert parser.crc_errors > 0


@FUZZ
@given(PIECES, DAMAGE)
def test_emulated_servos_take_any_bytes(pieces: list[bytes], damage: tuple[list[int], int]) -> None:
    line = EmulatedLine(EmulatedServo(kind) for kind in VIPERX)
    for piece in pieces:
        answer = line.receive(damaged(piece, *damage))
        assert len(answer) < 1 << 18
    line.pass_time(1.0)
    line.receive(protocol.ping(1))


@pytest.mark.parametrize(
    "garbage", [HEADER * 64, b"\xff\xff\xfd\x00\x01\xff\x03\x55" * 32, bytes(256)]
)
def test_garbage_on_a_line_delays_a_read_by_its_deadline_at_most(garbage: bytes) -> None:
    master, slave = os.openpty()
    tty.setraw(slave)
    os.set_blocking(master, False)
    done = threading.Event()

    def shout() -> None:
        while not done.is_set():
            with suppress(BlockingIOError):
                os.write(master, garbage)
            with suppress(BlockingIOError):
                os.read(master, 4096)
            time.sleep(0.001)

    bus, thread = Bus(os.ttyname(slave)), threading.Thread(target=shout)
    bus.open()
    thread.start()
    try:
        start = time.monotonic()
        answers = sync_read({bus: range(1, 10)}, 224, 14, 0.1)
        assert time.monotonic() - start < 2.0
        assert answers == {bus: {}}
        assert not bus.lost
    finally:
        done.set()
        thread.join()
        bus.close()
        os.close(master)
        os.close(slave)


@FUZZ
@given(st.binary(min_size=64, max_size=400), st.integers(1, 4))
def test_a_mailbox_of_any_bytes_returns_only_whole_records(data: bytes, slots: int) -> None:
    layout = np.dtype([("value", "<i8"), ("more", "<f8", (3,))])
    memory = shared_memory(layout, slots)
    raw = np.frombuffer(memoryview(memory).cast("B"), np.uint8)
    reader = Mailbox(memory, layout)
    raw[:] = np.resize(np.frombuffer(data, np.uint8), len(raw))
    for records in (reader.recent(), reader.fresh()):
        assert all(record.dtype == layout for record in records)
    newest = reader.newest()
    assert newest is None or newest.dtype == layout


@pytest.mark.slow
@FUZZ
@given(
    st.integers(-(2**63), 2**63 - 1) | st.integers(0, LONGEST_CHUNK + 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.floats(), min_size=1, max_size=8),
)
def test_a_record_of_any_bytes_is_a_chunk_that_the_filter_handles(
    length: int, seed: int, values: list[float]
) -> None:
    record = (
        np.frombuffer(
            np.random.default_rng(seed).bytes(chunk_layout(14).itemsize), chunk_layout(14)
        )
        .copy()
        .reshape(())
    )
    record["length"] = length
    if seed % 2:
        record["time"] = np.sort(np.resize(values, LONGEST_CHUNK)) + 0.02 * np.arange(LONGEST_CHUNK)
        record["session"] = 1
        record["action"] = 0.5
    chunk, session = chunk_of(record)
    assert (chunk is None) == (not 1 <= length <= LONGEST_CHUNK)
    safety, sampler = (
        SafetyFilter(ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None), 0.01),
        ChunkSampler(),
    )
    calm = (
        np.zeros(14),
        np.zeros(14),
        np.zeros(18, np.uint8),
        np.zeros(18, np.int32),
        np.zeros(2, np.bool_),
    )
    state = ArmState(0.0, ALOHA.home, *calm)
    safety.start(state, 1)
    if chunk is not None and safety.admit(chunk, session, 0.0, float(record["image_age"])):
        sampler.replace(chunk)
    assert np.isfinite(safety.step(sampler.target(0.0), state, 0.0).position).all()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["arrays", "key", "dtype", "shape", "x"]), inner)
    ),
    max_leaves=8,
)
DTYPES = ["<f4", "u1", "O", "V0", "S0", "i4,i4", "(2,", "<q9", "", "2f8", "M8[s]", "f4" * 50]
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "key": JSON,
        "dtype": st.sampled_from(DTYPES),
        "shape": st.lists(
            st.sampled_from([0, 1, 3, -1, 2**28, 2**31, 2**64, 1.5, "x", None]), max_size=3
        ),
    },
)


def receive_all(data: bytes) -> None:
    """Receives a message out of that data, at whose end the connection is closed."""
    near, far = socket.socketpair()
    with near, far:
        far.sendall(data)
        far.close()
        with suppress(ConnectionError, ValueError):
            messages.receive(near)


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes_are_no_message_of_an_emulator(data: bytes) -> None:
    receive_all(data)
    receive_all(len(data).to_bytes(4, "little") + data)


@FUZZ
@given(
    JSON | st.fixed_dictionaries({"arrays": st.lists(ENTRIES, max_size=2)}),
    st.binary(max_size=40),
    DAMAGE,
)
@pytest.mark.filterwarnings("ignore")
def test_no_header_of_an_emulator_crashes_its_reader(
    header: object, rest: bytes, damage: tuple[list[int], int]
) -> None:
    text = damaged(json.dumps(header).encode(), *damage)
    receive_all(len(text).to_bytes(4, "little") + text + rest)


def test_claims_of_huge_lengths_take_no_memory() -> None:
    nested = b"[" * 100_000
    with bounded(4.0):
        receive_all(b"\xff\xff\xff\xff")
        receive_all(len(nested).to_bytes(4, "little") + nested)
        text = b'{"arrays": [{"key": "a", "dtype": "u1", "shape": [268435456]}]}'
        receive_all(len(text).to_bytes(4, "little") + text)
        with pytest.raises(ValueError, match="cannot be unpacked"):
            unpack(b"\xc6\xff\xff\xff\xff")


CLAIMS = st.fixed_dictionaries(
    {
        b"data": st.binary(max_size=8)
        | st.integers(-(2**63), 2**64 - 1)
        | st.text(max_size=3)
        | st.floats()
        | st.none()
    },
    optional={
        b"__ndarray__": st.just(True),
        b"__npgeneric__": st.just(True),
        b"dtype": st.sampled_from(DTYPES) | st.text(max_size=4),
        b"shape": st.lists(st.sampled_from([0, 1, 2, -1, 2**32, 2**63, 2**64 - 1]), max_size=3),
    },
)


@FUZZ
@given(st.lists(CLAIMS, max_size=2), DAMAGE)
@pytest.mark.filterwarnings("ignore")
def test_a_remote_message_is_read_or_refused(
    claims: list[dict[bytes, object]], damage: tuple[list[int], int]
) -> None:
    with suppress(ValueError):
        unpack(damaged(pack(claims), *damage))


@FUZZ
@given(st.binary(max_size=300))
def test_any_bytes_are_an_incident_or_an_error(data: bytes) -> None:
    claim = MAGIC + data[:4].ljust(4, b"\0") + LONGEST_PAYLOAD.to_bytes(4, "little")
    for part in (data, MAGIC + data, claim * 20 + data, data + bytes(HEAD.size)):
        incident = Incident.of(part)
        assert sum(len(entry.payload) for entry in incident.entries) <= len(part)
        assert incident.header is not None
        assert isinstance(incident.cycles, list)
    with suppress(ValueError):
        unpack_chunk(data)


def test_a_log_of_nothing_but_claims_is_read_in_time() -> None:
    claim = MAGIC + bytes(4) + LONGEST_PAYLOAD.to_bytes(4, "little") + bytes(HEAD.size - 12)
    with bounded(16.0):
        assert all(not hasattr(part, "payload") for part in scan(claim * 5000))
