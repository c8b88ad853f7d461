"""Dry runs that send nothing, twins beside the arms, operator keys, limits files and adapters."""

import os
import pty
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stringline import ALOHA, ActionChunk, ArmState, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.device.dry_run import CommandLog
from stringline.real_robot.device.twin import Divergence, TwinnedDeviceProcess
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.bus import Bus
from stringline.real_robot.drivers.dynamixel.protocol import Instruction, Parser
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.operator.operator_keys import Key, TerminalKeys
from stringline.real_robot.robots.robot_factory import check_latency_timer, latency_timer_ms
from stringline.real_robot.safety.limits import merged_limits, read_limits
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]
PERIOD = 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)


def driver(emulator: Emulator, *, read_only: bool = False) -> AlohaDriver:
    return AlohaDriver(
        emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2, read_only=read_only
    )


def chunk(by: float, start: float, count: int = 100) -> ActionChunk:
    target = ALOHA.home.copy()
    target[0] += by
    return ActionChunk(
        start + 0.02 * np.arange(count, dtype=np.float64),
        np.tile(target, (count, 1)).astype(np.float32),
    )


@pytest.mark.slow
def test_in_a_dry_run_commands_are_computed_and_no_byte_of_a_goal_leaves(
    waiting_emulator: Emulator, tmp_path: Path
) -> None:
    log = CommandLog(ALOHA, tmp_path / "out" / "commands.csv")
    with DeviceProcess(
        driver(waiting_emulator, read_only=True), ALOHA, LIMITS, lock_step=True
    ) as device:
        device.connect()
        assert device.arm() == []
        waiting_emulator.begin(0)
        device.begin()
        told = device.latest()
        for cycle in range(60):
            device.observe(cycle * PERIOD)
            device.send(chunk(0.5, cycle * PERIOD))
            told = device.act()
            log.note(device.recent())
            waiting_emulator.advance(dict(zip(device.arms, told.writes.tolist(), strict=True)))
        with pytest.raises(
            RobotNotReadyError, match="The arms are only read; their torque stays as it is"
        ):
            device.disarm()
    log.close()
    assert told.mode is Mode.RUN
    assert told.command[0] == pytest.approx(0.5, abs=0.05)
    assert abs(told.arms.position[0]) < table.TICK_RAD
    assert told.writes.tolist() == [0, 0]
    for arm in ALOHA.arms:
        packets = Parser().feed((tmp_path / f"{arm}.bin").read_bytes())
        assert len(packets) > 100
        written = [
            packet for packet in packets if packet.instruction not in (1, 2, Instruction.SYNC_READ)
        ]
        addresses = {int.from_bytes(packet.parameters[:2], "little") for packet in written}
        assert {packet.instruction for packet in written} == {Instruction.WRITE}
        # Registers of the cyclic read, the mark of a restart among them.
        first = table.INDIRECT_ADDRESS.address
        assert first in addresses
        assert all(first <= each < first + 2 * table.INDIRECT_COUNT for each in addresses)
    rows = (tmp_path / "out" / "commands.csv").read_text().splitlines()
    assert rows[0].startswith("tick,time_s,mode,reasons,command/left/waist,")
    assert len(rows) == log.cycles + 1 == 61
    assert log.missed == 0
    output = log.summary()
    assert output[0] == "60 commands were computed and none was sent; 0 more were not seen."
    assert output[1].startswith("  left/waist           ")


def test_an_empty_command_log_is_reported() -> None:
    assert CommandLog(ALOHA).summary() == ["No command was computed."]


def state(tick: int, position: Vector) -> DeviceState:
    arms = ArmState(
        time=PERIOD * tick,
        position=position,
        velocity=np.zeros(14),
        effort=np.zeros(14),
        servo_error=np.zeros(18, np.uint8),
        servo_misses=np.zeros(18, np.int32),
        lost=np.zeros(2, np.bool_),
    )
    return DeviceState(
        0, tick, 0, Mode.RUN, Reason(0), Reason(0), {}, arms, position, np.zeros(2, np.int64)
    )


def test_missed_cycles_are_counted() -> None:
    log = CommandLog(ALOHA)
    log.note([state(tick, ALOHA.home) for tick in (1, 1, 2, 5)])
    log.note([state(tick, ALOHA.home) for tick in (2, 5, 6)])
    assert (log.cycles, log.missed) == (4, 2)


def test_a_divergence_is_that_of_the_same_moments() -> None:
    moving = [state(tick, ALOHA.home + 0.1 * tick) for tick in range(10)]
    late = [replace(one, arms=replace(one.arms, time=one.arms.time + PERIOD / 2)) for one in moving]
    divergence = Divergence(ALOHA)
    assert divergence.summary(0.0) == ["No states of the arms and of the twin have the same time."]
    divergence.note(moving, late)
    divergence.note(moving, late)  # No state counts twice.
    assert divergence.cycles == 9
    assert np.allclose(divergence.largest, 0.05)  # Half a period at 0.1 per period.
    assert np.allclose(divergence.typical, 0.05)
    bent = [
        replace(one, arms=replace(one.arms, position=one.arms.position + np.eye(14)[2]))
        for one in moving
    ]
    other = Divergence(ALOHA)
    other.note(moving, bent)
    assert "largest distance: left/elbow 1.000" in other.summary(0.0)[2]
    assert other.largest[3] == pytest.approx(0.0)


@pytest.mark.slow
def test_a_twin_gets_the_same_plans_and_equal_worlds_stay_together(
    emulator: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    divergence = Divergence(ALOHA)
    with (
        Emulator(plant="first_order") as world,
        TwinnedDeviceProcess(driver(emulator), ALOHA, LIMITS) as device,
        DeviceProcess(driver(world), ALOHA, LIMITS) as twin,
    ):
        device.twin = twin
        for one in (device, twin):
            one.connect()
            one.arm()
        device.begin()
        start = time.monotonic()
        device.send(chunk(0.6, start))
        while time.monotonic() < start + 1.0:
            time.sleep(0.1)
            divergence.note(device.recent(), twin.recent())
        assert device.latest().arms.position[0] == pytest.approx(0.6, abs=0.02)
        assert twin.latest().arms.position[0] == pytest.approx(0.6, abs=0.02)
        assert divergence.cycles > 30
        moving = divergence.largest[0]
        assert 0 < moving < 0.3  # Two loops that are not in step; at 3 rad/s a period is 0.03 rad.
        assert divergence.largest[1:].max() < 2 * table.TICK_RAD
        emulator.fault("left", "overload", 2)
        deadline = time.monotonic() + 20.0
        while device.latest().mode is not Mode.FAULT:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert twin.latest().mode is not Mode.FAULT
        twin.close()
        device.begin()
        assert device.twin is None
        assert "The run continues without the twin" in caplog.text


def test_shadows_that_diverge_from_their_masters_are_refused_before_torque(
    emulator: Emulator,
) -> None:
    bus = Bus(emulator.ports["left"])
    bus.open()
    bus.write_register(5, table.HOMING_OFFSET, 200)
    bus.close()
    arms = driver(emulator)
    arms.connect()
    with pytest.raises(
        RobotNotReadyError,
        match=r"left/elbow shadow \(id 5\) .* Homing Offset is 200; 0 would bring",
    ):
        arms.arm()
    assert not arms.read(time.monotonic).servo_error.any()
    arms.close()


@pytest.fixture
def terminal() -> Iterator[tuple[int, TerminalKeys]]:
    """Returns the writing end of a terminal, and the keys that are read from it."""
    typing, reading = pty.openpty()
    with os.fdopen(reading, "r") as stream, TerminalKeys(stream) as keys:
        yield typing, keys
    os.close(typing)


def test_keys_come_at_once_and_without_a_return(terminal: tuple[int, TerminalKeys]) -> None:
    typing, keys = terminal
    assert keys.available
    assert keys.pressed() is None
    os.write(typing, b"z Q")
    assert [keys.pressed(), keys.pressed(), keys.pressed()] == [Key.HOLD, Key.END, None]
    os.write(typing, b" r")
    assert keys.wait(Key.RESET, Key.END) is Key.RESET


def test_a_terminal_that_hangs_up_gives_the_end_key() -> None:
    typing, reading = pty.openpty()
    with os.fdopen(reading, "r") as stream, TerminalKeys(stream) as keys:
        os.close(typing)
        assert keys.pressed() is Key.END
        assert keys.wait(Key.HOLD) is Key.END


def test_without_a_terminal_no_key_comes_and_waiting_ends(tmp_path: Path) -> None:
    (tmp_path / "input").write_text(" q")
    with (tmp_path / "input").open() as stream, TerminalKeys(stream) as keys:
        assert not keys.available
        assert keys.pressed() is None
        assert keys.wait(Key.HOLD) is Key.END


def test_a_limits_file_overrules_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("table_height: 0.013\nspeed_share: 0.25\n")
    limits = merged_limits({"speed_share": 0.5, "margin_rad": 0.02}, file)
    assert limits == {"speed_share": 0.25, "margin_rad": 0.02, "table_height": 0.013}
    assert SafetyLimits.of(ALOHA, cartesian_speed=None, **limits).table_height == 0.013
    assert merged_limits({"margin_rad": 0.02}, None) == {"margin_rad": 0.02}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("a: [1", "is not valid YAML"),
        ("7", "must be a list of `name: value`"),
        ("tabel_height: 0.1", "There is no limit 'tabel_height'. Did you mean 'table_height'"),
        ("speed_share: 0.5", "lacks table_height. Measure the height of the table top"),
    ],
)
def test_a_wrong_limits_file_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "limits.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_limits(file)


def test_an_adapter_that_delays_bytes_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "ttyUSB3").write_text("")
    port = tmp_path / "dev" / "ttyDXL_follower_left"
    port.symlink_to("ttyUSB3")
    assert latency_timer_ms(str(port), tmp_path) is None
    assert check_latency_timer(str(port), tmp_path) == f"{port} not known"
    timer = tmp_path / "bus/usb-serial/devices/ttyUSB3/latency_timer"
    timer.parent.mkdir(parents=True)
    timer.write_text("16\n")
    with pytest.raises(
        ValueError,
        match=r"delays bytes by 16 ms.* sudo tee /sys/bus/usb-serial/devices/ttyUSB3",
    ):
        check_latency_timer(str(port), tmp_path)
    timer.write_text("1\n")
    assert check_latency_timer(str(port), tmp_path) == f"{port} 1 ms"
