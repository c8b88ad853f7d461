"""The emulated servo refuses the same writes as a real one, and a line has its faults."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.control_table import (
    HardwareError,
    OperatingMode,
    Register,
)
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser, StatusError
from stringline.real_robot.drivers.dynamixel.viperx import VIPERX
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
