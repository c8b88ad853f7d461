"""One serial line with Dynamixel servos, with bounded waits and partial results.

On a `ReadOnlyBus` nothing can be moved: it is for leader arms, and for dry runs.
"""

import contextlib
import errno
import fcntl
import logging
import os
import select
import struct
import termios
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from stringline.real_robot.driver_interface.driver import BusListener
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.control_table import Register
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet, Parser

log = logging.getLogger(__name__)

BAUD_RATES = {
    rate: getattr(termios, f"B{rate}")
    for rate in (57600, 115200, 1_000_000, 2_000_000, 3_000_000, 4_000_000)
}
# Longest wait while nothing moves, enough for a busy computer; the loop has its own deadlines.
PATIENCE_S = 0.25
_READS = 3  # Requests for a register.
_QUIET_S = 0.005  # Without a byte for that long, all answers have arrived.
_READ_SIZE = 4096
# Flag of serial_struct in linux/serial.h: USB adapters do not wait for 16 ms.
_ASYNC_LOW_LATENCY = 1 << 13
_TIOCGSERIAL = 0x541E
_TIOCSSERIAL = 0x541F
_PSEUDO_TERMINALS = "/dev/pts/"


class LinkLostError(OSError):
    """The port itself is gone: cable pulled, adapter dead, or far end closed."""


class Bus:
    """A port to a chain of servos. Nothing is opened before `open`.

    All methods that send or receive raise `LinkLostError` if the port is gone.

    Args:
        port: Such as `/dev/ttyDXL_follower_left`.
        baud_rate: Bits per second, one of `BAUD_RATES`.

    Attributes:
        lost: Whether the port is gone since it was opened.
        listener: Receives a copy of all bytes, or None.
    """

    def __init__(self, port: str, baud_rate: int = 1_000_000) -> None:
        if baud_rate not in BAUD_RATES:
            raise ValueError(
                f"A baud rate of {baud_rate} is not supported; allowed: "
                f"{', '.join(map(str, BAUD_RATES))}."
            )
        self.port = port
        self.lost = False
        self.listener: BusListener | None = None
        self._baud_rate = baud_rate
        self._fd = -1
        self._parser = Parser()

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._fd

    def open(self) -> None:
        """Opens the port exclusively: later programs get an error, unless they run as root.

        Pseudo-terminals are only locked, with an advisory lock: the program behind one keeps it
        open, so an exclusive claim would outlive this process.

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
            raise ValueError(f"{self.port} is not a serial port: {error}.") from error
        self._fd = fd
        self.lost = False
        self._parser.reset()

    def close(self) -> None:
        """Closes the port; servos stay as they are."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def send(self, packet: bytes, timeout_s: float = 0.02) -> None:
        """Writes a packet, after discarding late answers to earlier ones."""
        self._drop_late()
        deadline = time.monotonic() + timeout_s
        while packet:
            try:
                written = os.write(self._fd, packet)
                if self.listener is not None:
                    self.listener.sent(packet[:written])
                packet = packet[written:]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise self._lose("it accepts no more bytes") from None
                select.select([], [self._fd], [], timeout_s)
            except OSError as error:
                raise self._lose(error.strerror) from error

    def _drop_late(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._read()
        self._parser.reset()

    def receive(self) -> list[Packet]:
        """Returns the status packets that are complete, without waiting."""
        try:
            data = self._read()
        except BlockingIOError:
            return []
        return _statuses(self._parser.feed(data))

    def _read(self) -> bytes:
        try:
            data = os.read(self._fd, _READ_SIZE)
        except BlockingIOError:
            raise
        except OSError as error:
            raise self._lose(error.strerror) from error
        if not data:
            raise self._lose("it was closed at the far end")
        if self.listener is not None:
            self.listener.received(data)
        return data

    def _lose(self, reason: str | None) -> LinkLostError:
        self.lost = True
        return LinkLostError(errno.EIO, f"The port {self.port} is lost: {reason}")

    def ask(self, ident: int, packet: bytes) -> Packet | None:
        """Sends a packet to a servo and returns its answer, or None without one."""
        self.send(packet)
        answers = gather({self: (ident,)}, PATIENCE_S)[self]
        if self.lost:
            raise LinkLostError(errno.EIO, f"The port {self.port} is lost")
        return answers.get(ident)

    def everything(self, packet: bytes) -> tuple[list[Packet], bool]:
        """Sends a packet and receives all answers, until the line is quiet.

        Returns the complete answers, and whether bytes arrived without any.
        """
        self.send(packet)
        answers: list[Packet] = []
        received = 0
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], left)[0]:
                break
            data = self._read()
            received += len(data)
            answers += _statuses(self._parser.feed(data))
            deadline = min(deadline, time.monotonic() + _QUIET_S)
        return answers, bool(received and not answers)

    def read_register(self, ident: int, register: Register) -> int | None:
        """Returns the value of a register, or None without an answer to `_READS` requests.

        A warning names each lost answer: damaged, or late because the computer is busy.
        """
        request = protocol.read(ident, register.address, register.size)
        for number, answers in enumerate(self._answers(ident, request)):
            for answer in answers:
                if answer.ident == ident and len(answer.data) == register.size:
                    return register.unpack(answer.data)
            where = f"Servo {ident} on {self.port}: {register.name}"
            log.warning("%s has not been read; attempt %d of %d.", where, number + 1, _READS)
        return None

    def _answers(self, ident: int, request: bytes) -> Iterator[list[Packet]]:
        first = self.ask(ident, request)
        yield [] if first is None else [first]
        for _ in range(_READS - 1):
            # Until the line is quiet: a late answer must not be taken for that of the next read.
            yield self.everything(request)[0]

    def write_register(self, ident: int, register: Register, value: int) -> None:
        """Writes a register and waits for the acknowledgement.

        Raises:
            ValueError: The servo does not answer, or refuses.
        """
        packet = protocol.write(ident, register.address, register.pack(value))
        answer = self.ask(ident, packet)
        about = f"Servo {ident} on {self.port}"
        if answer is None:
            raise ValueError(f"{about} does not answer a write of {register.name}.")
        if code := answer.error & ~protocol.ALERT:
            why = protocol.error_name(code)
            raise ValueError(f"{about} refuses {register.name} = {value}: {why}.")


def gather(
    expected: Mapping[Bus, Collection[int]], timeout_s: float
) -> dict[Bus, dict[int, Packet]]:
    """Waits for answers on several buses at once, at most `timeout_s` for all of them.

    Returns the answers by bus and servo; a bus whose port is gone is marked `lost`.
    """
    deadline = time.monotonic() + timeout_s
    answers: dict[Bus, dict[int, Packet]] = {bus: {} for bus in expected}
    waiting = {bus.fileno(): bus for bus, idents in expected.items() if idents and not bus.lost}
    poller = select.poll()
    for fd in waiting:
        poller.register(fd, select.POLLIN)
    while waiting and (left := deadline - time.monotonic()) > 0:
        for fd, _ in poller.poll(left * 1000):
            bus = waiting[fd]
            _collect(bus, expected[bus], answers[bus])
            if bus.lost or len(answers[bus]) == len(expected[bus]):
                poller.unregister(fd)
                del waiting[fd]
    return answers


def _collect(bus: Bus, idents: Collection[int], answers: dict[int, Packet]) -> None:
    try:  # A port that hangs up is readable too: the read then raises.
        answers |= {packet.ident: packet for packet in bus.receive() if packet.ident in idents}
    except LinkLostError as error:
        log.error("%s.", error.strerror)


def sync_read(
    idents: Mapping[Bus, Sequence[int]], address: int, size: int, timeout_s: float
) -> dict[Bus, dict[int, Packet]]:
    """Reads registers of several servos on several buses, after sending all requests.

    Returns the answers with `size` bytes, by bus and servo.
    """
    for bus, servos in idents.items():
        with contextlib.suppress(LinkLostError):
            if not bus.lost:
                bus.send(protocol.sync_read(address, size, servos))
    answers = gather(idents, timeout_s)
    return {
        bus: {ident: packet for ident, packet in got.items() if len(packet.data) == size}
        for bus, got in answers.items()
    }


def read_all(
    bus: Bus, idents: Sequence[int], register: Register, timeout_s: float
) -> dict[int, bytes]:
    """Returns the data of a register of several servos on a bus, without those that are silent.

    Servos whose answer was lost are asked again, `_READS` times in all.
    """
    found: dict[int, bytes] = {}
    for _ in range(_READS):
        left = [ident for ident in idents if ident not in found]
        answers = sync_read({bus: left}, register.address, register.size, timeout_s)[bus]
        found |= {ident: packet.data for ident, packet in answers.items()}
        if bus.lost or len(found) == len(idents):
            break
    return found


def _statuses(packets: list[Packet]) -> list[Packet]:
    return [packet for packet in packets if packet.instruction == Instruction.STATUS]


def _advice(error: OSError) -> str:
    if error.errno == errno.EACCES:
        group = "the group that owns it (`dialout` on most systems)"
        return f" Add the user to {group} and log in again."
    if error.errno == errno.ENOENT:
        return " Check that the adapter is plugged in and that the udev rules name it so."
    return ""


def claim(fd: int) -> None:
    """Claims a terminal exclusively, except against root, until it is closed."""
    fcntl.ioctl(fd, termios.TIOCEXCL)


def _set_raw(fd: int, baud: int) -> None:
    """Sets eight data bits, no parity, no flow control and no translation."""
    control = termios.CS8 | termios.CREAD | termios.CLOCAL
    characters = termios.tcgetattr(fd)[6]
    # With a minimum of 0, which other programs may have set, an idle port would read as if closed.
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
        reason = error.strerror
        log.debug("%s: no low latency (%s); an FTDI adapter may add up to 16 ms.", fd, reason)


_REQUESTS = frozenset({Instruction.PING, Instruction.READ, Instruction.SYNC_READ})
_LIST_END = table.INDIRECT_ADDRESS.address + 2 * table.INDIRECT_COUNT


class ReadOnlyError(RuntimeError):
    """A packet other than a read was about to be sent on a read-only line."""


class ReadOnlyBus(Bus):
    """Sends reads only, and the list of registers that one answer contains.

    The bytes themselves are checked, so all code that uses the bus is covered.
    """

    def send(self, packet: bytes, timeout_s: float = 0.02) -> None:
        """Writes a packet that changes nothing.

        Raises:
            ReadOnlyError: The bytes are not one such packet; nothing is sent.
        """
        packets = Parser().feed(packet)
        if len(packets) != 1 or not _changes_nothing(packets[0]):
            found = (
                ", ".join(f"instruction {one.instruction:#04x} to {one.ident}" for one in packets)
                or "no packet"
            )
            raise ReadOnlyError(f"{self.port} is only read; refused: {found}. Nothing was sent.")
        super().send(packet, timeout_s)


def _changes_nothing(packet: Packet) -> bool:
    if packet.instruction in _REQUESTS:
        return True
    address = int.from_bytes(packet.parameters[:2], "little")
    end = len(packet.parameters) - 2
    lists = table.INDIRECT_ADDRESS.address <= address and address + end <= _LIST_END
    return packet.instruction == Instruction.WRITE and lists
