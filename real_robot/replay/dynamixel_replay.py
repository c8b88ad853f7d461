"""Replays recorded bytes into emulated arms, and compares their answers with the recorded ones."""

import itertools
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.incidents.incident_format import Entry, Kind
from stringline.real_robot.incidents.incident_reader import Incident, json_of
from stringline.real_robot.replay.byte_comparison import compared
from stringline.real_robot.replay.fri_replay import fri_lines

_ANSWER_TIMEOUT_S = 2.0
_EMULATED = "/dev/pts/"


@dataclass(frozen=True)
class ReplayResult:
    """Result of a replay.

    Attributes:
        difference: A sentence about the first difference; empty without one.
    """

    sent: int
    equal: int
    difference: str


class ReplayLine(Protocol):
    """A bus of the log and the emulated one.

    Attributes:
        out: Number of bytes sent.
        equal: Number of bytes received as recorded.
        writes: Number of commands sent in this episode.
    """

    name: str
    out: int
    equal: int
    writes: int

    def begin(self, received: int) -> None:
        """Prepares for an episode in which that many records are received before one is sent."""
        ...

    def take(self, entry: Entry) -> str:
        """Sends a record, or compares it with received bytes; returns the difference in words."""
        ...

    def close(self) -> None:
        """Closes the port."""
        ...


def replay(
    incident: Incident,
    emulator: Emulator,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> ReplayResult:
    """Sends the recorded bytes of a driver, and compares answers up to the first difference.

    The world advances by one period after each cycle of the log, and begins again with each episode
    of the log. The answers are equal if the log was recorded with an emulator of the same kind in
    lock-step, begins with the opening of the ports, and contains no scripted fault. The emulator
    runs in lock-step, with the seed and the options of the log's episodes.

    Raises:
        ValueError: The emulator has other buses than the log, or is not an emulator.
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
            elif entry.kind == Kind.EVENT and int(json_of(entry).get("session", 0)) > 0:
                for source, line in enumerate(lines):
                    line.begin(_received_first(incident, at, source))
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


def _received_first(incident: Incident, at: int, source: int) -> int:
    """Returns the number of records of a bus that are received before the next one is sent."""
    wire = (
        entry
        for entry in incident.entries[at:]
        if entry.kind in (Kind.SENT, Kind.RECEIVED) and entry.source == source
    )
    return sum(1 for _ in itertools.takewhile(lambda entry: entry.kind == Kind.RECEIVED, wire))


class _Line:
    """A serial line of the log and the emulated one."""

    def __init__(self, name: str, port: str) -> None:
        if not port.startswith(_EMULATED):
            raise ValueError(
                f"Recorded bytes go to emulators only; {port} is not a pseudo-terminal."
            )
        self.name = name
        self._bus = Bus(port)
        self.out = 0
        self.equal = 0
        self.writes = 0
        self._bus.listener = self
        self._parser = Parser()
        self._answers = bytearray()

    def open(self) -> None:
        """Opens the port."""
        self._bus.open()

    def begin(self, received: int) -> None:
        """Counts goals from 0."""
        self.writes = 0

    def close(self) -> None:
        """Closes the port."""
        self._bus.close()

    def sent(self, data: bytes) -> None:
        """Counts sent bytes."""
        self.out += len(data)

    def received(self, data: bytes) -> None:
        """Keeps received bytes."""
        self._answers += data

    def take(self, entry: Entry) -> str:
        """Sends a record, or compares it with received bytes; returns the difference in words."""
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
        del self._answers[: len(entry.payload)]
        same, difference = compared(self.name, entry, got)
        self.equal += same
        return difference

    def _wait(self, size: int) -> None:
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        while len(self._answers) < size and (left := deadline - time.monotonic()) > 0:
            if select.select([self._bus], [], [], left)[0]:
                self._bus.receive()
