"""Incident logs: truncation and flipped bits cost only the records that they touch."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stringline
from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.device.device_state import state_layout
from stringline.real_robot.incident import IncidentTable
from stringline.real_robot.incidents.incident_log import (
    Incident,
    IncidentLog,
    cycle_layout,
    layout_of,
    pack_chunk,
    plain_layout,
    unpack_chunk,
)
from stringline.real_robot.incidents.incident_recorder import LogFile
from stringline.real_robot.incidents.incident_records import (
    HEAD,
    LONGEST_PAYLOAD,
    MAGIC,
    Damage,
    Entry,
    Kind,
    Mark,
    Ring,
    encode,
    ring_memory,
    scan,
)
from stringline.real_robot.safety.reasons import REASONS, Mode, Reason

STATE = state_layout(3, 2, 1)
HEADER = {
    "reason": "fault",
    "layout": plain_layout(cycle_layout(STATE, 3)),
    "reasons": [reason.name for reason in REASONS],
    "servos": ["left/waist (id 1)", "left/elbow (id 4)"],
    "buses": ["left"],
    "clock": {"wall_ns": 0},
    "limits_hash": "0123",
}
CAPACITY = 4 * LONGEST_PAYLOAD


def entries(count: int) -> list[Entry]:
    random = np.random.default_rng(0)
    payloads = [
        b"",
        MAGIC,
        b"\xff\xff\xfd\x00" * 3,
        MAGIC * 9,
        *(random.bytes(int(n)) for n in random.integers(1, 40, count)),
    ]
    return [
        Entry(Kind.SENT, at % 2, at + 1, 10**9 + at, payload)
        for at, payload in enumerate(payloads[:count])
    ]


def test_written_records_are_read() -> None:
    written = entries(12)
    incident = Incident.of(b"".join(map(encode, written)))
    assert incident.entries == written
    assert not incident.damage
    assert incident.missing == 0


def test_a_log_cut_at_any_byte_is_read_up_to_there() -> None:
    written = entries(8)
    data, ends = (
        b"".join(map(encode, written)),
        np.cumsum([len(encode(entry)) for entry in written]),
    )
    for cut in range(len(data)):
        incident = Incident.of(data[:cut])
        assert incident.entries == written[: int((ends <= cut).sum())]
        assert sum(part.size for part in incident.damage) == cut - max([0, *ends[ends <= cut]])
        assert all(part.reason == "the file ends within a record" for part in incident.damage)


def test_a_flipped_bit_costs_one_record() -> None:
    written = entries(6)
    data, ends = (
        b"".join(map(encode, written)),
        np.cumsum([len(encode(entry)) for entry in written]),
    )
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        hit = int((ends <= bit // 8).sum())
        incident = Incident.of(bytes(broken))
        assert incident.entries == [entry for at, entry in enumerate(written) if at != hit]
        assert sum(part.size for part in incident.damage) == len(encode(written[hit]))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60), st.just(MAGIC), st.sampled_from([encode(e) for e in entries(4)])
        ),
        max_size=12,
    )
)
def test_any_bytes_are_either_records_or_damage(parts: list[bytes]) -> None:
    data = b"".join(parts)
    found = list(scan(data))
    sizes = [
        part.size if isinstance(part, Damage) else HEAD.size + len(part.payload) for part in found
    ]
    assert sum(sizes) == len(data)
    list(IncidentTable(Incident.of(data), every_cycle=True, wire=True).lines())


def test_a_record_that_is_too_long_is_refused() -> None:
    with pytest.raises(
        ValueError, match=f"A record has {LONGEST_PAYLOAD + 1} bytes; allowed: {LONGEST_PAYLOAD}"
    ):
        encode(Entry(Kind.SENT, 0, 0, 0, bytes(LONGEST_PAYLOAD + 1)))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none.log does not exist"):
        Incident.open(tmp_path / "none.log")
    (tmp_path / "empty.log").touch()
    with pytest.raises(ValueError, match="is empty"):
        Incident.open(tmp_path / "empty.log")
    (tmp_path / "other.log").write_bytes(bytes(100))
    with pytest.raises(ValueError, match="its 100 bytes contain no intact record"):
        Incident.open(tmp_path / "other.log")


def test_a_layout_survives_json_and_objects_are_refused() -> None:
    layout = cycle_layout(STATE, 3)
    assert layout_of(json.loads(json.dumps(plain_layout(layout)))) == layout
    for plain in ([["x", "O"]], [["x"]], "x", [[1, []]], 5, []):
        with pytest.raises(ValueError, match="is not the layout of a record"):
            layout_of(plain)


def test_any_chunk_survives_packing() -> None:
    chunk = ActionChunk(np.array([0.5, np.nan]), np.array([[1, np.inf, 3], [4, 5, 6]], np.float32))
    again, session, number = unpack_chunk(pack_chunk(chunk, 7, 4))
    assert np.array_equal(again.time, chunk.time, equal_nan=True)
    assert np.array_equal(again.action, chunk.action)
    assert (session, number) == (7, 4)
    for broken in (b"", bytes(10), pack_chunk(chunk, 7, 4)[:-1]):
        with pytest.raises(ValueError, match=f"These {len(broken)} bytes are not a chunk"):
            unpack_chunk(broken)


def noted(path: Path) -> Incident:
    """Writes three cycles, of which the last is a fault, and a chunk, into a file."""
    memory = ring_memory(CAPACITY)
    log = IncidentLog(memory, STATE, 3)
    log.event("begin", session=1)
    log.tap(0).sent(b"\xff\xff\xfd\x00\x01")
    log.chunk(ActionChunk(np.array([0.5, 1.0]), np.zeros((2, 3), np.float32)), 1, 1)
    state = np.zeros((), STATE)
    log.cycle(state, 0.5, 0, None, {})
    state["reasons"], state["tick"] = Reason.POSITION, 1
    log.cycle(state, 0.51, 1, np.array([9.0, 0, 0]), {Reason.POSITION: 6.5})
    state["mode"], state["reasons"], state["tick"] = Mode.FAULT, Reason.SERVO_ERROR, 2
    state["servo_error"], state["servo_misses"], state["lost"] = [0, 0x20], [3, 0], [True]
    log.cycle(state, 0.52, 0, None, {})
    log.cycle(state, 0.53, 0, None, {})
    ring = Ring(memory)
    assert ring.marks[Mark.FAULTS] == 1  # A lasting fault counts once.
    file = LogFile(path, ring, 0, HEADER)
    file.pump()
    file.close("the end")
    return Incident.open(path)


def test_a_table_shows_the_events_of_a_log(tmp_path: Path) -> None:
    incident = noted(tmp_path / "folder" / "a.log")
    assert [float(record["now"]) for _, record in incident.cycles] == [0.5, 0.51, 0.52, 0.53]
    assert incident.cycles[1][1]["target"].tolist() == [9.0, 0, 0]
    assert np.isnan(incident.cycles[0][1]["target"]).all()
    lines = "\n".join(IncidentTable(incident, wire=True).lines())
    assert "Written at 1970-01-01 00:00:00 UTC; cause: fault." in lines
    assert "begin session=1" in lines
    assert "to left, 5 bytes: ff ff fd 00 01" in lines
    assert "chunk 1 received: 2 actions, 0.500 to 1.000 s, episode 1" in lines
    assert "cycle 1  RUN  chunk 1  POSITION 6.5" in lines
    assert (
        "SERVO_ERROR  left/elbow (id 4): overload  silent: left/waist (id 1)  lost: left" in lines
    )
    assert lines.count("cycle 2") == 1
    assert "\n".join(IncidentTable(incident, every_cycle=True).lines()).count("cycle 2") == 2
    assert "End: the end; 0 records lost, 0 writes failed." in lines
    assert "cycle" not in "\n".join(list(IncidentTable(incident, last_s=0.0).lines())[3:])


def test_a_log_without_its_header_is_still_a_list_of_records(tmp_path: Path) -> None:
    noted(tmp_path / "a.log")
    data = (tmp_path / "a.log").read_bytes()
    (tmp_path / "b.log").write_bytes(data[50:-3])
    incident = Incident.open(tmp_path / "b.log")
    lines = "\n".join(IncidentTable(incident).lines())
    assert "the header is damaged" in lines
    assert "chunk 1 received" in lines
    assert "The log is incomplete" in lines
    assert "Damaged: " in lines
    assert len([entry for entry in incident.entries if entry.kind == Kind.CYCLE]) == 4


def test_a_disk_that_is_full_for_a_while_costs_nothing_and_one_that_stays_full_is_counted(
    tmp_path: Path,
) -> None:
    memory = ring_memory(CAPACITY)
    writer, ring = Ring(memory), Ring(memory)
    file = LogFile(tmp_path / "a.log", ring, 0, HEADER)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        for _ in range(30):
            writer.put(Kind.RECEIVED, bytes(1000))
        file.pump()
        assert ring.marks[Mark.FAILURES] == 1
        file.pump()  # It does not write again at once.
        assert ring.marks[Mark.FAILURES] == 1
        assert not Incident.open(tmp_path / "a.log").damage
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file._again = 0.0
    file.pump()
    assert [entry.number for entry in Incident.open(tmp_path / "a.log").entries] == list(range(31))
    assert file.lost == 0
    for _ in range(400):
        writer.put(Kind.RECEIVED, bytes(1000))
    file.close("the end")
    incident = Incident.open(tmp_path / "a.log")
    assert incident.missing == file.lost == incident.ended["lost"] > 100
    assert incident.entries[-2].number == 430


def test_without_a_folder_all_records_are_counted_as_lost(tmp_path: Path) -> None:
    memory = ring_memory(CAPACITY)
    (tmp_path / "file").touch()
    writer, ring = Ring(memory), Ring(memory)
    file = LogFile(tmp_path / "file" / "a.log", ring, 0, HEADER)
    writer.put(Kind.EVENT, b"{}")
    file.pump()
    file.close("the end")
    assert file.lost == ring.marks[Mark.LOST] == 1
    assert ring.marks[Mark.FAILURES] == 2


@pytest.mark.slow
def test_the_command_prints_a_table_and_names_a_missing_file(tmp_path: Path) -> None:
    noted(tmp_path / "a.log")
    environment = {**os.environ, "PYTHONPATH": str(Path(stringline.__file__).parents[1])}
    command = [sys.executable, "-m", "stringline.real_robot.incident", f"file={tmp_path / 'a.log'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "cycle 1  RUN  chunk 1  POSITION 6.5" in done.stdout
    refused = subprocess.run(
        [*command[:-1], "file=nowhere.log"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert refused.returncode == 2
    assert "The incident log nowhere.log does not exist." in refused.stderr
