"""The ALOHA driver over pseudo-terminals, against servos that are silent, broken, wrong or gone."""

import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.real_robot.served_arms import Served

from stringline import ALOHA, SafetyFilter, SafetyLimits
from stringline.real_robot.driver_interface.driver import WATCHDOG_EXPIRED, RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel import protocol
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.bus import Bus, LinkLostError, claim, gather, sync_read
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Packet, Parser
from stringline.real_robot.emulators.program.emulator_client import Emulator

TICK = table.TICK_RAD


@pytest.fixture
def served() -> Iterator[Served]:
    lines = Served()
    yield lines
    lines.close()


def driver(emulator: Emulator) -> AlohaDriver:
    return AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)


def packets(folder: Path, arm: str) -> list[Packet]:
    return Parser().feed((folder / f"{arm}.bin").read_bytes())


def test_it_reads_the_state_of_the_arms(served: Served) -> None:
    arms = served.driver()
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


def test_goals_are_the_measured_positions_before_torque_is_on(
    waiting_emulator: Emulator, tmp_path: Path
) -> None:
    arms = driver(waiting_emulator)
    arms.connect()
    arms.arm()
    arms.close()
    for index, arm in enumerate(ALOHA.arms):
        seen = packets(tmp_path, arm)
        goal = next(i for i, p in enumerate(seen) if p.instruction == Instruction.SYNC_WRITE)
        torque = [
            i
            for i, p in enumerate(seen)
            if p.instruction == Instruction.WRITE and p.parameters == b"\xe0\x00\x01"
        ]
        assert goal < min(torque)
        written = seen[goal].parameters[4:]
        angles = [
            table.angle_of_ticks(int.from_bytes(written[at + 1 : at + 5], "little", signed=True))
            for at in range(0, 35, 5)
        ]
        assert np.abs(np.array(angles[:6]) - ALOHA.home[7 * index :][:6]).max() < TICK
        assert [seen[i].ident for i in torque] == [1, 2, 4, 6, 7, 8, 9]


def test_shadows_are_never_written(waiting_emulator: Emulator, tmp_path: Path) -> None:
    arms = driver(waiting_emulator)
    arms.connect()
    arms.arm()
    arms.close()
    for arm in ALOHA.arms:
        writes = [
            packet for packet in packets(tmp_path, arm) if packet.instruction == Instruction.WRITE
        ]
        assert writes
        assert not {packet.ident for packet in writes} & {3, 5}


def test_it_writes_only_safe_commands(served: Served) -> None:
    arms = served.driver()
    arms.connect()
    arms.arm()
    for forged in (np.zeros(14), ALOHA.home.tolist(), None):
        with pytest.raises(TypeError, match="Only a SafeCommand made by the SafetyFilter"):
            arms.write(forged)  # type: ignore[arg-type]
    assert arms.writes.tolist() == [0, 0]
    arms.close()


def test_a_silent_servo_loses_only_its_own_answer(served: Served) -> None:
    arms = served.driver(answer_timeout_s=0.05)
    arms.connect()
    served.lines["left"].fault("mute", 4)
    arms.read(time.monotonic)
    state = arms.read(time.monotonic)
    arms.close()
    assert state.servo_misses.tolist() == [0, 0, 0, 2] + [0] * 14
    assert (
        np.abs(state.position - ALOHA.home).max() < TICK
    )  # The last value is kept: neither zero nor -pi.


def test_a_wrong_checksum_loses_one_answer_and_is_counted(served: Served) -> None:
    served.lines["right"].fault("corrupt", 6)
    bus = Bus(served.ports["right"])
    bus.open()
    answers = sync_read({bus: range(1, 10)}, table.PRESENT_POSITION.address, 4, 0.1)[bus]
    bus.close()
    assert sorted(answers) == [1, 2, 3, 4, 5, 7, 8, 9]
    assert bus._parser.crc_errors == 1


def test_an_overload_is_reported_in_the_next_cycle_with_its_servo(served: Served) -> None:
    arms = served.driver()
    arms.connect()
    arms.arm()
    served.lines["right"].fault("overload", 7)
    state = arms.read(time.monotonic)
    assert state.servo_error[9 + 6] & table.HardwareError.OVERLOAD
    assert np.count_nonzero(state.servo_error) == 1
    with pytest.raises(
        RobotNotReadyError,
        match=r"right/wrist_angle \(id 7\) .* reports torque is off, overload|overload",
    ):
        arms.arm()
    arms.close()


def test_a_pulled_cable_is_a_lost_link_and_the_other_arm_continues(emulator: Emulator) -> None:
    arms = driver(emulator)
    arms.connect()
    arms.arm()
    before = arms.read(time.monotonic)
    safety = SafetyFilter(ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None), 0.01)
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
    assert arms.read(time.monotonic).time <= heard  # The left arm has sent no new state.
    assert (state.servo_misses[:9] == 1).all()
    assert not state.servo_misses[9:].any()
    assert not state.lost.any()
    arms.close()


def test_a_port_belongs_to_one_program(served: Served) -> None:
    first, second = Bus(served.ports["left"]), Bus(served.ports["left"])
    first.open()
    with pytest.raises(ValueError, match="in use by another program"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_claimed_terminal_is_exclusive() -> None:
    """Root may open a claimed terminal, so another user opens it."""
    far, near = os.openpty()
    name = os.ttyname(near)
    os.chmod(name, 0o666)
    somebody = 65534 if os.getuid() == 0 else None
    for claimed in (False, True):
        if claimed:
            claim(near)
        opening = ["/bin/sh", "-c", f": <> {name}"]
        done = subprocess.run(
            opening, capture_output=True, text=True, check=False, user=somebody, group=somebody
        )
        assert (done.returncode != 0) == claimed
        assert ("busy" in done.stderr) == claimed
    os.close(near)
    os.close(far)


def test_the_shortest_watchdog_is_one(waiting_emulator: Emulator) -> None:
    """A register of 0 would switch the watchdog off."""
    arms = AlohaDriver(waiting_emulator.ports, bus_watchdog_s=0.001, answer_timeout_s=0.2)
    arms.connect()
    arms.arm()
    for _ in range(4):
        waiting_emulator.advance({})
    assert (arms.read(time.monotonic).servo_error == WATCHDOG_EXPIRED).all()
    arms.close()


def test_missing_ports_are_all_named() -> None:
    arms = AlohaDriver({"left": "/dev/no_such_left", "right": "/dev/no_such_right"})
    with pytest.raises(
        RobotNotReadyError, match=r"no_such_left cannot be opened: No such file.*\n.*no_such_right"
    ):
        arms.connect()


SET_OTHERWISE = [
    (2, table.DRIVE_MODE, 0, "Drive Mode is 0; expected is 1."),
    (2, table.OPERATING_MODE, 4, "Operating Mode is 4; expected is 3."),
    (2, table.RETURN_DELAY, 250, "Return Delay Time is 250; allowed: 0 to 10, of 2 us each."),
    (2, table.SHUTDOWN, 0, "Shutdown is 0; expected is 52."),
    (2, table.STARTUP, 2, "Startup Configuration is 2; expected is 0."),
    (2, table.SECONDARY_ID, 7, "Secondary (Shadow) ID is 7; expected is 255."),
    (
        2,
        table.MAX_POSITION,
        2500,
        "its position limits are -1.852 to 0.693 rad; the joint's are -1.850 to 1.257 rad.",
    ),
    (4, table.MODEL_NUMBER, 1020, "it is a XM430-W350; expected is a XM540-W270."),
    (6, table.MODEL_NUMBER, 7, "it is a model 7; expected is a XM540-W270."),
    (7, table.STATUS_RETURN_LEVEL, 1, "Status Return Level is 1; expected is 2."),
    (8, table.FIRMWARE, 37, "its firmware is 37; the bus watchdog needs 38 or later."),
    (9, table.CURRENT_LIMIT, 200, "Current Limit is 200; expected is 300."),
]


def test_servos_with_other_settings_are_refused_with_all_problems(served: Served) -> None:
    servos = served.lines["left"].servos
    before = [servos[ident].get(register) for ident, register, _, _ in SET_OTHERWISE]
    for ident, register, value, _ in SET_OTHERWISE:
        servos[ident].set(register, value)
    with pytest.raises(RobotNotReadyError) as refused:
        served.driver().connect()
    found = {tuple(problem.partition(": ")[::2]) for problem in refused.value.problems}
    names = {servo.ident: f"left/{servo.joint} (id {servo.ident})" for servo in VIPERX}
    assert {(where.partition(" on ")[0], what) for where, what in found} == {
        (names[ident], message) for ident, _, _, message in SET_OTHERWISE
    }
    for (ident, register, _, _), value in zip(SET_OTHERWISE, before, strict=True):
        servos[ident].set(register, value)
    sound = served.driver()
    sound.connect()
    sound.close()


def test_a_lost_answer_is_read_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = served.lines["left"]
    receive, lost = line.receive, []

    def lossy(data: bytes) -> bytes:
        request = protocol.read(9, table.MODEL_NUMBER.address, table.MODEL_NUMBER.size)
        if data == request and not lost:
            lost.append(data)
            return b""
        return receive(data)

    monkeypatch.setattr(line, "receive", lossy)
    arms = served.driver()
    arms.connect()
    arms.close()
    assert lost
    # On a busy machine, answers of other servos may be late, too.
    (warning,) = [message for message in caplog.messages if message.startswith("Servo 9 on ")]
    assert warning.endswith("Model Number has not been read; attempt 1 of 3.")


def test_problems_between_connecting_and_arming_are_refused_before_torque(
    served: Served,
) -> None:
    arms, line = served.driver(answer_timeout_s=0.02), served.lines["left"]
    arms.connect()
    line.fault("mute", 4)
    with pytest.raises(RobotNotReadyError, match=r"left/elbow \(id 4\) on .* does not answer"):
        arms.arm()
    line.fault("unmute", 4)
    upper = line.servos[2].get(table.MAX_POSITION)
    line.servos[2].set(table.MAX_POSITION, 900)
    with pytest.raises(RobotNotReadyError, match=r"left/shoulder \(id 2\) .* position limits are"):
        arms.arm()
    line.servos[2].set(table.MAX_POSITION, upper)
    home = line.servos[2].get(table.PRESENT_POSITION)
    for ident in (2, 3):
        line.servos[ident].set(table.PRESENT_POSITION, upper + 30)
    with pytest.raises(
        RobotNotReadyError,
        match=r"left/shoulder \(id 2\) .* refuses its position, 1.302 rad, as its goal",
    ):
        arms.arm()
    for ident in (2, 3):
        line.servos[ident].set(table.PRESENT_POSITION, home)
    assert served.values(table.TORQUE_ENABLE) == {0}
    arms.arm()
    assert served.values(table.TORQUE_ENABLE) == {1}
    arms.close()


def test_watchdogs_begin_with_torque_and_end_with_the_driver_which_leaves_torque_on(
    served: Served,
) -> None:
    arms = served.driver(bus_watchdog_s=0.1)
    arms.connect()
    assert served.values(table.BUS_WATCHDOG) == {0}
    arms.arm()
    assert served.values(table.BUS_WATCHDOG) == {5}
    arms.close()
    assert served.values(table.BUS_WATCHDOG) == {0}
    assert served.values(table.TORQUE_ENABLE) == {1}


def test_only_new_answers_of_the_read_servos_count() -> None:
    far, near = os.openpty()
    bus, question, answer = Bus(os.ttyname(near)), protocol.ping(1), protocol.status(1, 0, bytes(4))
    bus.open()
    os.write(far, answer)
    assert select.select([bus], [], [], 5.0)[0]
    bus.send(question)
    assert gather({bus: [1]}, 0.05) == {bus: {}}  # It came before the request.
    bus.send(question)
    os.write(far, question + protocol.status(7, 0, bytes(4)))  # An echo, and another servo.
    assert gather({bus: [1]}, 0.05) == {bus: {}}
    bus.send(question)
    os.write(far, answer)
    assert gather({bus: [1]}, 5.0) == {bus: {1: Packet(1, Instruction.STATUS, bytes(5))}}
    with pytest.raises(LinkLostError, match="is lost: it accepts no more bytes"):
        bus.send(bytes(1 << 20))
    assert bus.lost
    bus.close()
    os.close(near)
    os.close(far)


def test_an_answer_without_the_read_registers_is_dropped(served: Served) -> None:
    bus = Bus(served.ports["left"])
    bus.open()
    assert sync_read({bus: [1]}, 250, 4, 5.0) == {
        bus: {}
    }  # The servo has no such registers and answers so at once.
    bus.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ports": {"lefft": "/dev/null", "right": "/dev/null"}},
            "There is no arm 'lefft'. Did you mean 'left'",
        ),
        ({"ports": {"left": "/dev/null"}}, "There is no port for the arm 'right'"),
        ({"bus_watchdog_s": 3.0}, r"bus_watchdog_s is 3.0; allowed: 0 to 2.54 s"),
        (
            {"baud_rate": 9600},
            "A baud rate of 9600 is not supported; allowed: 57600, 115200, 1000000",
        ),
    ],
)
def test_impossible_settings_of_a_line_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AlohaDriver(**{"ports": {"left": "/dev/null", "right": "/dev/null"}, **changes})


def test_a_refused_write_is_reported_with_its_reason(served: Served) -> None:
    bus = Bus(served.ports["left"])
    bus.open()
    with pytest.raises(ValueError, match="refuses Torque Enable = 2: data range"):
        bus.write_register(1, table.TORQUE_ENABLE, 2)
    with pytest.raises(ValueError, match="Servo 77 .* does not answer"):
        bus.write_register(77, table.TORQUE_ENABLE, 1)
    bus.close()


def test_waiting_for_a_lost_bus_ends_at_once(emulator: Emulator) -> None:
    bus = Bus(emulator.ports["left"])
    bus.open()
    emulator.fault("left", "drop")
    assert gather({bus: [1]}, 30.0) == {bus: {}}
    assert bus.lost
    with pytest.raises(LinkLostError, match="is lost"):
        bus.send(protocol.ping(1))
    bus.close()


def test_an_expired_watchdog_is_reported(waiting_emulator: Emulator) -> None:
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
        (
            "twin",
            (
                r"left/elbow \(id 4\) on .*: 2 servos answer to this id. Plug in each alone and "
                r"give "
                r"it the id"
            ),
        ),
        (
            "collide",
            (
                r"left/elbow \(id 4\) on .*: its answer is garbled. Either two servos have this "
                r"id, "
                r"or the line is noisy"
            ),
        ),
    ],
)
def test_two_servos_of_one_id_are_refused(served: Served, kind: str, message: str) -> None:
    served.lines["left"].fault(kind, 4)
    with pytest.raises(RobotNotReadyError, match=message) as refused:
        served.driver().connect()
    assert len(refused.value.problems) == 1
