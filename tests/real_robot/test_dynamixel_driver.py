"""The ALOHA driver over pseudo-terminals, against servos that are silent, broken, wrong or gone."""

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.drivers.driver import WATCHDOG_EXPIRED, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.aloha import AlohaDriver
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError, claim, gather, sync_read
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet, Parser
from stringline.real_robot.emulators.client import Emulator
from stringline.real_robot.limits import SafetyLimits
from stringline.real_robot.safety import SafetyFilter

TICK = table.TICK_RAD


def driver(emulator: Emulator) -> AlohaDriver:
    return AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)


def packets(folder: Path, arm: str) -> list[Packet]:
    return Parser().feed((folder / f"{arm}.bin").read_bytes())


def test_it_reads_what_the_arms_do(emulator: Emulator) -> None:
    arms = driver(emulator)
    arms.connect()
    state = arms.read(lambda: 12.5)
    arms.close()
    assert state.time == 12.5
    assert np.abs(state.position - ALOHA.home).max() < TICK
    assert not state.servo_error.any()
    assert not state.servo_misses.any()
    assert not state.lost.any()
    assert len(arms.servos) == 18
    assert arms.servos[4] == "left/elbow shadow (id 5)"


def test_goals_are_where_the_arms_stand_before_torque_comes_on(waiting_emulator: Emulator, tmp_path: Path) -> None:
    arms = driver(waiting_emulator)
    arms.connect()
    arms.arm()
    arms.close()
    for index, arm in enumerate(ALOHA.arms):
        seen = packets(tmp_path, arm)
        goal = next(i for i, p in enumerate(seen) if p.instruction == Instruction.SYNC_WRITE)
        torque = [i for i, p in enumerate(seen) if p.instruction == Instruction.WRITE and p.parameters[:2] == b"\x40\x00"]
        assert goal < min(torque)
        written = seen[goal].parameters[4:]
        angles = [
            table.angle_of_ticks(int.from_bytes(written[at + 1 : at + 5], "little", signed=True)) for at in range(0, 35, 5)
        ]
        assert np.abs(np.array(angles[:6]) - ALOHA.home[7 * index :][:6]).max() < TICK
        assert [seen[i].ident for i in torque] == [1, 2, 4, 6, 7, 8, 9]


def test_shadows_are_never_written(waiting_emulator: Emulator, tmp_path: Path) -> None:
    arms = driver(waiting_emulator)
    arms.connect()
    arms.arm()
    arms.close()
    for arm in ALOHA.arms:
        writes = [packet for packet in packets(tmp_path, arm) if packet.instruction == Instruction.WRITE]
        assert writes
        assert not {packet.ident for packet in writes} & {3, 5}


def test_it_writes_nothing_but_safe_commands(emulator: Emulator) -> None:
    arms = driver(emulator)
    arms.connect()
    arms.arm()
    for forged in (np.zeros(14), ALOHA.home.tolist(), None):
        with pytest.raises(TypeError, match="Only a SafeCommand made by the SafetyFilter"):
            arms.write(forged)  # type: ignore[arg-type]
    assert arms.writes.tolist() == [0, 0]
    arms.close()


def test_a_silent_servo_costs_its_own_answer_only(emulator: Emulator) -> None:
    arms = AlohaDriver(emulator.ports, answer_timeout_s=0.05)
    arms.connect()
    emulator.fault("left", "mute", 4)
    arms.read(time.monotonic)
    state = arms.read(time.monotonic)
    arms.close()
    assert state.servo_misses.tolist() == [0, 0, 0, 2] + [0] * 14
    assert np.abs(state.position - ALOHA.home).max() < TICK  # The last value is kept: neither zero nor -pi.


def test_a_broken_checksum_costs_one_answer_and_is_counted(emulator: Emulator) -> None:
    emulator.fault("right", "corrupt", 6)
    bus = Bus(emulator.ports["right"])
    bus.open()
    answers = sync_read({bus: range(1, 10)}, table.PRESENT_POSITION.address, 4, 0.1)[bus]
    bus.close()
    assert sorted(answers) == [1, 2, 3, 4, 5, 7, 8, 9]
    assert bus.crc_errors == 1


def test_an_overload_is_seen_in_the_next_cycle_and_says_which_servo(emulator: Emulator) -> None:
    arms = driver(emulator)
    arms.connect()
    arms.arm()
    emulator.fault("right", "overload", 7)
    state = arms.read(time.monotonic)
    assert state.servo_error[9 + 6] & table.HardwareError.OVERLOAD
    assert np.count_nonzero(state.servo_error) == 1
    with pytest.raises(RobotNotReadyError, match=r"right/wrist_angle \(id 7\) .* reports torque is off, overload|overload"):
        arms.arm()
    arms.close()


def test_a_pulled_cable_is_a_lost_link_and_the_other_arm_goes_on(emulator: Emulator) -> None:
    arms = driver(emulator)
    arms.connect()
    arms.arm()
    before = arms.read(time.monotonic)
    safety = SafetyFilter(ALOHA, SafetyLimits.of(ALOHA), 0.01)
    safety.start(before, 0)
    emulator.fault("left", "drop")
    state = arms.read(time.monotonic)
    assert state.lost.tolist() == [True, False]
    assert np.array_equal(state.position[:7], before.position[:7])
    arms.write(safety.step(None, state, 0.0))
    assert arms.writes.tolist() == [0, 1]
    arms.close()


def test_a_hanging_line_is_silent_but_not_lost(emulator: Emulator) -> None:
    arms = AlohaDriver(emulator.ports, answer_timeout_s=0.05)
    arms.connect()
    emulator.fault("left", "hang")
    start = time.monotonic()
    state = arms.read(time.monotonic)
    assert time.monotonic() - start < 5.0
    heard = state.time
    assert arms.read(time.monotonic).time <= heard  # Nobody has said anything new of the left arm.
    assert (state.servo_misses[:9] == 1).all()
    assert not state.servo_misses[9:].any()
    assert not state.lost.any()
    arms.close()


def test_a_port_belongs_to_one_program(emulator: Emulator) -> None:
    first, second = Bus(emulator.ports["left"]), Bus(emulator.ports["left"])
    first.open()
    with pytest.raises(ValueError, match="in use by another program"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_claimed_terminal_is_nobody_elses() -> None:
    """As any other program would open it. Root may, so it is opened by somebody else."""
    far, near = os.openpty()
    name = os.ttyname(near)
    os.chmod(name, 0o666)
    somebody = 65534 if os.getuid() == 0 else None
    for claimed in (False, True):
        if claimed:
            claim(near)
        opening = ["/bin/sh", "-c", f": <> {name}"]
        done = subprocess.run(opening, capture_output=True, text=True, check=False, user=somebody, group=somebody)
        assert (done.returncode != 0) == claimed
        assert ("busy" in done.stderr) == claimed
    os.close(near)
    os.close(far)


def test_the_shortest_watchdog_is_one(waiting_emulator: Emulator) -> None:
    """A register of 0 would be none at all."""
    arms = AlohaDriver(waiting_emulator.ports, bus_watchdog_s=0.001, answer_timeout_s=0.2)
    arms.connect()
    arms.arm()
    for _ in range(4):
        waiting_emulator.advance({})
    assert (arms.read(time.monotonic).servo_error == WATCHDOG_EXPIRED).all()
    arms.close()


def test_missing_ports_are_all_named() -> None:
    arms = AlohaDriver({"left": "/dev/no_such_left", "right": "/dev/no_such_right"})
    with pytest.raises(RobotNotReadyError, match=r"no_such_left cannot be opened: No such file.*\n.*no_such_right"):
        arms.connect()


SET_OTHERWISE = [
    (table.DRIVE_MODE, 0, r"left/shoulder \(id 2\) .*: Drive Mode is 0; expected is 1"),
    (table.OPERATING_MODE, 4, "Operating Mode is 4; expected is 3"),
    (table.RETURN_DELAY, 250, "Return Delay Time is 250; allowed: 0 to 10, of 2 us each"),
    (table.SHUTDOWN, 0, "Shutdown is 0; expected is 52"),
    (table.PROFILE_VELOCITY, 100, "Profile Velocity is 100; expected is 0"),
    (table.PROFILE_ACCELERATION, 20, "Profile Acceleration is 20; expected is 0"),
    (table.SECONDARY_ID, 7, "Secondary .Shadow. ID is 7; expected is 255"),
    (table.MAX_POSITION, 2500, "position limits are -1.8.. to 0.6.. rad; the joint's are -1.850 to 1.257 rad"),
]


def test_a_servo_that_is_set_otherwise_is_refused(emulator: Emulator) -> None:
    bus = Bus(emulator.ports["left"])
    for register, value, message in SET_OTHERWISE:
        bus.open()
        before = bus.read_register(2, register)
        assert before is not None
        bus.write_register(2, register, value)
        bus.close()
        with pytest.raises(RobotNotReadyError, match=message):
            driver(emulator).connect()
        bus.open()
        bus.write_register(2, register, before)
        bus.close()
    sound = driver(emulator)
    sound.connect()
    sound.close()


def test_a_servo_that_refuses_says_why(emulator: Emulator) -> None:
    bus = Bus(emulator.ports["left"])
    bus.open()
    with pytest.raises(ValueError, match="refuses Torque Enable = 2: data range"):
        bus.write_register(1, table.TORQUE_ENABLE, 2)
    with pytest.raises(ValueError, match="Servo 77 .* does not answer"):
        bus.write_register(77, table.TORQUE_ENABLE, 1)
    bus.close()


def test_waiting_on_a_dead_bus_ends_at_once(emulator: Emulator) -> None:
    bus = Bus(emulator.ports["left"])
    bus.open()
    emulator.fault("left", "drop")
    assert gather({bus: [1]}, 30.0) == {bus: {}}
    assert bus.lost
    with pytest.raises(LinkLostError, match="is lost"):
        bus.send(protocol.ping(1))
    bus.close()


def test_a_watchdog_that_expired_is_seen(waiting_emulator: Emulator) -> None:
    arms = AlohaDriver(waiting_emulator.ports, bus_watchdog_s=0.1, answer_timeout_s=0.2)
    arms.connect()
    arms.arm()
    assert not arms.read(time.monotonic).servo_error.any()
    for _ in range(12):
        waiting_emulator.advance({})
    assert (arms.read(time.monotonic).servo_error == WATCHDOG_EXPIRED).all()
    arms.close()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("twin", r"left/elbow \(id 4\) on .*: 2 servos answer to this id. Plug in each alone and give it the id"),
        ("collide", r"left/elbow \(id 4\) on .*: its answer is garbled. Either two servos have this id, or the line is noisy"),
    ],
)
def test_two_servos_of_one_id_are_refused(emulator: Emulator, kind: str, message: str) -> None:
    emulator.fault("left", kind, 4)
    with pytest.raises(RobotNotReadyError, match=message) as refused:
        driver(emulator).connect()
    assert len(refused.value.problems) == 1
