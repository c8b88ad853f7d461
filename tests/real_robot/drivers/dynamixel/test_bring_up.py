"""Servos that lose their power for a moment: before, during and after their torque is turned on.

A joint may move by a milliradian. The emulated world goes on with every packet, so a goal that is
wrong for the time of one packet shows.
"""

import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from tests.real_robot.served_arms import Served

from stringline.datasets.embodiments.aloha import ALOHA, FOLLOWER, GRIPPER_SERVOS
from stringline.real_robot.driver_interface.driver import RESTARTED, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX, WIDOWX
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet, StatusError
from stringline.real_robot.drivers.dynamixel.servo_arm import KEPT
from stringline.real_robot.emulators.dynamixel.dynamixel_line import EmulatedLine
from stringline.real_robot.emulators.dynamixel.dynamixel_servo import EmulatedServo

STILL_RAD = 1e-3
NAMES = {1: r"left/waist \(id 1\)", 2: r"left/shoulder \(id 2\)", 3: r"left/shoulder shadow \(id 3"}
NAMES |= {4: r"left/elbow \(id 4\)", 9: r"left/gripper \(id 9\)", 0: r"left/waist \(id 1\)"}


@pytest.fixture
def served() -> Iterator[Served]:
    lines = Served(moves=True)
    yield lines
    lines.close()


def connected(served: Served, **more: float) -> AlohaDriver:
    arms = served.driver(**more)
    arms.connect()
    served.watch()
    return arms


def armed(served: Served, **more: float) -> AlohaDriver:
    arms = connected(served, **more)
    arms.arm()
    return arms


def assert_sound(served: Served, arms: AlohaDriver) -> None:
    """Asserts torque everywhere, at rest, and a pose without errors."""
    state = arms.read(time.monotonic)
    assert not state.servo_error.any()
    assert np.abs(state.position - ALOHA.home).max() < 2 * table.TICK_RAD
    assert served.values(table.TORQUE_ENABLE) == {1}
    for line in served.lines.values():
        assert all(servo.torque for servo in line.servos.values())  # Also of the shadows.
    for _ in range(20):
        served.advance()
    assert served.farthest.max() <= STILL_RAD


@pytest.mark.parametrize("ident", [1, 2, 3, 4, 9, 0])
def test_a_restart_between_connecting_and_arming_is_refused_with_its_servo_and_moves_nothing(
    served: Served, ident: int
) -> None:
    arms = connected(served)
    served.lines["left"].fault("restart", ident)
    with pytest.raises(RobotNotReadyError, match=f"{NAMES[ident]}.* has restarted") as refused:
        arms.arm()
    assert "Homing Offset" not in str(refused.value)
    assert len(refused.value.problems) == (9 if ident == 0 else 1)
    assert served.values(table.TORQUE_ENABLE) == {0}
    arms.arm()  # Without a new connection.
    assert_sound(served, arms)
    arms.close()


def refusal(arms: AlohaDriver) -> list[str]:
    """Turns torque on; returns the problems, if any."""
    try:
        arms.arm()
    except RobotNotReadyError as error:
        return error.problems
    return []


@pytest.mark.parametrize("ident", [1, 3, 9, 0])
def test_a_restart_in_a_run_is_an_error_of_the_next_cycle_and_no_measurement(
    served: Served, ident: int
) -> None:
    arms = armed(served)
    before = arms.read(time.monotonic)
    served.lines["left"].fault("restart", ident)
    state = arms.read(time.monotonic)
    expected = np.zeros(18, dtype=np.bool_)
    expected[slice(0, 9) if ident == 0 else ident - 1] = True
    assert np.array_equal((state.servo_error & RESTARTED) != 0, expected)
    assert np.array_equal(state.position, before.position)
    assert not state.servo_misses.any()
    arms.restore()
    assert_sound(served, arms)
    arms.close()


def blocked(served: Served, ident: int) -> tuple[EmulatedServo, int]:
    """Gives a servo of the right arm a goal that an object keeps it from; returns both."""
    servo = served.lines["right"].servos[ident]
    served.lines["right"].fault("block", ident)
    goal = servo.get(table.GOAL_POSITION) - 200
    assert not servo.write(table.GOAL_POSITION.address, table.GOAL_POSITION.pack(goal))
    return servo, goal


def goals_seen(served: Served, servo: EmulatedServo) -> list[int]:
    """Returns a list to which each packet from now on adds the goal of a servo."""
    goals: list[int] = []
    served.before = lambda line, packet: goals.append(servo.get(table.GOAL_POSITION))
    return goals


@pytest.mark.parametrize("ident", [8, 9])
def test_restoring_keeps_the_goals_of_joints_with_torque(served: Served, ident: int) -> None:
    """The goal of the right gripper is the hold on an object, that of the left waist is lost."""
    arms = armed(served)
    servo, goal = blocked(served, ident)
    served.lines["left"].fault("restart", 1)
    arms.read(time.monotonic)
    goals = goals_seen(served, servo)
    arms.restore()
    assert set(goals) == {goal}
    assert served.lines["left"].servos[1].torque
    arms.close()


@pytest.mark.parametrize("ident", [8, 9])
def test_of_another_program_only_grippers_with_torque_keep_their_goals(
    served: Served, ident: int
) -> None:
    """What they hold stays held; a revolute joint with torque begins where it is measured."""
    armed(served).close()
    servo, goal = blocked(served, ident)
    arms = connected(served)
    goals = goals_seen(served, servo)
    arms.arm()
    grip = arms.read(time.monotonic).gripper_goals[1]
    if ident == 9:
        assert set(goals) == {goal}
        assert grip == pytest.approx(FOLLOWER.opening(table.angle_of_ticks(goal)))
    else:
        assert servo.get(table.GOAL_POSITION) == servo.get(table.PRESENT_POSITION) != goal
    arms.close()


def test_a_gripper_that_has_restarted_begins_where_it_is_measured(served: Served) -> None:
    """Its torque and its goal are lost, and so is what it held; the other gripper keeps its own."""
    arms = armed(served)
    servo, goal = blocked(served, 9)
    kept = arms.read(time.monotonic).gripper_goals[0]
    served.lines["right"].fault("restart", 9)
    arms.read(time.monotonic)
    arms.restore()
    state = arms.read(time.monotonic)
    assert servo.get(table.GOAL_POSITION) == servo.get(table.PRESENT_POSITION) != goal
    assert state.gripper_goals == pytest.approx([kept, state.position[-1]], abs=2e-3)
    arms.close()


def test_nothing_is_sent_to_sound_arms_by_restoring(served: Served) -> None:
    arms = armed(served)
    arms.read(time.monotonic)
    sent: list[Packet] = []
    served.before = lambda line, packet: sent.append(packet)
    arms.restore()
    assert not sent
    arms.close()


def test_restoring_gives_no_torque_to_arms_without(served: Served) -> None:
    arms = armed(served)
    arms.disarm()
    served.lines["left"].fault("restart", 1)
    arms.read(time.monotonic)
    arms.restore()
    assert served.values(table.TORQUE_ENABLE) == {0}
    arms.close()


def test_a_restarted_joint_that_stands_elsewhere_is_named_and_needs_a_second_try(
    served: Served,
) -> None:
    arms = armed(served)
    arms.read(time.monotonic)
    served.lines["left"].fault("restart", 1)
    arms.read(time.monotonic)
    fallen = served.positions()
    fallen[0] += 0.4
    served.place(fallen)
    with pytest.raises(
        RobotNotReadyError, match=r"left/waist \(id 1\) .* measures \+0.40. rad, \+0.40. rad from"
    ):
        arms.restore()
    state = arms.read(time.monotonic)
    assert state.servo_error[0]  # Still a fault.
    assert not served.lines["left"].servos[1].torque
    arms.restore()
    assert not arms.read(time.monotonic).servo_error.any()
    assert served.farthest.max() <= STILL_RAD
    arms.close()


def test_gains_and_forces_after_a_restart_are_those_of_the_connection(served: Served) -> None:
    servos = served.lines["left"].servos
    tuned = {register: 40 + place for place, register in enumerate(KEPT)}
    for ident in (1, 9):
        for register, value in tuned.items():
            servos[ident].set(register, value)
    arms = armed(served, gripper_force_n=6.0)
    served.lines["left"].fault("restart", 0)
    assert servos[1].get(table.POSITION_P_GAIN) == 800
    arms.read(time.monotonic)
    arms.restore()
    assert {register: servos[1].get(register) for register in tuned} == tuned
    chosen = servos[9].get(table.GOAL_CURRENT)
    assert chosen not in (tuned[table.GOAL_CURRENT], servos[9].get(table.CURRENT_LIMIT))
    assert servos[9].get(table.GOAL_PWM) == tuned[table.GOAL_PWM]
    arms.close()


def test_profiles_of_another_program_are_cleared_before_torque(served: Served) -> None:
    for register in (table.PROFILE_VELOCITY, table.PROFILE_ACCELERATION):
        served.lines["right"].servos[4].set(register, 30)
    arms = armed(served)
    assert served.values(table.PROFILE_VELOCITY) == {0}
    assert served.values(table.PROFILE_ACCELERATION) == {0}
    assert_sound(served, arms)
    arms.close()


@pytest.mark.parametrize("value", [1, 2])
def test_a_servo_that_starts_with_torque_or_with_old_lists_is_refused(
    served: Served, value: int
) -> None:
    """Its restart would not show."""
    served.lines["left"].servos[6].set(table.STARTUP, value)
    with pytest.raises(
        RobotNotReadyError, match=rf"left/forearm_roll .* Startup Configuration is {value}; exp"
    ):
        served.driver().connect()


@pytest.mark.parametrize("register", [table.OPERATING_MODE, table.DRIVE_MODE, table.CURRENT_LIMIT])
def test_a_servo_that_was_set_otherwise_since_the_connection_is_refused(
    served: Served, register: table.Register
) -> None:
    arms = connected(served)
    servo = served.lines["left"].servos[9]
    servo.set(register, servo.get(register) ^ 1)
    with pytest.raises(RobotNotReadyError, match=rf"left/gripper .* {register.name} is"):
        arms.arm()
    assert served.values(table.TORQUE_ENABLE) == {0}
    arms.close()


def test_watchdogs_watch_again_after_restoring_and_after_a_refusal(served: Served) -> None:
    arms = armed(served, bus_watchdog_s=0.1)
    assert served.values(table.BUS_WATCHDOG) == {5}
    served.lines["left"].fault("restart", 0)
    arms.read(time.monotonic)
    arms.restore()
    assert served.values(table.BUS_WATCHDOG) == {5}
    served.lines["left"].fault("overload", 4)
    arms.read(time.monotonic)
    with pytest.raises(RobotNotReadyError, match=r"left/elbow \(id 4\) .* reports overload"):
        arms.restore()
    assert served.values(table.BUS_WATCHDOG) == {5}
    assert arms.read(time.monotonic).servo_error[3] & table.HardwareError.OVERLOAD
    arms.close()


def test_a_joint_stopped_by_its_watchdog_stays_there(served: Served) -> None:
    arms = armed(served, bus_watchdog_s=0.1)
    servo = served.lines["left"].servos[1]
    servo.pass_time(0.2)
    servo.set(table.GOAL_POSITION, servo.get(table.GOAL_POSITION) + 300)  # It was on its way.
    assert arms.read(time.monotonic).servo_error[0]
    arms.restore()
    assert_sound(served, arms)
    arms.close()


def test_a_homing_offset_is_advised_only_if_eeprom_can_be_the_cause(served: Served) -> None:
    servos = served.lines["left"].servos
    servos[3].set(table.HOMING_OFFSET, 150)
    served.arms.sense()
    arms = served.driver()
    arms.connect()
    with pytest.raises(
        RobotNotReadyError, match=r"shoulder shadow .* Homing Offset is 150; 0 would bring it"
    ):
        arms.arm()
    arms.close()
    servos[3].set(table.HOMING_OFFSET, 0)
    served.arms.sense()
    served._moves = False  # The measurement is not that of the world.
    servos[3].set(table.PRESENT_POSITION, servos[3].get(table.PRESENT_POSITION) - 1422)
    arms = served.driver()
    arms.connect()
    with pytest.raises(RobotNotReadyError, match=r"Homing Offset is 0 and not the cause"):
        arms.arm()
    arms.close()


@pytest.fixture
def led() -> Iterator[Served]:
    lines = Served(WIDOWX, GRIPPER_SERVOS["interbotix_leader"])
    yield lines
    lines.close()


def test_leaders_that_restart_are_named_and_are_set_up_again_without_torque(led: Served) -> None:
    served = led
    arms = served.leaders()
    arms.connect()
    before = arms.read(time.monotonic)
    served.lines["right"].fault("restart", 9)
    state = arms.read(time.monotonic)
    assert np.flatnonzero(state.servo_error & RESTARTED).tolist() == [17]
    assert np.array_equal(state.position, before.position)  # Not nearly closed.
    written: list[Packet] = []
    served.before = lambda line, packet: written.append(packet)
    arms.restore()
    writes = {Instruction.WRITE, Instruction.SYNC_WRITE}
    addresses = {
        int.from_bytes(packet.parameters[:2], "little")
        for packet in written
        if packet.instruction in writes
    }
    assert addresses == {table.INDIRECT_ADDRESS.address, table.RESTART_MARK.address}
    state = arms.read(time.monotonic)
    assert not state.servo_error.any()
    assert np.abs(state.position - before.position).max() < table.TICK_RAD
    served.lines["left"].servos[7].set(table.TORQUE_ENABLE, 1)
    served.lines["left"].fault("restart", 4)
    arms.read(time.monotonic)
    with pytest.raises(RobotNotReadyError, match=r"left/wrist_angle \(id 7\) .* has torque"):
        arms.restore()
    arms.close()


def test_a_lost_port_is_opened_again_and_its_arm_compared_with_what_it_was(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = armed(served)
    arms.read(time.monotonic)
    bus = arms._pair.arms[0].bus
    bus.lost = True
    bus.close()
    assert arms.read(time.monotonic).lost.tolist() == [True, False]
    monkeypatch.setattr(bus, "port", "/dev/ttyDXL_gone")
    with pytest.raises(RobotNotReadyError, match="/dev/ttyDXL_gone cannot be opened"):
        arms.restore()
    assert arms.read(time.monotonic).lost.tolist() == [True, False]
    monkeypatch.setattr(bus, "port", served.ports["left"])
    moved = served.positions()
    moved[0] += 0.3
    served.place(moved)
    served.lines["left"].servos[1].stay()
    with pytest.raises(RobotNotReadyError, match=r"left/waist .* rad from its last position"):
        arms.restore()
    arms.restore()
    state = arms.read(time.monotonic)
    assert not state.lost.any()
    assert not state.servo_error.any()
    arms.close()


def test_a_servo_forgets_ram_at_a_restart_and_keeps_eeprom_and_what_it_measures() -> None:
    for kind in (*VIPERX, *WIDOWX):
        servo = EmulatedServo(kind, 0.2)
        eeprom = bytes(servo._memory[: table.EEPROM_END])
        fresh = bytes(EmulatedServo(kind, 0.2)._memory[table.EEPROM_END :])
        for address in range(table.EEPROM_END, len(servo._memory)):
            servo._memory[address] ^= 0x5A
        servo.sense(0.2, 0.0, 0.0)
        servo.set(table.INPUT_VOLTAGE, 120)
        servo.set(table.TEMPERATURE, 35)
        servo.reboot()
        after = bytearray(servo._memory)
        assert bytes(after[: table.EEPROM_END]) == eeprom
        same = bytearray(fresh)
        goal = table.GOAL_POSITION.address - table.EEPROM_END
        same[goal : goal + 4] = bytes(4)
        for register in (table.POSITION_TRAJECTORY, table.VELOCITY_TRAJECTORY):
            at = register.address - table.EEPROM_END
            same[at : at + 4] = after[register.address : register.address + 4]
        assert bytes(after[table.EEPROM_END :]) == bytes(same)


def test_a_write_through_a_lost_list_changes_only_data() -> None:
    servo = EmulatedServo(WIDOWX[0])
    pointer = table.TORQUE_ENABLE.address.to_bytes(2, "little")
    assert not servo.write(table.INDIRECT_ADDRESS.address, pointer)
    assert not servo.write(table.INDIRECT_DATA.address, b"\x01")
    assert servo.torque
    servo.reboot()
    assert not servo.write(table.INDIRECT_DATA.address, b"\x01")
    assert not servo.torque
    assert servo.read(table.INDIRECT_DATA.address, 1) == b"\x01"


@pytest.mark.slow
def test_answers_that_are_lost_on_the_way_are_asked_for_again(served: Served) -> None:
    """Every fifth read of several servos lacks the answer of one, as on a noisy line."""
    arms = connected(served, answer_timeout_s=0.05)
    line = served.lines["left"]
    reads = 0

    def noise(packet_line: EmulatedLine, packet: Packet) -> None:
        nonlocal reads
        if packet_line is line:
            reads += packet.instruction == Instruction.SYNC_READ
            line.fault("mute" if reads % 5 == 1 else "unmute", 4)
            if packet.instruction != Instruction.SYNC_READ:
                line.fault("unmute", 4)

    served.before = noise
    arms.arm()
    served.before = lambda line, packet: None
    line.fault("unmute", 4)
    assert reads > 3
    assert_sound(served, arms)
    arms.close()


def test_a_servo_that_does_not_keep_the_list_is_named_before_torque(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = connected(served)
    servo = served.lines["right"].servos[7]
    write = servo.write

    def forgets(address: int, data: bytes) -> StatusError:
        if address == table.INDIRECT_ADDRESS.address:
            data = bytes(len(data))
        return write(address, data)

    monkeypatch.setattr(servo, "write", forgets)
    with pytest.raises(RobotNotReadyError, match=r"right/wrist_angle .* has not kept the list"):
        arms.arm()
    assert served.values(table.TORQUE_ENABLE) == {0}
    arms.close()


def test_a_joint_that_moves_before_torque_is_refused(served: Served) -> None:
    arms = connected(served)
    pushed = served.positions() + 0.05

    def push(line: EmulatedLine, packet: Packet) -> None:
        if packet.instruction == Instruction.SYNC_WRITE:
            served.place(pushed)

    served.before = push
    with pytest.raises(RobotNotReadyError, match=r"left/waist .* moves, by 0.0.. rad"):
        arms.arm()
    assert served.values(table.TORQUE_ENABLE) == {0}
    served.before = lambda line, packet: None
    arms.arm()
    arms.close()


def packets_of_arming(served: Served) -> int:
    """Returns how many packets one bring-up of the left arm takes."""
    arms = connected(served)
    count = 0

    def note(line: EmulatedLine, packet: Packet) -> None:
        nonlocal count
        count += line is served.lines["left"]

    served.before = note
    arms.arm()
    served.before = lambda line, packet: None
    arms.disarm()
    arms.close()
    return count


@pytest.mark.slow
@pytest.mark.parametrize("ident", [1, 3, 0])
def test_a_restart_at_any_packet_of_arming_moves_nothing_and_torque_goes_on_where_all_is_set(
    served: Served, ident: int
) -> None:
    line = served.lines["left"]
    total = packets_of_arming(served)
    assert total > 200
    last = range(total - 14, total)
    for at in [*range(0, total - 14, 29), *last]:
        arms = connected(served)
        seen = 0

        def restart(packet_line: EmulatedLine, packet: Packet, at: int = at) -> None:
            nonlocal seen
            if packet_line is line:
                seen += 1
                if seen == at + 1:
                    line.fault("restart", ident)

        served.before = restart
        refused = refusal(arms)
        if refused:
            assert any("left/" in problem for problem in refused)
        else:
            state = arms.read(time.monotonic)
            assert not state.servo_error[9:].any()
            # A restart after the last check is a fault in the first cycle.
            fine = not state.servo_error.any()
            assert fine or (state.servo_error & RESTARTED).any()
            assert fine == all(servo.torque for servo in line.servos.values())
        served.before = lambda line, packet: None
        for _ in range(3):
            served.advance()
        assert served.farthest.max() <= STILL_RAD, at
        for _ in range(2):
            arms.read(time.monotonic)
            if not refusal(arms):
                break
        assert_sound(served, arms)
        arms.disarm()
        arms.close()


def test_an_adapter_that_comes_back_under_another_name_is_named_and_nothing_moves() -> None:
    """Also where its new name is that of the other arm."""
    with closing(Served(moves=True)) as served:
        arms = armed(served)
        served.watch()
        bus = arms._pair.arms[0].bus
        bus.lost = True
        bus.close()
        for port, message in (
            ("/dev/ttyUSB7", "/dev/ttyUSB7 cannot be opened.*Check that the adapter is plugged in"),
            (served.ports["right"], f"{served.ports['right']} .*another program"),
        ):
            bus.port = port
            with pytest.raises(RobotNotReadyError, match=message):
                arms.restore()
            assert arms.read(time.monotonic).lost.tolist() == [True, False]
        assert served.farthest.max() < 1e-3
        bus.port = served.ports["left"]
        arms.restore()
        assert not arms.read(time.monotonic).lost.any()
        assert served.farthest.max() < 1e-3
        arms.close()
