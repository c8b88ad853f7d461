"""The ring of the incident log: readers never get overwritten bytes."""

from pathlib import Path

import numpy as np
import pytest

from stringline.real_robot.incidents.incident_log import Incident
from stringline.real_robot.incidents.incident_recorder import LogPlan
from stringline.real_robot.incidents.incident_records import (
    HEAD,
    LONGEST_PAYLOAD,
    Kind,
    Mark,
    Ring,
    ring_memory,
)

CAPACITY = 4 * LONGEST_PAYLOAD


def test_a_ring_keeps_the_newest_whole_records() -> None:
    ring, random = Ring(ring_memory(CAPACITY)), np.random.default_rng(0)
    payloads = [random.bytes(int(size)) for size in random.integers(0, 3000, 500)]
    for payload in payloads:
        ring.put(Kind.RECEIVED, payload, 1)
    incident = Incident.of(ring.read(0)[0])
    assert not incident.damage
    assert incident.entries[-1].number == 500
    assert incident.missing == 0
    assert sum(HEAD.size + len(entry.payload) for entry in incident.entries) > CAPACITY - 4000
    assert all(entry.payload == payloads[entry.number - 1] for entry in incident.entries)


def test_a_reader_continues_and_skips_overwritten_records() -> None:
    memory = ring_memory(CAPACITY)
    writer, reader = Ring(memory), Ring(memory)
    writer.put(Kind.EVENT, b"one")
    data, place = reader.read(0)
    writer.put(Kind.EVENT, b"two")
    assert [entry.payload for entry in Incident.of(reader.read(place)[0]).entries] == [b"two"]
    assert reader.read(reader.read(place)[1])[0] == b""
    writer.marks[Mark.ANNOUNCED] = (
        CAPACITY + 5
    )  # As if the next record were just now being written over the first.
    assert [entry.payload for entry in Incident.of(reader.read(0)[0]).entries] == [b"two"]
    writer.marks[Mark.ANNOUNCED] = 3 * CAPACITY
    assert reader.read(0)[0] == b""
    assert Incident.of(data).entries[0].payload == b"one"


def test_pieces_of_a_ring_add_up_to_its_content() -> None:
    longest = HEAD.size + LONGEST_PAYLOAD
    memory, random = ring_memory(12 * longest), np.random.default_rng(1)
    writer, reader = Ring(memory), Ring(memory)
    for size in (
        *random.integers(0, 3000, 400),
        *random.integers(0, LONGEST_PAYLOAD, 30),
        *[LONGEST_PAYLOAD] * 4,
    ):
        writer.put(Kind.RECEIVED, random.bytes(int(size)), 1)
    pieces, place = [], 0
    while (piece := reader.read(place, 2 * longest))[0]:
        place = piece[1]
        pieces.append(piece[0])
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= 2 * longest
    assert (b"".join(pieces), place) == reader.read(0)
    # A piece is overwritten while it is copied: no record is returned, and the next read begins
    # at the oldest record.
    begun = reader.read(0, 2 * longest)[1]
    writer.marks[Mark.ANNOUNCED] += 11 * longest
    assert reader.read(begun, 2 * longest) == (b"", begun)


def test_an_empty_ring_or_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="A ring has 100 bytes; allowed: "):
        ring_memory(100)
    with pytest.raises(ValueError, match="seconds=0, after_s=2.0; allowed: above 0, and 0 or more"):
        LogPlan(Path(), seconds=0)
    with pytest.raises(
        ValueError, match="seconds=30.0, after_s=nan; allowed: above 0, and 0 or more"
    ):
        LogPlan(Path(), after_s=float("nan"))
