"""Mailboxes lose the oldest first and never hand out half a record."""

import numpy as np

from stringline.real_robot.ipc.mailbox import Mailbox, shared_memory

LAYOUT = np.dtype([("value", "<i8"), ("many", "<f8", (100,))])


def pair(slots: int) -> tuple[Mailbox, Mailbox, np.ndarray]:
    memory = shared_memory(LAYOUT, slots)
    return (
        Mailbox(memory, LAYOUT),
        Mailbox(memory, LAYOUT),
        np.frombuffer(memoryview(memory).cast("B"), np.uint8),
    )


def record(value: int) -> np.ndarray:
    made = np.zeros((), LAYOUT)
    made["value"], made["many"] = value, value
    return made


def values(records: list[np.ndarray]) -> list[int]:
    return [int(one["value"]) for one in records]


def test_an_empty_mailbox_is_empty() -> None:
    _, reader, _ = pair(4)
    assert reader.newest() is None
    assert reader.fresh() == []


def test_each_record_is_fresh_once() -> None:
    writer, reader, _ = pair(4)
    writer.put(record(1))
    writer.put(record(2))
    assert values(reader.fresh()) == [1, 2]
    assert reader.fresh() == []
    writer.put(record(3))
    assert values(reader.fresh()) == [3]
    assert values(reader.recent()) == [1, 2, 3]


def test_the_oldest_records_are_dropped() -> None:
    writer, reader, _ = pair(4)
    for value in range(11):
        writer.put(record(value))
    newest = reader.newest()
    assert newest is not None
    assert values([newest]) == [10]
    assert values(reader.fresh()) == [7, 8, 9, 10]


def test_a_record_that_is_being_overwritten_is_not_returned() -> None:
    writer, reader, raw = pair(2)
    writer.put(record(5))
    raw[len(raw) // 2 + 500] ^= (
        0xFF  # Somewhere in the middle of the second slot, where record 1 lies.
    )
    assert reader.newest() is None
    assert reader.fresh() == []


def test_a_copy_stays_as_it_was() -> None:
    writer, reader, _ = pair(1)
    writer.put(record(1))
    kept = reader.newest()
    writer.put(record(2))
    assert kept is not None
    assert kept["many"][0] == 1.0
