"""The device process with hostile streams and faults: commands on the wire stay in the limits."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import stringline
from stringline import ALOHA, ActionChunk, SafetyLimits
from stringline.real_robot.device.device_process import DeviceError, DeviceProcess, braked_after
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.drivers.dynamixel import control_table as table
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.dynamixel.control_table import VIPERX
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.execution.lock_step import explain_fault, fault_of
from stringline.real_robot.safety.reasons import Mode, Reason

Vector = NDArray[np.float64]

PERIOD = 0.01
LIMITS = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
HINGES = np.concatenate([ALOHA.revolute_joints[arm] for arm in ALOHA.arms])
GRIPPERS = np.array([ALOHA.grippers[arm] for arm in ALOHA.arms])


# A program that starts a device process, prints its number and does nothing more.
OWNER = """
import sys, time
sys.path.insert(0, {root!r})
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.safety.limits import SafetyLimits
driver = AlohaDriver({ports!r}, bus_watchdog_s=0.0, answer_timeout_s=0.2)
device = DeviceProcess(driver, ALOHA, SafetyLimits.of(ALOHA, cartesian_speed=None))
device.connect()
device.arm()
print(device.pid, flush=True)
time.sleep(60)
"""


def process(
    emulator: Emulator, *, lock_step: bool = False, limits: SafetyLimits = LIMITS
) -> DeviceProcess:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    return DeviceProcess(driver, ALOHA, limits, lock_step=lock_step)


@pytest.fixture
def device(emulator: Emulator) -> Iterator[DeviceProcess]:
    with process(emulator) as running:
        running.connect()
        running.arm()
        running.begin()
        yield running


def wait_for(device: DeviceProcess, wanted: Callable[[DeviceState], bool]) -> DeviceState:
    deadline = time.monotonic() + 20.0
    while not wanted(state := device.latest()):
        assert time.monotonic() < deadline, f"{state.mode!r} {state.reasons!r}"
        time.sleep(0.005)
    return state


def chunk(target: Vector, start: float, count: int = 100) -> ActionChunk:
    return ActionChunk(
        start + 0.02 * np.arange(count, dtype=np.float64),
        np.tile(target, (count, 1)).astype(np.float32),
    )


def moved(index: int, by: float) -> Vector:
    q = ALOHA.home.copy()
    q[index] += by
    return q


@pytest.mark.slow
def test_a_chunk_for_another_embodiment_is_refused_by_the_mailbox(device: DeviceProcess) -> None:
    with pytest.raises(ValueError, match=r"shape \(5, 13\); allowed: up to 256 actions of 14"):
        device.send(ActionChunk(np.arange(5.0), np.zeros((5, 13), np.float32)))


@pytest.mark.slow
def test_a_plan_is_followed_and_its_end_is_a_hold(device: DeviceProcess) -> None:
    device.send(chunk(moved(0, 0.3), time.monotonic(), count=40))
    state = wait_for(device, lambda state: abs(state.arms.position[0] - 0.3) < 2 * table.TICK_RAD)
    # On a busy machine, a late cycle may be a hold before.
    state = wait_for(device, lambda state: state.reasons == Reason.STARVED)
    assert state.mode is Mode.HOLD
    assert abs(state.command[0] - 0.3) < 1e-6


@pytest.mark.slow
def test_without_any_plan_the_arms_stay_where_they_are(device: DeviceProcess) -> None:
    state = wait_for(device, lambda state: state.tick > 20)
    assert state.mode is Mode.HOLD
    assert np.abs(state.command - ALOHA.home).max() < table.TICK_RAD


@pytest.mark.slow
def test_bad_chunks_are_a_fault_that_a_new_episode_resets_once_acknowledged(
    device: DeviceProcess,
) -> None:
    for _ in range(LIMITS.fault_after_rejects):
        device.send(chunk(np.full(14, np.nan), time.monotonic()))
        time.sleep(0.03)
    state = wait_for(device, lambda state: state.mode is Mode.FAULT)
    assert state.fault_reasons == Reason.BAD_CHUNK
    for _ in range(2):
        device.begin()
        assert device.latest().mode is Mode.FAULT
    assert "a chunk was rejected" in " ".join(fault_of(device))
    device.begin()
    assert fault_of(device) == []
    device.send(chunk(moved(0, 0.1), time.monotonic()))
    wait_for(device, lambda state: state.mode is Mode.RUN)


@pytest.mark.slow
def test_chunks_of_the_episode_before_are_refused(device: DeviceProcess) -> None:
    device.send(chunk(moved(0, 0.2), time.monotonic()))
    wait_for(device, lambda state: state.mode is Mode.RUN)
    device.begin()
    wait_for(device, lambda state: state.session == 2 and state.mode is Mode.HOLD)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "servo", "reason", "words"),
    [
        ("drop", 0, Reason.LINK_LOST, "the port of an arm is lost (left)."),
        ("overload", 4, Reason.SERVO_ERROR, "left/elbow (id 4): torque is off, overload"),
    ],
)
def test_a_fault_of_the_robot_latches(
    emulator: Emulator, device: DeviceProcess, kind: str, servo: int, reason: Reason, words: str
) -> None:
    device.send(chunk(moved(7, 0.5), time.monotonic()))
    wait_for(device, lambda state: state.mode is Mode.RUN)
    emulator.fault("left", kind, servo)
    state = wait_for(device, lambda state: state.mode is Mode.FAULT)
    assert state.fault_reasons & reason
    assert words in " ".join(explain_fault(state, device))
    wait_for(device, lambda later: later.tick > state.tick + 20)
    before = device.latest().command
    device.send(chunk(moved(7, -0.5), time.monotonic()))
    time.sleep(0.1)
    assert np.array_equal(device.latest().command, before)
    assert device.alive


@pytest.mark.slow
def test_a_silent_servo_makes_the_arms_hold_until_it_answers(emulator: Emulator) -> None:
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.05)
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
    with DeviceProcess(driver, ALOHA, limits) as device:
        device.connect()
        device.arm()
        device.begin()
        emulator.fault("right", "mute", 6)
        state = wait_for(device, lambda state: bool(state.reasons & Reason.SERVO_SILENT))
        emulator.fault("right", "unmute", 6)
        assert state.mode in (Mode.HOLD, Mode.FAULT)
        named = [
            name
            for name, misses in zip(device.servos, state.arms.servo_misses, strict=True)
            if misses
        ]
        assert "right/forearm_roll (id 6)" in named


@pytest.mark.slow
def test_a_robot_that_differs_from_its_configuration_is_refused_with_all_problems(
    emulator: Emulator,
) -> None:
    emulator.fault("left", "mute", 4)
    emulator.fault("right", "mute", 9)
    with process(emulator) as device, pytest.raises(RobotNotReadyError) as refused:
        device.connect()
    assert [problem.split(" on ")[0] for problem in refused.value.problems] == [
        "left/elbow (id 4)",
        "right/gripper (id 9)",
    ]


@pytest.mark.slow
def test_a_dead_owner_leaves_no_process_behind(emulator: Emulator) -> None:
    root = str(Path(stringline.__file__).parents[1])
    script = OWNER.format(root=root, ports=emulator.ports)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert _runs(child)
        owner.kill()
    deadline = time.monotonic() + 20.0
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_killed_device_process_is_noticed(device: DeviceProcess) -> None:
    number = device.pid
    assert number is not None
    os.kill(number, signal.SIGKILL)
    deadline = time.monotonic() + 20.0
    while device.alive:
        assert time.monotonic() < deadline
    with pytest.raises(DeviceError, match="died; standard error has its last messages"):
        device.latest()
    with pytest.raises(DeviceError, match="died"), braked_after(device):
        pass  # Nobody brakes the arms.
    with pytest.raises(KeyboardInterrupt), braked_after(device):
        raise KeyboardInterrupt
    with pytest.raises(DeviceError, match="died|ended"):
        device.begin()


@pytest.mark.slow
def test_every_servo_of_the_table_is_in_the_state(device: DeviceProcess) -> None:
    state = device.latest()
    assert len(state.arms.servo_error) == len(device.servos) == 2 * len(VIPERX)
    assert len(HINGES) + len(GRIPPERS) == len(state.command)
