"""The vendor's SDK as a reference: it works with our emulator, and makes the same packets."""

from collections.abc import Iterator

import dynamixel_sdk
import pytest

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.bus import Bus, sync_read
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser
from stringline.real_robot.emulators.program.emulator_client import Emulator


class PatientPort(dynamixel_sdk.PortHandler):
    """Waits a second for an answer: the vendor's 34 ms are too few on a busy machine."""

    def setPacketTimeout(self, packet_length: int) -> None:
        """Starts the wait."""
        self.setPacketTimeoutMillis(1000.0)


@pytest.fixture
def port(emulator: Emulator) -> Iterator[dynamixel_sdk.PortHandler]:
    opened = PatientPort(emulator.ports["left"])
    assert opened.openPort()
    assert opened.setBaudRate(1_000_000)
    yield opened
    opened.closePort()


@pytest.fixture
def vendor() -> dynamixel_sdk.PacketHandler:
    return dynamixel_sdk.PacketHandler(2.0)


def test_the_vendor_finds_our_servos(
    port: dynamixel_sdk.PortHandler, vendor: dynamixel_sdk.PacketHandler
) -> None:
    assert [vendor.ping(port, ident) for ident in (1, 9)] == [(1120, 0, 0), (1020, 0, 0)]


def test_the_vendor_reads_and_writes_registers(
    port: dynamixel_sdk.PortHandler, vendor: dynamixel_sdk.PacketHandler
) -> None:
    assert vendor.write4ByteTxRx(port, 1, 116, 2500) == (0, 0)
    assert vendor.read4ByteTxRx(port, 1, 116) == (2500, 0, 0)
    assert vendor.write4ByteTxRx(port, 2, 116, 4000) == (0, protocol.StatusError.DATA_LIMIT)
    assert vendor.write1ByteTxRx(port, 1, 64, 1) == (0, 0)
    assert vendor.write1ByteTxRx(port, 1, 11, 4) == (0, protocol.StatusError.ACCESS)


def test_the_vendors_sync_read_agrees_with_ours(
    emulator: Emulator, port: dynamixel_sdk.PortHandler, vendor: dynamixel_sdk.PacketHandler
) -> None:
    group = dynamixel_sdk.GroupSyncRead(port, vendor, 126, 10)
    for ident in range(1, 10):
        assert group.addParam(ident)
    assert group.txRxPacket() == 0
    theirs = {ident: group.getData(ident, 132, 4) for ident in range(1, 10)}
    port.closePort()
    bus = Bus(emulator.ports["left"])
    bus.open()
    answers = sync_read({bus: range(1, 10)}, table.PRESENT_POSITION.address, 4, 1.0)[bus]
    bus.close()
    assert {
        ident: table.PRESENT_POSITION.unpack(packet.data) for ident, packet in answers.items()
    } == theirs


def test_the_vendors_sync_write_moves_our_servos(
    port: dynamixel_sdk.PortHandler, vendor: dynamixel_sdk.PacketHandler
) -> None:
    group = dynamixel_sdk.GroupSyncWrite(port, vendor, 116, 4)
    for ident, goal in ((1, 2222), (6, 1111)):
        assert group.addParam(ident, goal.to_bytes(4, "little"))
    assert group.txPacket() == 0
    assert vendor.read4ByteTxRx(port, 6, 116) == (1111, 0, 0)


@pytest.mark.parametrize(
    ("ident", "instruction", "parameters"),
    [
        (1, Instruction.PING, b""),
        (3, Instruction.WRITE, b"\x74\x00\xff\xff\xfd\x00"),
        (254, Instruction.SYNC_WRITE, b"\x74\x00\x04\x00\x01\xff\xff\xfd\xfd\x02\xff\xfd\xff\xff"),
        (7, Instruction.READ, b"\xff\xff\xfd\xff\xff\xfd"),
    ],
)
def test_the_vendor_makes_the_same_bytes(
    vendor: dynamixel_sdk.PacketHandler, ident: int, instruction: Instruction, parameters: bytes
) -> None:
    length = len(parameters) + 3
    head = [0xFF, 0xFF, 0xFD, 0, ident, length & 0xFF, length >> 8, int(instruction)]
    # Its `txPacket` drops the result of its own stuffing (4.1.0), so the steps are taken one by
    # one.
    packet = vendor.addStuffing([*head, *parameters, 0, 0])[:-2]
    crc = vendor.updateCRC(0, packet, len(packet))
    theirs = bytes(packet) + crc.to_bytes(2, "little")
    assert protocol.encode(ident, instruction, parameters) == theirs
    assert Parser().feed(theirs)[0].parameters == parameters
