"""A line of emulated servos with its faults."""

import operator
import struct
from collections.abc import Iterable, Mapping, Sequence

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.control_table import HardwareError
from stringline.real_robot.drivers.dynamixel.protocol import (
    Instruction,
    Packet,
    Parser,
    StatusError,
)
from stringline.real_robot.emulators.dynamixel.dynamixel_servo import EmulatedServo

FAULTS = (
    "mute",
    "unmute",
    "corrupt",
    "mend",
    "block",
    "free",
    "hang",
    "resume",
    "overload",
    "restart",
    "drop",
    "twin",
    "collide",
)
_RANGE = struct.Struct("<HH")  # Address and size.
_BULK = struct.Struct("<BHH")  # Id, address and size.
_FAST = (Instruction.FAST_SYNC_READ, Instruction.FAST_BULK_READ)
# Lowest Status Return Level at which an instruction is answered; others: `ANSWERS_ALL`.
_LEVELS: Mapping[int, int] = {Instruction.PING: 0, Instruction.READ: table.ANSWERS_READS}


class EmulatedLine:
    """Servos on one serial line.

    Args:
        servos: Servos with different ids.

    Attributes:
        goal_writes: Sync writes of goals received in this episode.
        blocked: Ids of servos whose joint is blocked.
        hanging: Whether the line accepts bytes and answers nothing.
        dropped: Whether the port must be closed.
    """

    def __init__(self, servos: Iterable[EmulatedServo]) -> None:
        self.servos = {servo.get(table.ID): servo for servo in servos}
        self.goal_writes = 0
        self.hanging = False
        self.dropped = False
        self._parser = Parser()
        self.blocked: set[int] = set()
        self._mute: set[int] = set()
        self._corrupt: set[int] = set()
        self._twins: dict[int, EmulatedServo] = {}
        self._collide = False

    def fault(self, kind: str, ident: int = 0) -> None:
        """Begins or ends a fault.

        `mute` and `unmute`: the servo; `corrupt` and `mend`: its checksums; `block` and `free`: its
        joint, as an obstacle does; `hang` and `resume`: the line; `overload`: the servo; `restart`:
        the servo, whose power fails for a moment, or for 0 all servos; `drop`: the port. A `twin`
        is an equal servo with the same id at a slightly different position, which answers after
        it; twins that `collide` answer at the same time.

        Raises:
            ValueError: The fault or the servo is unknown.
        """
        if kind not in FAULTS:
            raise unknown_name("fault", kind, FAULTS)
        whole = kind in ("hang", "resume", "drop") or (kind == "restart" and not ident)
        if not whole and ident not in self.servos:
            raise unknown_name("servo", str(ident), map(str, self.servos))
        match kind:
            case "mute" | "corrupt":
                (self._mute if kind == "mute" else self._corrupt).add(ident)
            case "unmute" | "mend":
                (self._mute if kind == "unmute" else self._corrupt).discard(ident)
            case "block":
                self.blocked.add(ident)
            case "free":
                self.blocked.discard(ident)
            case "hang" | "resume":
                self.hanging = kind == "hang"
            case "overload":
                self.servos[ident].fail(HardwareError.OVERLOAD)
            case "restart":
                for servo in [self.servos[ident]] if ident else self.servos.values():
                    servo.reboot()
            case "twin" | "collide":
                self._twins[ident] = self.servos[ident].twin()
                self._collide = kind == "collide"
            case _:
                self.dropped = True

    def receive(self, data: bytes) -> bytes:
        """Takes bytes from the line and returns the answers of the servos."""
        answers = b"".join(self._execute(packet) for packet in self._parser.feed(data))
        return b"" if self.hanging else answers

    def follow_profiles(self, seconds: float) -> None:
        """Advances the targets of the servos towards their goals."""
        for servo in self.servos.values():
            servo.follow_profile(seconds)

    def pass_time(self, seconds: float) -> None:
        """Lets the servos' watchdogs run."""
        for servo in self.servos.values():
            servo.pass_time(seconds)

    def _execute(self, packet: Packet) -> bytes:
        for servo in self.servos.values():
            servo.feed_watchdog()
        parameters = packet.parameters
        match packet.instruction:
            case Instruction.SYNC_READ | Instruction.FAST_SYNC_READ if len(parameters) >= 4:
                address, size = _RANGE.unpack_from(parameters)
                requests = [(ident, address, size) for ident in parameters[4:]]
                return self._answer_reads(packet.instruction, requests)
            case Instruction.BULK_READ | Instruction.FAST_BULK_READ:
                whole = len(parameters) // _BULK.size * _BULK.size
                return self._answer_reads(
                    packet.instruction, list(_BULK.iter_unpack(parameters[:whole]))
                )
            case Instruction.SYNC_WRITE if len(parameters) >= 4:
                self._sync_write(parameters)
                return b""
            case Instruction.STATUS:
                return b""
            case Instruction.PING if packet.ident == protocol.BROADCAST:
                return b"".join(self._single(ident, packet) for ident in sorted(self.servos))
            case _:
                return self._single(packet.ident, packet) if packet.ident in self.servos else b""

    def _single(self, ident: int, packet: Packet) -> bytes:
        answer = self._of_one(ident, packet)
        if ident not in self._twins:
            return answer
        first = self.servos[ident]
        self.servos[ident] = self._twins[ident]
        second = self._of_one(ident, packet)
        self.servos[ident] = first
        # On one wire each pulls the line down for its zeros.
        return bytes(map(operator.and_, answer, second)) if self._collide else answer + second

    def _of_one(self, ident: int, packet: Packet) -> bytes:
        """Returns the answer of a servo, if its Status Return Level allows one."""
        # A write that changes the level is answered by the level before it.
        level = self.servos[ident].get(table.STATUS_RETURN_LEVEL)
        answer = self._obey(ident, packet.instruction, packet.parameters)
        return answer if level >= _LEVELS.get(packet.instruction, table.ANSWERS_ALL) else b""

    def _obey(self, ident: int, instruction: int, parameters: bytes) -> bytes:
        servo = self.servos[ident]
        match instruction:
            case Instruction.PING:
                known = (table.MODEL_NUMBER, table.FIRMWARE)
                data = b"".join(register.pack(servo.get(register)) for register in known)
                return self._answer(ident, StatusError.NONE, data)
            case Instruction.READ if len(parameters) == 4:
                return self._answer(ident, *self._read(ident, *_RANGE.unpack(parameters)))
            case Instruction.WRITE if len(parameters) > 2:
                address = int.from_bytes(parameters[:2], "little")
                return self._answer(ident, self._write(ident, address, parameters[2:]))
            case Instruction.REBOOT:
                servo.reboot()
                return self._answer(ident, StatusError.NONE)
            case _:
                return self._answer(ident, StatusError.INSTRUCTION)

    def _read(self, ident: int, address: int, size: int) -> tuple[StatusError, bytes]:
        data = self.servos[ident].read(address, size)
        return (StatusError.DATA_RANGE, b"") if data is None else (StatusError.NONE, data)

    def _reads(self, ident: int) -> bool:
        """Returns whether a servo answers a read of several servos."""
        servo = self.servos.get(ident)
        return (
            servo is not None
            and ident not in self._mute
            and servo.get(table.STATUS_RETURN_LEVEL) >= table.ANSWERS_READS
        )

    def _answer_reads(self, instruction: int, requests: Sequence[tuple[int, int, int]]) -> bytes:
        """Returns the answers to reads of id, address and size, in the order of the list."""
        if instruction in _FAST:
            return self._answer_fast(requests)
        return b"".join(
            self._answer(ident, *self._read(ident, address, size))
            for ident, address, size in requests
            if self._reads(ident)
        )

    def _answer_fast(self, requests: Sequence[tuple[int, int, int]]) -> bytes:
        """Returns one packet in which each servo has a part: error, id, data and a checksum.

        Each checksum covers the packet so far, so the last one is that of the packet. Nothing is
        stuffed. After a silent servo the packet ends: each waits for the part before its own.
        """
        length = 1 + sum(size + 4 for _, _, size in requests)
        if length > protocol.LONGEST_LEN:
            return b""
        head = bytes([protocol.BROADCAST, *length.to_bytes(2, "little"), Instruction.STATUS])
        packet = protocol.HEADER + head
        for place, (ident, address, size) in enumerate(requests):
            if not self._reads(ident):
                return packet if place else b""
            error, data = self._read(ident, address, size)
            packet += bytes([self._error(ident, error), ident]) + (data or bytes(size))
            packet = self._damaged(ident, packet + protocol.crc16(packet).to_bytes(2, "little"))
        return packet

    def _error(self, ident: int, error: StatusError) -> int:
        return error | (protocol.ALERT if self.servos[ident].alert else 0)

    def _damaged(self, ident: int, packet: bytes) -> bytes:
        """Returns the packet, with a wrong checksum at its end if the servo has that fault."""
        return packet[:-1] + bytes([packet[-1] ^ 0x55]) if ident in self._corrupt else packet

    def _answer(self, ident: int, error: StatusError, data: bytes = b"") -> bytes:
        if ident in self._mute:
            return b""
        return self._damaged(ident, protocol.status(ident, self._error(ident, error), data))

    def _write(self, ident: int, address: int, data: bytes) -> StatusError:
        """Writes to a servo and, in RAM, to those whose secondary id is its id."""
        if address >= table.EEPROM_END:
            for servo in self.servos.values():
                if servo.get(table.SECONDARY_ID) == ident:
                    servo.write(address, data)
        return self.servos[ident].write(address, data)

    def _sync_write(self, parameters: bytes) -> None:
        address, size = _RANGE.unpack_from(parameters)
        entries = parameters[4:]
        for at in range(0, len(entries) - size, size + 1):
            if entries[at] in self.servos:
                self._write(entries[at], address, entries[at + 1 : at + 1 + size])
        self.goal_writes += address == table.GOAL_POSITION.address
