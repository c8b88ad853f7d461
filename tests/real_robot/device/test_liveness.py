"""A device process that stands still: the owner sees it at once and waits for nothing."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.real_robot.moving_arms import ROBOTS, moving_arms, wait

from stringline.real_robot.device.braking import brake
from stringline.real_robot.device.device_process import DeviceError
from stringline.real_robot.execution.lock_step import explain_fault
from stringline.real_robot.safety.reasons import Mode, Reason

SHOWN_S = 0.2


@pytest.mark.parametrize("robot", ROBOTS)
def test_a_frozen_device_process_is_a_fault_and_nothing_waits_for_it(
    robot: str, tmp_path: Path
) -> None:
    with moving_arms(robot, tmp_path) as arms:
        device = arms.device
        assert device.pid is not None
        os.kill(device.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        while device.latest().mode is not Mode.FAULT:
            time.sleep(0.001)
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
