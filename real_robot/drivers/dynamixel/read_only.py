"""A line on which nothing can be moved: for leader arms, and for dry runs."""

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.bus import Bus
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet, Parser

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
