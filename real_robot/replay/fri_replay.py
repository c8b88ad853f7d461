"""Replays recorded answers to emulated controllers, and compares messages with recorded ones."""

import functools
import select
import time
from collections.abc import Callable, Mapping

from stringline.real_robot.drivers.fri.fri_link import FriLink
from stringline.real_robot.drivers.fri.protobuf_wire import FriDecodeError, read_fields
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.incidents.incident_format import Entry, Kind
from stringline.real_robot.incidents.incident_reader import Incident
from stringline.real_robot.replay.byte_comparison import compared

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
