"""Dynamixel protocol 2.0: encoding packets, and finding packets in the bytes of a noisy line.

Packet: FF FF FD 00 | ID | LEN (2 bytes) | INST | parameters | CRC (2 bytes), little-endian. From
INST to the last parameter each FF FF FD is stuffed to FF FF FD FD; LEN and CRC count the stuffed
bytes (ROBOTIS e-manual, "Protocol 2.0").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

HEADER = b"\xff\xff\xfd\x00"
BROADCAST = 0xFE
LARGEST_ID = 252
ALERT = 0x80  # Bit of the error byte: the servo latched a hardware error.
LONGEST_LEN = 1024
_BEFORE_LEN_ENDS = 7


class Instruction(IntEnum):
    """Instruction of a packet; `STATUS` marks an answer."""

    PING = 0x01
    READ = 0x02
    WRITE = 0x03
    REBOOT = 0x08
    STATUS = 0x55
    SYNC_READ = 0x82
    SYNC_WRITE = 0x83
    FAST_SYNC_READ = 0x8A
    BULK_READ = 0x92
    FAST_BULK_READ = 0x9A


class StatusError(IntEnum):
    """Low seven bits of a status packet's error byte."""

    NONE = 0
    RESULT_FAIL = 1
    INSTRUCTION = 2
    CRC = 3
    DATA_RANGE = 4
    DATA_LENGTH = 5
    DATA_LIMIT = 6
    ACCESS = 7


def error_name(code: int) -> str:
    """Returns the name of a `StatusError` for messages."""
    try:
        return StatusError(code).name.lower().replace("_", " ")
    except ValueError:
        return f"error {code}"


@dataclass(frozen=True)
class Packet:
    """One packet, without stuffing.

    Attributes:
        ident: Id of the servo that receives or sends it.
        instruction: One of `Instruction`, or an unknown number.
        parameters: Its parameters; in a status packet the first byte is the error.
    """

    ident: int
    instruction: int
    parameters: bytes

    @property
    def error(self) -> int:
        """Error byte of a status packet: `ALERT`, plus a `StatusError`."""
        return self.parameters[0]

    @property
    def data(self) -> bytes:
        """Data of a status packet, after its error byte."""
        return self.parameters[1:]


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte << 8
        for _ in range(8):
            value = (value << 1) ^ (0x8005 if value & 0x8000 else 0)
        table.append(value & 0xFFFF)
    return tuple(table)


_TABLE = _crc_table()


def crc16(data: bytes) -> int:
    """Returns the checksum: polynomial 0x8005, start 0, most significant bit first."""
    crc = 0
    for byte in data:
        crc = ((crc << 8) & 0xFFFF) ^ _TABLE[(crc >> 8) ^ byte]
    return crc


def encode(ident: int, instruction: int, parameters: bytes = b"") -> bytes:
    """Returns the bytes of one packet.

    Parameters are those before stuffing; in a status packet, the error byte is the first.

    Raises:
        ValueError: The id is out of range.
    """
    if not (0 <= ident <= LARGEST_ID or ident == BROADCAST):
        raise ValueError(
            f"A servo's id is {ident}; allowed: 0 to {LARGEST_ID}, or {BROADCAST} for all."
        )
    body = (bytes([instruction]) + parameters).replace(b"\xff\xff\xfd", b"\xff\xff\xfd\xfd")
    packet = HEADER + bytes([ident]) + (len(body) + 2).to_bytes(2, "little") + body
    return packet + crc16(packet).to_bytes(2, "little")


def status(ident: int, error: int, data: bytes = b"") -> bytes:
    """Returns a status packet."""
    return encode(ident, Instruction.STATUS, bytes([error]) + data)


def ping(ident: int) -> bytes:
    """Returns a ping; the answer is model number (2 bytes) and firmware (1 byte)."""
    return encode(ident, Instruction.PING)


def read(ident: int, address: int, size: int) -> bytes:
    """Returns a read of `size` bytes from `address` on."""
    return encode(
        ident, Instruction.READ, address.to_bytes(2, "little") + size.to_bytes(2, "little")
    )


def write(ident: int, address: int, data: bytes) -> bytes:
    """Returns a write of `data` from `address` on, which a status packet answers."""
    return encode(ident, Instruction.WRITE, address.to_bytes(2, "little") + data)


def sync_read(address: int, size: int, idents: Sequence[int]) -> bytes:
    """Returns a read of several servos, which answer in this order."""
    head = address.to_bytes(2, "little") + size.to_bytes(2, "little")
    return encode(BROADCAST, Instruction.SYNC_READ, head + bytes(idents))


def sync_write(address: int, values: Mapping[int, bytes]) -> bytes:
    """Returns a write of values of equal lengths to several servos, without answers."""
    size = len(next(iter(values.values())))
    head = address.to_bytes(2, "little") + size.to_bytes(2, "little")
    return encode(
        BROADCAST,
        Instruction.SYNC_WRITE,
        head + b"".join(bytes([ident]) + data for ident, data in values.items()),
    )


class Parser:
    """Finds packets in a stream that may be truncated, duplicated or noisy.

    Attributes:
        crc_errors: Number of packets with a wrong checksum.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.crc_errors = 0

    def reset(self) -> None:
        """Discards the bytes of an incomplete packet."""
        self._buffer.clear()

    def feed(self, data: bytes) -> list[Packet]:
        """Takes the next bytes of the stream and returns the packets that became complete."""
        self._buffer += data
        found: list[Packet] = []
        while self._seek_header():
            end = self._end()
            if end > len(self._buffer):
                break
            self._take(end, found)
        return found

    def _seek_header(self) -> bool:
        """Drops bytes before a header; returns whether the length of its packet has arrived."""
        start = self._buffer.find(HEADER)
        if start < 0:
            # The last three bytes may be the beginning of a header.
            del self._buffer[: max(0, len(self._buffer) - len(HEADER) + 1)]
            return False
        del self._buffer[:start]
        return len(self._buffer) >= _BEFORE_LEN_ENDS

    def _end(self) -> int:
        """Returns the end of the packet at the front, or 0 if it cannot be one."""
        length = int.from_bytes(self._buffer[5:7], "little")
        end = _BEFORE_LEN_ENDS + length
        # Stuffing keeps headers out of packets, so a second header means that this packet was
        # truncated. The checksum is not stuffed: after FF FF it may look like the end of a header.
        following = self._buffer.find(HEADER, len(HEADER), end - 2)
        if 3 <= length <= LONGEST_LEN and following < 0:
            return end
        return 0

    def _take(self, end: int, found: list[Packet]) -> None:
        packet = bytes(self._buffer[:end])
        if end and _is_whole(packet):
            del self._buffer[:end]
            body = packet[_BEFORE_LEN_ENDS:-2].replace(b"\xff\xff\xfd\xfd", b"\xff\xff\xfd")
            if body[0] != Instruction.STATUS or len(body) > 1:
                found.append(Packet(packet[4], body[0], body[1:]))
            return
        self.crc_errors += 1
        del self._buffer[:2]


def _is_whole(packet: bytes) -> bool:
    return crc16(packet[:-2]) == int.from_bytes(packet[-2:], "little")
