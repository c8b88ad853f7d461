"""The emulated servo refuses the same writes as a real one, and a line has its faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.control_table import (
    VIPERX,
    HardwareError,
    OperatingMode,
    Register,
)
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser, StatusError
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.dynamixel.dynamixel_servo import EmulatedServo


@pytest.fixture
def shoulder() -> EmulatedServo:
    return EmulatedServo(VIPERX[1], angle=0.2)


@pytest.fixture
def line() -> EmulatedLine:
    return EmulatedLine(EmulatedServo(kind) for kind in VIPERX)


def write(servo: EmulatedServo, register: Register, value: int) -> StatusError:
    return servo.write(register.address, register.pack(value))


def test_eeprom_is_locked_while_torque_is_on(shoulder: EmulatedServo) -> None:
    assert (
        write(shoulder, table.OPERATING_MODE, OperatingMode.EXTENDED_POSITION) is StatusError.NONE
    )
    assert write(shoulder, table.TORQUE_ENABLE, 1) is StatusError.NONE
    assert write(shoulder, table.OPERATING_MODE, OperatingMode.POSITION) is StatusError.ACCESS


@pytest.mark.parametrize(
    ("register", "value", "expected"),
    [
        (table.PRESENT_POSITION, 5, StatusError.ACCESS),
        (table.MODEL_NUMBER, 5, StatusError.ACCESS),
        (table.TORQUE_ENABLE, 2, StatusError.DATA_RANGE),
        (table.OPERATING_MODE, 2, StatusError.DATA_RANGE),
        (table.GOAL_POSITION, 3000, StatusError.DATA_LIMIT),
        (table.GOAL_POSITION, 2000, StatusError.NONE),
    ],
)
def test_only_writable_registers_accept_values_in_range(
    shoulder: EmulatedServo, register: Register, value: int, expected: StatusError
) -> None:
    before = shoulder.get(register)
    assert write(shoulder, register, value) is expected
    assert shoulder.get(register) == (before if expected else value)


def test_a_write_of_several_registers_is_complete_or_refused(
    shoulder: EmulatedServo,
) -> None:
    pair = table.PROFILE_ACCELERATION.pack(40) + table.PROFILE_VELOCITY.pack(50_000)
    assert shoulder.write(table.PROFILE_ACCELERATION.address, pair) is StatusError.DATA_RANGE
    assert shoulder.get(table.PROFILE_ACCELERATION) == 0


@pytest.mark.parametrize("kind", VIPERX, ids=lambda kind: f"{kind.joint}{kind.ident}")
def test_a_well_configured_servo_reads_the_joints_angle(kind: object) -> None:
    servo = EmulatedServo(kind, angle=0.3)  # type: ignore[arg-type]
    assert table.angle_of_ticks(servo.get(table.PRESENT_POSITION)) == pytest.approx(
        0.3, abs=table.TICK_RAD
    )


def test_the_wrong_drive_mode_turns_the_joint_around(shoulder: EmulatedServo) -> None:
    assert write(shoulder, table.DRIVE_MODE, 0) is StatusError.NONE
    shoulder.sense(0.2, 0.0, 0.0)
    assert table.angle_of_ticks(shoulder.get(table.PRESENT_POSITION)) == pytest.approx(
        -0.2, abs=table.TICK_RAD
    )
    write(shoulder, table.GOAL_POSITION, table.ticks_of_angle(0.5))
    write(shoulder, table.TORQUE_ENABLE, 1)
    assert shoulder.goal_angle() == pytest.approx(-0.5, abs=table.TICK_RAD)


def test_an_overload_turns_torque_off_until_a_reboot(shoulder: EmulatedServo) -> None:
    write(shoulder, table.TORQUE_ENABLE, 1)
    shoulder.fail(HardwareError.OVERLOAD)
    assert not shoulder.torque
    assert write(shoulder, table.TORQUE_ENABLE, 1) is StatusError.RESULT_FAIL
    shoulder.reboot()
    assert not shoulder.alert
    assert write(shoulder, table.TORQUE_ENABLE, 1) is StatusError.NONE


def test_the_bus_watchdog_refuses_goals_until_it_is_cleared(shoulder: EmulatedServo) -> None:
    write(shoulder, table.TORQUE_ENABLE, 1)
    write(shoulder, table.BUS_WATCHDOG, 5)
    shoulder.pass_time(0.09)
    assert write(shoulder, table.GOAL_POSITION, 2100) is StatusError.NONE
    shoulder.pass_time(0.02)
    assert shoulder.get(table.BUS_WATCHDOG) == -1
    assert write(shoulder, table.GOAL_POSITION, 2200) is StatusError.DATA_RANGE
    assert write(shoulder, table.BUS_WATCHDOG, 0) is StatusError.NONE
    assert write(shoulder, table.GOAL_POSITION, 2200) is StatusError.NONE


def test_a_shadow_follows_its_master_in_ram_without_an_answer(line: EmulatedLine) -> None:
    answers = Parser().feed(line.receive(protocol.write(2, table.TORQUE_ENABLE.address, b"\x01")))
    assert [packet.ident for packet in answers] == [2]
    assert line.servos[3].torque
    assert not line.servos[4].torque


def test_a_shadow_does_not_follow_in_eeprom(line: EmulatedLine) -> None:
    line.receive(protocol.write(2, table.OPERATING_MODE.address, bytes([OperatingMode.PWM])))
    assert line.servos[2].get(table.OPERATING_MODE) == OperatingMode.PWM
    assert line.servos[3].get(table.OPERATING_MODE) == OperatingMode.POSITION


def test_indirect_data_shows_other_registers(shoulder: EmulatedServo) -> None:
    shoulder.write(
        table.INDIRECT_ADDRESS.address, b"".join((132 + n).to_bytes(2, "little") for n in range(4))
    )
    assert shoulder.read(table.INDIRECT_DATA.address, 4) == shoulder.read(132, 4)


def test_a_servos_alert_is_in_every_answer(line: EmulatedLine) -> None:
    line.fault("overload", 4)
    errors = {
        p.ident: p.error
        for p in Parser().feed(line.receive(protocol.sync_read(132, 4, range(1, 10))))
    }
    assert errors == {ident: (protocol.ALERT if ident == 4 else 0) for ident in range(1, 10)}


@pytest.mark.parametrize(("level", "answers"), [(0, 1), (1, 4), (2, 6)])
def test_the_status_return_level_selects_the_answers(
    line: EmulatedLine, level: int, answers: int
) -> None:
    """0: pings; 1: reads as well; 2: all. The instruction acts at every level."""
    line.servos[1].set(table.STATUS_RETURN_LEVEL, level)
    bulk = b"".join(bytes([1, address, 0, 1, 0]) for address in (7, 10))
    packets = (
        protocol.ping(1),
        protocol.read(1, table.ID.address, 1),
        protocol.sync_read(table.ID.address, 1, [1]),
        protocol.encode(protocol.BROADCAST, Instruction.BULK_READ, bulk[:5]),
        protocol.write(1, table.GOAL_POSITION.address, table.GOAL_POSITION.pack(2222)),
    )
    heard = sum(bool(Parser().feed(line.receive(packet))) for packet in packets)
    assert line.servos[1].get(table.GOAL_POSITION) == 2222
    heard += bool(Parser().feed(line.receive(protocol.encode(1, Instruction.REBOOT))))
    assert heard == answers


def test_a_write_of_the_status_return_level_is_answered_by_the_level_before(
    line: EmulatedLine,
) -> None:
    address = table.STATUS_RETURN_LEVEL.address
    assert Parser().feed(line.receive(protocol.write(1, address, b"\x01")))
    assert not Parser().feed(line.receive(protocol.write(1, address, b"\x02")))
    assert Parser().feed(line.receive(protocol.write(1, address, b"\x02")))


def test_a_bulk_read_is_answered_in_the_order_of_its_list(line: EmulatedLine) -> None:
    line.fault("mute", 3)
    requests = ((4, table.PRESENT_POSITION), (3, table.ID), (200, table.ID), (1, table.FIRMWARE))
    parameters = b"".join(
        bytes([ident]) + register.address.to_bytes(2, "little") + bytes([register.size, 0])
        for ident, register in requests
    )
    request = protocol.encode(protocol.BROADCAST, Instruction.BULK_READ, parameters)
    answers = Parser().feed(line.receive(request))
    assert [packet.ident for packet in answers] == [4, 1]
    assert [len(packet.data) for packet in answers] == [4, 1]
    assert answers[1].data == bytes([line.servos[1].get(table.FIRMWARE)])


def test_a_fast_read_ends_before_a_silent_servo(line: EmulatedLine) -> None:
    parameters = bytes([table.ID.address, 0, 1, 0, 1, 2, 3])
    request = protocol.encode(protocol.BROADCAST, Instruction.FAST_SYNC_READ, parameters)
    whole = line.receive(request)
    assert whole[:8] == protocol.HEADER + bytes([protocol.BROADCAST, 16, 0, Instruction.STATUS])
    assert [whole[8 + 5 * place : 11 + 5 * place] for place in range(3)] == [
        bytes([0, ident, ident]) for ident in (1, 2, 3)
    ]
    for end in (13, 18, 23):  # Each checksum covers the packet before it.
        assert protocol.crc16(whole[: end - 2]) == int.from_bytes(whole[end - 2 : end], "little")
    line.fault("mute", 2)
    assert line.receive(request) == whole[:13]
    line.fault("mute", 1)
    assert line.receive(request) == b""


def test_a_profile_limits_the_target_and_begins_with_the_next_goal(
    shoulder: EmulatedServo,
) -> None:
    write(shoulder, table.TORQUE_ENABLE, 1)
    shoulder.stay()
    start = shoulder.get(table.PRESENT_POSITION)
    write(shoulder, table.PROFILE_VELOCITY, 100)  # 1563 ticks/s.
    assert write(shoulder, table.GOAL_POSITION, start - 400) is StatusError.NONE
    write(shoulder, table.PROFILE_VELOCITY, 0)
    shoulder.follow_profile(0.1)
    assert shoulder.get(table.POSITION_TRAJECTORY) == start - 156
    assert shoulder.get(table.VELOCITY_TRAJECTORY) == -100
    write(shoulder, table.GOAL_POSITION, start - 400)
    assert shoulder.get(table.POSITION_TRAJECTORY) == start - 400  # Without a profile, at once.


def test_with_a_profile_torque_starts_at_the_present_position(shoulder: EmulatedServo) -> None:
    write(shoulder, table.PROFILE_VELOCITY, 10)
    write(shoulder, table.GOAL_POSITION, 1000)
    shoulder.follow_profile(0.01)
    write(shoulder, table.TORQUE_ENABLE, 1)
    assert shoulder.goal_angle() == pytest.approx(0.2, abs=table.TICK_RAD)


def test_an_unknown_fault_is_named_with_the_nearest(line: EmulatedLine) -> None:
    with pytest.raises(ValueError, match=r"no fault 'mutee'. Did you mean 'mute'"):
        line.fault("mutee", 4)


@given(
    st.lists(
        st.tuples(st.integers(0, 254), st.integers(0, 255), st.binary(max_size=20)), max_size=6
    )
)
def test_a_line_survives_any_instruction(packets: list[tuple[int, int, bytes]]) -> None:
    line = EmulatedLine(EmulatedServo(kind) for kind in VIPERX)
    for ident, instruction, parameters in packets:
        if ident != 253:
            line.receive(protocol.encode(ident, instruction, parameters))
    line.receive(protocol.encode(1, Instruction.REBOOT))
    assert Parser().feed(line.receive(protocol.ping(1)))
