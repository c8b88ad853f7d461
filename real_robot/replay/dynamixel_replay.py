"""Recorded bytes into emulated arms: do they answer as the arms of the log did?"""

import itertools
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_format import Entry, Kind
from stringline.real_robot.incidents.incident_reader import Incident, words_of
from stringline.real_robot.replay.byte_comparison import compared
from stringline.real_robot.replay.fri_replay import fri_lines

_ANSWER_TIMEOUT_S = 2.0
_EMULATED = "/dev/pts/"


@dataclass(frozen=True)
class ReplayResult:
    """What came of a replay.

    Attributes:
        sent: Bytes that were sent.
        equal: Bytes that came back as recorded.
        difference: Where the first answer differs, in words; empty if none does.
    """

    sent: int
    equal: int
    difference: str


class ReplayLine(Protocol):
    """A bus of the log and the emulated one.

    Attributes:
        name: Of the bus.
        out: Bytes that were sent.
        equal: Bytes that came back as recorded.
        writes: Commands that were sent in this episode.
    """

    name: str
    out: int
    equal: int
    writes: int

    def begin(self, received: int) -> None:
        """Is called before an episode begins; so many records are received before anything is sent."""
        ...

    def take(self, entry: Entry) -> str:
        """Sends the bytes of a record, or compares them with what comes; returns how they differ, in words."""
        ...

    def close(self) -> None:
        """Closes the port."""
        ...


def replay(
    incident: Incident,
    emulator: Emulator,
    *,
    seed: int = 0,
    options: Mapping[str, float] | None = None,
) -> ReplayResult:
    """Sends what a driver sent, in its order, and compares each answer with the recorded one, until the first that differs.

    The world goes on by one period after each cycle of the log, and begins anew where an episode of
    the log begins. The answers agree if the log was taken from an emulator of the same kind in
    lock-step, reaches back to the opening of the ports, and no fault was caused meanwhile.

    Args:
        incident: The log.
        emulator: Started, in lock-step.
        seed: Of the log's episodes.
        options: Of the log's world.

    Raises:
        ValueError: The emulator has other buses than the log, or its ports are none of an emulator.
    """
    names = list(incident.header.get("buses", emulator.ports))
    if set(names) != set(emulator.ports):
        raise ValueError(
            f"The log is of the buses {', '.join(names)}; the emulator has "
            f"{', '.join(emulator.ports)}."
        )
    lines = _opened(names, emulator, incident)
    difference = ""
    try:
        for at, entry in enumerate(incident.entries):
            if entry.kind in (Kind.SENT, Kind.RECEIVED) and entry.source < len(lines):
                difference = lines[entry.source].take(entry)
            elif entry.kind == Kind.EVENT and int(words_of(entry).get("session", 0)) > 0:
                for place, line in enumerate(lines):
                    line.begin(_received_first(incident, at, place))
                emulator.begin(seed, options)
            elif entry.kind == Kind.CYCLE:
                emulator.advance({line.name: line.writes for line in lines})
            if difference:
                break
    finally:
        for line in lines:
            line.close()
    return ReplayResult(
        sum(line.out for line in lines), sum(line.equal for line in lines), difference
    )


def _opened(names: list[str], emulator: Emulator, incident: Incident) -> list[ReplayLine]:
    if isinstance(emulator, FriEmulator):
        return list(fri_lines({name: emulator.ports[name] for name in names}, emulator, incident))
    lines = [_Line(name, emulator.ports[name]) for name in names]
    for line in lines:
        line.open()
    return list(lines)


def _received_first(incident: Incident, at: int, place: int) -> int:
    """Returns how many records of a bus are received from there on before one is sent."""
    wire = (
        entry
        for entry in incident.entries[at:]
        if entry.kind in (Kind.SENT, Kind.RECEIVED) and entry.source == place
    )
    return sum(1 for _ in itertools.takewhile(lambda entry: entry.kind == Kind.RECEIVED, wire))


class _Line:
    """A serial line of the log and the emulated one."""

    def __init__(self, name: str, port: str) -> None:
        if not port.startswith(_EMULATED):
            raise ValueError(f"Recorded bytes go to emulators only; {port} is no pseudo-terminal.")
        self.name = name
        self._bus = Bus(port)
        self.out = 0
        self.equal = 0
        self.writes = 0
        self._bus.tap = self
        self._parser = Parser()
        self._answers = bytearray()

    def open(self) -> None:
        """Opens the port."""
        self._bus.open()

    def begin(self, received: int) -> None:
        """Counts goals anew."""
        self.writes = 0

    def close(self) -> None:
        """Closes the port."""
        self._bus.close()

    def sent(self, data: bytes) -> None:
        """Counts what went out."""
        self.out += len(data)

    def received(self, data: bytes) -> None:
        """Keeps what came in."""
        self._answers += data

    def take(self, entry: Entry) -> str:
        """Sends the bytes of a record, or compares them with what comes; returns how they differ, in words."""
        try:
            if entry.kind == Kind.SENT:
                self._bus.send(entry.payload)
                self.writes += sum(
                    packet.instruction == Instruction.SYNC_WRITE
                    and packet.parameters[:2] == table.GOAL_POSITION.address.to_bytes(2, "little")
                    for packet in self._parser.feed(entry.payload)
                )
                return ""
            self._wait(len(entry.payload))
        except LinkLostError as error:
            return f"{self.name}, record {entry.number}: {error.strerror}."
        got = bytes(self._answers[: len(entry.payload)])
        wanted = entry.payload
        del self._answers[: len(wanted)]
        same, difference = compared(self.name, entry, got)
        self.equal += same
        return difference

    def _wait(self, size: int) -> None:
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        while len(self._answers) < size and (left := deadline - time.monotonic()) > 0:
            if select.select([self._bus], [], [], left)[0]:
                self._bus.receive()
