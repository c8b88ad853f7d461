"""The vendor's SDK as a reference: it works with our emulator, and makes the same packets."""

import time
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


@pytest.mark.parametrize("read", ["txRxPacket", "fastBulkRead"])
def test_the_vendors_bulk_reads_find_different_registers_of_each_servo(
    port: dynamixel_sdk.PortHandler, vendor: dynamixel_sdk.PacketHandler, read: str
) -> None:
    group = dynamixel_sdk.GroupBulkRead(port, vendor)
    for ident, register in ((1, table.PRESENT_POSITION), (9, table.MODEL_NUMBER), (3, table.ID)):
        assert group.addParam(ident, register.address, register.size)
    assert getattr(group, read)() == 0
    position, _, _ = vendor.read4ByteTxRx(port, 1, table.PRESENT_POSITION.address)
    assert group.getData(1, table.PRESENT_POSITION.address, 4) == position > 0
    assert group.getData(9, table.MODEL_NUMBER.address, 2) == 1020
    assert group.getData(3, table.ID.address, 1) == 3


def test_the_vendors_fast_sync_read_agrees_with_its_sync_read(
    port: dynamixel_sdk.PortHandler, vendor: dynamixel_sdk.PacketHandler
) -> None:
    group = dynamixel_sdk.GroupSyncRead(port, vendor, table.MODEL_NUMBER.address, 8)
    for ident in range(1, 10):
        assert group.addParam(ident)
    found = []
    for read in (group.txRxPacket, group.fastSyncRead):
        assert read() == 0
        found.append([group.getData(ident, table.ID.address, 1) for ident in range(1, 10)])
    assert found == [list(range(1, 10))] * 2


def test_a_profile_that_the_vendor_sets_limits_the_motion(
    port: dynamixel_sdk.PortHandler, vendor: dynamixel_sdk.PacketHandler
) -> None:
    start, _, _ = vendor.read4ByteTxRx(port, 1, table.PRESENT_POSITION.address)
    for register, value in ((table.PROFILE_ACCELERATION, 10), (table.PROFILE_VELOCITY, 60)):
        assert vendor.write4ByteTxRx(port, 1, register.address, value) == (0, 0)
    assert vendor.write1ByteTxRx(port, 1, table.TORQUE_ENABLE.address, 1) == (0, 0)
    begun = time.monotonic()
    assert vendor.write4ByteTxRx(port, 1, table.GOAL_POSITION.address, start + 1000) == (0, 0)
    speeds = []
    position = start
    while position != start + 1000:
        assert time.monotonic() < begun + 20.0
        position, _, _ = vendor.read4ByteTxRx(port, 1, table.POSITION_TRAJECTORY.address)
        speeds.append(vendor.read4ByteTxRx(port, 1, table.VELOCITY_TRAJECTORY.address)[0])
    # 60 * 0.229 rpm is 938 ticks/s, and the ramp of 10 * 214.577 rpm^2 takes 0.384 s. The emulator
    # makes up for a late quarter of a second.
    assert time.monotonic() - begun > 1000 / 938 + 0.384 - 0.25
    assert 55 <= max(speeds) <= 60


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
