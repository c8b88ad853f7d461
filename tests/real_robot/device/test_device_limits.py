"""The device process with hostile streams: commands on the wire stay within the limits."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.real_robot.conftest import goals_in

from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.reasons import Mode

Vector = NDArray[np.float64]

PERIOD = 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)


def process(
    emulator: Emulator, *, lock_step: bool = False, limits: SafetyLimits = LIMITS
) -> DeviceProcess:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    return DeviceProcess(driver, ALOHA, limits, lock_step=lock_step)


def chunk(target: Vector, start: float, count: int = 100) -> ActionChunk:
    return ActionChunk(
        start + 0.02 * np.arange(count, dtype=np.float64),
        np.tile(target, (count, 1)).astype(np.float32),
    )


def moved(index: int, by: float) -> Vector:
    q = ALOHA.home.copy()
    q[index] += by
    return q


def goals_in_files(folder: Path) -> list[Vector]:
    """Returns the goals (T, 7) received by each arm: rad, and opening of the gripper."""
    return [goals_in((folder / f"{arm}.bin").read_bytes()) for arm in ALOHA.arms]


def assert_within_limits(path: Vector, joints: slice) -> None:
    """Goals are rounded to ticks: half a tick per position, one per step, two per change of it."""
    tick = np.full(7, table.TICK_RAD)
    tick[6] = 0.9 * table.TICK_RAD  # The linkage opens by at most 0.9 per radian.
    at_rest_before = np.concatenate([path[:1], path])
    assert (path >= LIMITS.lower[joints] - tick / 2 - 1e-9).all()
    assert (path <= LIMITS.upper[joints] + tick / 2 + 1e-9).all()
    assert (np.abs(np.diff(path, axis=0)) <= LIMITS.velocity[joints] * PERIOD + tick).all()
    assert (
        np.abs(np.diff(at_rest_before, n=2, axis=0))
        <= LIMITS.acceleration[joints] * PERIOD**2 + 2 * tick
    ).all()


def hostile_chunks(random: np.random.Generator, now: float) -> ActionChunk:
    """Draws something that no policy should send, or just something wild."""
    count = int(random.integers(1, 60))
    due = now + 0.02 * np.arange(count, dtype=np.float64)
    action = random.uniform(-4, 4, (count, 14))
    match int(random.integers(0, 9)):
        case 0:
            action[random.integers(count), random.integers(14)] = np.nan
        case 1:
            action[random.integers(count), random.integers(14)] = np.inf
        case 2:
            action *= 1e30
        case 3:
            due = np.zeros(count)
        case 4:
            due = due - 50.0
        case 5:
            due = due + 50.0
        case 6:
            action[:] = action[0]
        case 7:
            due = now + 0.001 * np.arange(count, dtype=np.float64)
        case _:
            action = np.where(np.arange(count)[:, None] % 2, ALOHA.lower, ALOHA.upper)
    return ActionChunk(due, action.astype(np.float32))


@pytest.mark.slow
def test_no_hostile_stream_exceeds_the_limits_on_the_wire(
    waiting_emulator: Emulator, tmp_path: Path
) -> None:
    random, faults, held = np.random.default_rng(0), 0, 0
    with process(waiting_emulator, lock_step=True) as device:
        device.connect()
        device.arm()
        waiting_emulator.begin(0)
        device.begin()
        for cycle in range(1500):
            state = device.observe(cycle * PERIOD)
            held = held + 1 if state.mode is Mode.FAULT else 0
            if (
                held > 60
            ):  # The operator looks first; an episode begins where the arms have come to rest.
                faults += 1
                device.begin()
            if random.random() < 0.15:
                device.send(hostile_chunks(random, cycle * PERIOD))
            state = device.act()
            assert np.isfinite(state.command).all()
            waiting_emulator.advance(dict(zip(device.arms, state.writes.tolist(), strict=True)))
    assert faults > 0
    for index, path in enumerate(goals_in_files(tmp_path)):
        assert len(path) == 1501
        assert np.ptp(path, axis=0).min() > 0.1  # Something did move.
        assert_within_limits(path, slice(7 * index, 7 * index + 7))


@pytest.mark.slow
def test_a_soft_start_is_slow_on_the_wire(waiting_emulator: Emulator, tmp_path: Path) -> None:
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=2.0)
    with process(waiting_emulator, lock_step=True, limits=limits) as device:
        device.connect()
        device.arm()
        waiting_emulator.begin(0)
        device.begin()
        device_path = []
        for cycle in range(40):
            device.observe(cycle * PERIOD)
            device.send(chunk(moved(0, 2.0), cycle * PERIOD))
            state = device.act()
            device_path.append(state.command[0])
            waiting_emulator.advance(dict(zip(device.arms, state.writes.tolist(), strict=True)))
    speeds = np.abs(np.diff(goals_in_files(tmp_path)[0][:, 0])) / PERIOD
    assert speeds.max() > 0.3
    assert speeds.max() <= np.pi * (0.1 + 0.9 * 0.4 / 2.0) + table.TICK_RAD / PERIOD
