"""One serial line with Dynamixel servos: bounded waits, partial results, and a lost cable told apart from a silent servo."""

import contextlib
import errno
import fcntl
import logging
import os
import select
import struct
import termios
import time
from collections.abc import Collection, Mapping, Sequence

from stringline.real_robot.driver_interface.driver import Tap
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.control_table import Register
from stringline.real_robot.drivers.dynamixel.protocol import (
    Instruction,
    Packet,
    Parser,
    StatusError,
)

log = logging.getLogger(__name__)

BAUD_RATES = {
    rate: getattr(termios, f"B{rate}")
    for rate in (57600, 115200, 1_000_000, 2_000_000, 3_000_000, 4_000_000)
}
# With a servo while nothing moves: long enough for a busy computer. The loop's deadlines are its
# own.
PATIENCE_S = 0.25
_READ_SIZE = 4096
_ASYNC_LOW_LATENCY = (
    1 << 13
)  # Of serial_struct.flags, linux/serial.h; asks USB adapters not to wait for 16 ms.
_TIOCGSERIAL = 0x541E
_TIOCSSERIAL = 0x541F
_PSEUDO_TERMINALS = "/dev/pts/"


class LinkLostError(OSError):
    """The port itself is gone: cable pulled, adapter dead, or far end closed."""


class Bus:
    """A port to a chain of servos. Nothing is opened before `open`.

    Args:
        port: Such as `/dev/ttyDXL_follower_left`.
        baud_rate: Bits per second, one of `BAUD_RATES`.

    Attributes:
        port: As given.
        lost: Whether the port went away since it was opened.
        tap: Listens, if there is one.
    """

    def __init__(self, port: str, baud_rate: int = 1_000_000) -> None:
        if baud_rate not in BAUD_RATES:
            raise ValueError(
                f"A baud rate of {baud_rate} is not supported; allowed: "
                f"{', '.join(map(str, BAUD_RATES))}."
            )
        self.port = port
        self.lost = False
        self.tap: Tap | None = None
        self._baud_rate = baud_rate
        self._fd = -1
        self._parser = Parser()

    @property
    def crc_errors(self) -> int:
        """Broken packets received so far."""
        return self._parser.crc_errors

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._fd

    def open(self) -> None:
        """Opens the port for this process alone: others that open it later get an error, unless they run as root.

        Pseudo-terminals are only locked against programs that ask for the lock: whoever is behind
        one keeps it open, so the claim would outlive this process.

        Raises:
            ValueError: It does not exist, may not be used, or another program has it.
        """
        try:
            fd = os.open(self.port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            raise ValueError(
                f"The port {self.port} cannot be opened: {error.strerror}.{_advice(error)}"
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _set_raw(fd, BAUD_RATES[self._baud_rate])
            if not os.ttyname(fd).startswith(_PSEUDO_TERMINALS):
                claim(fd)
        except BlockingIOError as error:
            os.close(fd)
            raise ValueError(f"The port {self.port} is in use by another program.") from error
        except termios.error as error:
            os.close(fd)
            raise ValueError(f"{self.port} is no serial port: {error}.") from error
        self._fd = fd
        self.lost = False
        self._parser.reset()

    def close(self) -> None:
        """Closes the port; servos stay as they are."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def send(self, packet: bytes, timeout_s: float = 0.02) -> None:
        """Writes a packet, after dropping whatever came in too late to be an answer to it.

        Raises:
            LinkLostError: The port is gone or takes nothing any more.
        """
        self._drop_late()
        deadline = time.monotonic() + timeout_s
        while packet:
            try:
                written = os.write(self._fd, packet)
                if self.tap is not None:
                    self.tap.sent(packet[:written])
                packet = packet[written:]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise self._lose("it takes no more bytes") from None
                select.select([], [self._fd], [], timeout_s)
            except OSError as error:
                raise self._lose(error.strerror) from error

    def _drop_late(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._read()
        self._parser.reset()

    def receive(self) -> list[Packet]:
        """Returns the status packets that are complete by now, without waiting.

        Raises:
            LinkLostError: The port is gone.
        """
        try:
            data = self._read()
        except BlockingIOError:
            return []
        return [
            packet for packet in self._parser.feed(data) if packet.instruction == Instruction.STATUS
        ]

    def _read(self) -> bytes:
        try:
            data = os.read(self._fd, _READ_SIZE)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._lose(error.strerror) from error
        if not data:
            raise self._lose("it was closed at the far end")
        if self.tap is not None:
            self.tap.received(data)
        return data

    def _lose(self, reason: str | None) -> LinkLostError:
        self.lost = True
        return LinkLostError(errno.EIO, f"The port {self.port} is lost: {reason}")

    def ask(self, ident: int, packet: bytes, timeout_s: float = PATIENCE_S) -> Packet | None:
        """Sends one packet and returns that servo's answer, or None when it keeps silent.

        Raises:
            LinkLostError: The port is gone.
        """
        self.send(packet)
        answers = gather({self: (ident,)}, timeout_s)[self]
        if self.lost:
            raise LinkLostError(errno.EIO, f"The port {self.port} is lost")
        return answers.get(ident)

    def everything(
        self, packet: bytes, timeout_s: float = PATIENCE_S, quiet_s: float = 0.005
    ) -> tuple[list[Packet], bool]:
        """Sends one packet and waits until the line is quiet again, so that also the second of two answers is seen.

        Args:
            packet: What is asked.
            timeout_s: Until the first answer.
            quiet_s: Without a byte after an answer.

        Returns:
            All whole answers, and whether what came was no answer at all.

        Raises:
            LinkLostError: The port is gone.
        """
        self.send(packet)
        answers: list[Packet] = []
        received = 0
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0 and select.select([self._fd], [], [], left)[
            0
        ]:
            data = self._read()
            received += len(data)
            answers += [
                answer
                for answer in self._parser.feed(data)
                if answer.instruction == Instruction.STATUS
            ]
            deadline = min(deadline, time.monotonic() + quiet_s)
        return answers, bool(received and not answers)

    def read_register(
        self, ident: int, register: Register, timeout_s: float = PATIENCE_S
    ) -> int | None:
        """Returns a register's value, or None when the servo keeps silent or refuses."""
        answer = self.ask(ident, protocol.read(ident, register.address, register.size), timeout_s)
        if answer is None or len(answer.data) != register.size:
            return None
        return register.unpack(answer.data)

    def write_register(
        self, ident: int, register: Register, value: int, timeout_s: float = PATIENCE_S
    ) -> None:
        """Writes a register and waits for the servo's word that it did.

        Raises:
            ValueError: The servo keeps silent or refuses; says why.
            LinkLostError: The port is gone.
        """
        answer = self.ask(
            ident, protocol.write(ident, register.address, register.pack(value)), timeout_s
        )
        if answer is None:
            raise ValueError(
                f"Servo {ident} on {self.port} does not answer a write of {register.name}."
            )
        if reason := answer.error & ~protocol.ALERT:
            raise ValueError(
                f"Servo {ident} on {self.port} refuses {register.name} = {value}: "
                f"{_error_name(reason)}."
            )


def gather(
    expected: Mapping[Bus, Collection[int]], timeout_s: float
) -> dict[Bus, dict[int, Packet]]:
    """Waits for answers on several buses at once.

    Args:
        expected: The servos that were asked, by bus.
        timeout_s: Longest wait for all of them together.

    Returns:
        By bus and servo the answers that came; a bus whose port went away is marked `lost`.
    """
    deadline = time.monotonic() + timeout_s
    answers: dict[Bus, dict[int, Packet]] = {bus: {} for bus in expected}
    waiting = {bus.fileno(): bus for bus, idents in expected.items() if idents and not bus.lost}
    poller = select.poll()
    for fd in waiting:
        poller.register(fd, select.POLLIN)
    while waiting:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        for fd, _ in poller.poll(left * 1000):
            bus = waiting[fd]
            _collect(bus, expected[bus], answers[bus])
            if bus.lost or len(answers[bus]) == len(expected[bus]):
                poller.unregister(fd)
                del waiting[fd]
    return answers


def _collect(bus: Bus, idents: Collection[int], answers: dict[int, Packet]) -> None:
    try:
        # A port that hangs up is readable too: the read then says what happened.
        answers |= {packet.ident: packet for packet in bus.receive() if packet.ident in idents}
    except LinkLostError as error:
        log.error("%s.", error.strerror)


def sync_read(
    idents: Mapping[Bus, Sequence[int]], address: int, size: int, timeout_s: float
) -> dict[Bus, dict[int, Packet]]:
    """Reads the same registers of several servos on several buses; all requests are out before the first answer is read.

    Returns:
        By bus and servo the answers that came with `size` bytes.
    """
    for bus, asked in idents.items():
        with contextlib.suppress(LinkLostError):
            if not bus.lost:
                bus.send(protocol.sync_read(address, size, asked))
    answers = gather(idents, timeout_s)
    return {
        bus: {ident: packet for ident, packet in got.items() if len(packet.data) == size}
        for bus, got in answers.items()
    }


def _advice(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return (
            " Add the user to the group that owns it (`dialout` on most systems) and log in again."
        )
    if error.errno == errno.ENOENT:
        return " Is the adapter plugged in, and do the udev rules name it so?"
    return ""


def _error_name(code: int) -> str:
    try:
        return StatusError(code).name.lower().replace("_", " ")
    except ValueError:
        return f"error {code}"


def claim(fd: int) -> None:
    """Refuses a terminal to everybody else, root excepted, until it is closed."""
    fcntl.ioctl(fd, termios.TIOCEXCL)


def _set_raw(fd: int, baud: int) -> None:
    """Sets eight data bits, no parity, no flow control, no translation of anything."""
    control = termios.CS8 | termios.CREAD | termios.CLOCAL
    characters = termios.tcgetattr(fd)[6]
    # With a minimum of 0, as other programs leave it behind, an idle port would read like one that
    # was closed.
    characters[termios.VMIN] = 1
    characters[termios.VTIME] = 0
    termios.tcsetattr(fd, termios.TCSANOW, [0, 0, control, 0, baud, baud, characters])
    termios.tcflush(fd, termios.TCIOFLUSH)
    try:
        settings = bytearray(fcntl.ioctl(fd, _TIOCGSERIAL, bytes(72)))
        (flags,) = struct.unpack_from("i", settings, 16)
        struct.pack_into("i", settings, 16, flags | _ASYNC_LOW_LATENCY)
        fcntl.ioctl(fd, _TIOCSSERIAL, bytes(settings))
    except OSError as error:
        log.debug(
            "%s: low latency cannot be asked for (%s); an FTDI adapter may add up to 16 ms.",
            fd,
            error.strerror,
        )
