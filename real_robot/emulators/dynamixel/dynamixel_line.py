"""A line of emulated servos with its faults."""

import operator
import struct
from collections.abc import Iterable

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
    "drop",
    "twin",
    "collide",
)
_RANGE = struct.Struct("<HH")  # Address and size.


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
        joint, as an obstacle does; `hang` and `resume`: the line; `overload`: the servo; `drop`:
        the port. A `twin` is an equal servo with the same id at a slightly different position,
        which answers after it; twins that `collide` answer at the same time.

        Raises:
            ValueError: The fault or the servo is unknown.
        """
        if kind not in FAULTS:
            raise unknown_name("fault", kind, FAULTS)
        if kind not in ("hang", "resume", "drop") and ident not in self.servos:
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
            case "twin" | "collide":
                self._twins[ident] = self.servos[ident].twin()
                self._collide = kind == "collide"
            case _:
                self.dropped = True

    def receive(self, data: bytes) -> bytes:
        """Takes bytes from the line and returns the answers of the servos."""
        answers = b"".join(self._execute(packet) for packet in self._parser.feed(data))
        return b"" if self.hanging else answers

    def pass_time(self, seconds: float) -> None:
        """Lets the servos' watchdogs run."""
        for servo in self.servos.values():
            servo.pass_time(seconds)

    def _execute(self, packet: Packet) -> bytes:
        for servo in self.servos.values():
            servo.feed_watchdog()
        parameters = packet.parameters
        match packet.instruction:
            case Instruction.SYNC_READ if len(parameters) >= 4:
                address, size = _RANGE.unpack_from(parameters)
                return b"".join(self._answer_read(ident, address, size) for ident in parameters[4:])
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
        servo = self.servos[ident]
        parameters = packet.parameters
        match packet.instruction:
            case Instruction.PING:
                known = (table.MODEL_NUMBER, table.FIRMWARE)
                data = b"".join(register.pack(servo.get(register)) for register in known)
                return self._answer(ident, StatusError.NONE, data)
            case Instruction.READ if len(parameters) == 4:
                return self._answer_read(ident, *_RANGE.unpack(parameters))
            case Instruction.WRITE if len(parameters) > 2:
                address = int.from_bytes(parameters[:2], "little")
                return self._answer(ident, self._write(ident, address, parameters[2:]))
            case Instruction.REBOOT:
                servo.reboot()
                return self._answer(ident, StatusError.NONE)
            case _:
                return self._answer(ident, StatusError.INSTRUCTION)

    def _answer_read(self, ident: int, address: int, size: int) -> bytes:
        if ident not in self.servos:
            return b""
        data = self.servos[ident].read(address, size)
        if data is None:
            return self._answer(ident, StatusError.DATA_RANGE)
        return self._answer(ident, StatusError.NONE, data)

    def _answer(self, ident: int, error: StatusError, data: bytes = b"") -> bytes:
        if ident in self._mute:
            return b""
        servo = self.servos[ident]
        packet = protocol.status(ident, error | (protocol.ALERT if servo.alert else 0), data)
        return packet[:-1] + bytes([packet[-1] ^ 0x55]) if ident in self._corrupt else packet

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
