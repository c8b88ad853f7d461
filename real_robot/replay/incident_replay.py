"""Replays recorded bytes into emulated arms, and compares their answers with the recorded ones."""

import functools
import itertools
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser
from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.protobuf import FriDecodeError, read_fields
from stringline.real_robot.emulators.program.emulator_client import Emulator, FriEmulator
from stringline.real_robot.incidents.incident_log import Incident, json_of
from stringline.real_robot.incidents.incident_records import Entry, Kind


def compared(name: str, entry: Entry, got: bytes) -> tuple[int, str]:
    """Returns the number of equal bytes before the first difference, and a sentence about that."""
    wanted = entry.payload
    pairs = enumerate(zip(got, wanted, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(got), len(wanted)))
    if got == wanted:
        return same, ""
    return same, (
        f"{name}, record {entry.number}, byte {same} of {len(wanted)}: "
        f"got {got[same : same + 8].hex(' ') or 'nothing'}, recorded was "
        f"{wanted[same : same + 8].hex(' ') or 'nothing more'}."
    )


_EMULATED = "127.0.0.1"
_TIMEOUT_S = 2.0
_MOST_WITHOUT_CLIENT = 100_000  # Messages of a controller before its client has started.
_OF_A_NEW_WORLD = 2
_HEADER = 1
_SEQUENCE = 2


def sequence_of(data: bytes) -> int:
    """Returns the number of a message, of any version; 0 without one."""
    try:
        header = next((raw for number, _, raw in read_fields(data) if number == _HEADER), b"")
        fields = read_fields(header) if isinstance(header, bytes) else iter(())
        found = next((raw for number, _, raw in fields if number == _SEQUENCE), 0)
    except FriDecodeError:
        return 0
    return found if isinstance(found, int) else 0


class FriReplayLine:
    """The connection to a controller of the log and to the emulated one.

    Args:
        port: Port to which its controller sends.
        nudge: Advances the controller by a period, before the first episode.

    Raises:
        ValueError: The port is not that of an emulator.
    """

    def __init__(self, name: str, port: str, nudge: Callable[[], None]) -> None:
        if not port.startswith(f"{_EMULATED}:"):
            raise ValueError(f"Recorded bytes go to emulators only; {port} is not on {_EMULATED}.")
        self.name = name
        self._link = FriLink(port, _EMULATED)
        self._nudge = nudge
        self.out = 0
        self.equal = 0
        self.writes = 0
        self._arrived: list[bytes] = []
        self._begun = False

    def open(self) -> None:
        """Opens the port."""
        self._link.open()

    def close(self) -> None:
        """Closes the port."""
        self._link.close()

    def begin(self, received: int) -> None:
        """Prepares for an episode in which that many messages arrive before one is sent.

        Two of them are those of the new world. The others, between arming and the first episode,
        were not answered.
        """
        for _ in range(0 if self._begun else received - _OF_A_NEW_WORLD):
            self._nudge()
        self.writes = 0
        self._begun = True

    def pass_to(self, first: int) -> None:
        """Advances the controller, just switched on, until its next message has that number.

        Raises:
            ValueError: The number is too large.
        """
        if first > _MOST_WITHOUT_CLIENT:
            raise ValueError(
                f"{self.name}: the log begins with message {first}; it must begin with the opening "
                f"of the ports."
            )
        self._link.receive()
        for _ in range(first - 1):
            self._nudge()
            self._link.receive()

    def take(self, entry: Entry) -> str:
        """Sends a record, or compares it with received bytes; returns the difference in words."""
        if entry.kind == Kind.SENT:
            if not self._link.send(entry.payload):
                return f"{self.name}, record {entry.number}: it cannot be sent."
            self.out += len(entry.payload)
            self.writes += 1
            return ""
        if not self._begun:
            self._nudge()
        got = self._next()
        same, difference = compared(self.name, entry, got)
        self.equal += same
        return difference

    def _next(self) -> bytes:
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._arrived and (left := deadline - time.monotonic()) > 0:
            if select.select([self._link], [], [], left)[0]:
                self._arrived = self._link.receive()
        return self._arrived.pop(0) if self._arrived else b""


def fri_lines(
    ports: Mapping[str, str], emulator: FriEmulator, incident: Incident
) -> list[FriReplayLine]:
    """Opens the ports, and advances each controller to the first recorded message.

    The ports are in the order of the log's buses. A controller also counts the messages that it
    sent before its client started.
    """
    lines = [
        FriReplayLine(name, port, functools.partial(emulator.nudge, name))
        for name, port in ports.items()
    ]
    try:
        for line in lines:
            line.open()
        emulator.reboot(patient=True)
        for source, line in enumerate(lines):
            received = (
                entry
                for entry in incident.entries
                if entry.kind == Kind.RECEIVED and entry.source == source
            )
            line.pass_to(max((sequence_of(entry.payload) for entry in [*received][:1]), default=1))
    except ValueError:
        for line in lines:
            line.close()
        raise
    return lines


_ANSWER_TIMEOUT_S = 2.0
_PSEUDO_TERMINAL = "/dev/pts/"


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
        if not port.startswith(_PSEUDO_TERMINAL):
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
