"""A device process that stands still: the owner sees it at once and waits for nothing."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.real_robot.moving_arms import (
    PERIOD,
    ROBOTS,
    backend_of,
    brisk_limits,
    moving_arms,
    wait,
)

from stringline.real_robot.device import device_process
from stringline.real_robot.device.device_process import DeviceError, DeviceProcess, brake
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.safety.reasons import Mode, Reason

SHOWN_S = 0.2


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_a_frozen_device_process_is_a_fault_and_nothing_waits_for_it(
    robot: str, tmp_path: Path
) -> None:
    with moving_arms(robot, tmp_path) as arms:
        device = arms.device
        assert device.pid is not None
        os.kill(device.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        wait(lambda: device.latest().mode is Mode.FAULT)
        shown = time.monotonic() - stopped
        state = device.latest()
        assert state.fault_reasons == Reason.DEVICE_SILENT
        assert "the device process does not respond" in " ".join(explain_fault(state, device))
        brake(device)
        with pytest.raises(DeviceError, match="does not answer.*emergency stop"):
            device.begin()
        device.close()
        assert time.monotonic() - stopped < 15.0
    assert shown <= SHOWN_S


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arm", "disarm", "close"])
def test_requests_to_a_frozen_device_process_end_soon(name: str, tmp_path: Path) -> None:
    with connected(tmp_path) as device:
        if name == "disarm":
            device.arm()
        time.sleep(3.0)  # Without torque the process beats, too.
        assert device.silence_s < 1.0
        assert device.pid is not None
        os.kill(device.pid, signal.SIGSTOP)
        begin = time.monotonic()
        if name != "close":
            with pytest.raises(DeviceError, match="does not answer.*emergency stop"):
                getattr(device, name)()
            assert time.monotonic() - begin < 5.0
        device.close()
        assert time.monotonic() - begin < 15.0


@pytest.mark.slow
def test_a_process_that_is_frozen_before_its_first_beat_ends_the_connection_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_process, "_START_S", 3.0)
    begin = time.monotonic()
    with unconnected(tmp_path) as device, ThreadPoolExecutor(1) as owner:
        connecting = owner.submit(device.connect)
        wait(lambda: device.pid is not None)
        assert device.pid is not None
        os.kill(device.pid, signal.SIGSTOP)
        with pytest.raises(DeviceError, match="does not answer.*emergency stop"):
            connecting.result(15.0)
        device.close()
        assert time.monotonic() - begin < 15.0


@contextmanager
def connected(folder: Path) -> Iterator[DeviceProcess]:
    """Starts a device process of emulated ALOHA arms without torque."""
    with unconnected(folder) as device:
        device.connect()
        yield device


@contextmanager
def unconnected(folder: Path) -> Iterator[DeviceProcess]:
    """Makes the device process of emulated ALOHA arms."""
    backend = backend_of("aloha")
    with backend.bare_emulator(capture=folder) as emulator:
        driver = backend.driver(
            emulator.ports, period_s=PERIOD, lock_step=False, read_only=False, still_grippers=True
        )
        limits = brisk_limits(backend)
        with DeviceProcess(driver, backend.embodiment, limits) as device:
            yield device


@pytest.mark.slow
def test_a_hold_needs_no_answer(tmp_path: Path) -> None:
    with moving_arms("aloha", tmp_path) as arms:
        device = arms.device
        wait(lambda: device.latest().mode is Mode.RUN)
        device.hold()
        wait(lambda: device.latest().reasons == Reason.STARVED)
        held = device.latest().command
        tick = device.latest().tick
        arms.swing()
        wait(lambda: device.latest().tick > tick + 20)
        assert device.latest().mode is Mode.HOLD
        assert device.latest().command == pytest.approx(held, abs=0.05)
        assert arms.violations() == 0
        device.begin()
        arms.swing()
        wait(lambda: device.latest().mode is Mode.RUN)
