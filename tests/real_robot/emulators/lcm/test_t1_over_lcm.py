"""The limit of T1 over LCM, by the clock: the controller stops a fast arm, and not a slow one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.real_robot.moving_arms import PERIOD, swing, wait

from stringline.datasets.embodiments.iiwa14 import IIWA14
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.emulators.program.emulator_client import LcmEmulator
from stringline.real_robot.safety.limits import kuka_limits
from stringline.real_robot.safety.reasons import Mode, Reason

MOVED_S = 2.0


@contextmanager
def moving(cartesian_speed: float | None) -> Iterator[tuple[LcmEmulator, DeviceProcess]]:
    """Lets the first axis of an emulated arm in T1 swing at up to 1.5 rad/s."""
    limits = kuka_limits(
        IIWA14, cartesian_speed=cartesian_speed, soft_start_s=0.0, acceleration=10.0
    )
    with LcmEmulator() as emulator:
        driver = LcmDriver(emulator.ports, period_s=PERIOD)
        with DeviceProcess(driver, IIWA14, limits) as device:
            device.connect()
            device.arm()
            device.begin()
            device.send(swing(IIWA14.home))
            yield emulator, device


@pytest.mark.slow
def test_an_arm_above_250_mm_per_s_is_stopped_and_the_fault_is_shown() -> None:
    with moving(None) as (emulator, device):
        wait(lambda: bool(emulator.report()["arm"].stops))
        (stop,) = emulator.report()["arm"].stops
        assert stop.startswith("the gripper was to move at 0.")
        assert stop.endswith("m/s; T1: 0.25")
        wait(lambda: device.latest().mode is Mode.FAULT)
        assert Reason.STOPPED in device.latest().fault_reasons
        position = device.latest().arms.position[:7]
        time.sleep(0.5)
        assert device.latest().arms.position[:7] == pytest.approx(position, abs=0.02)


@pytest.mark.slow
def test_an_arm_within_the_limit_of_the_shipped_configuration_is_not_stopped() -> None:
    with moving(0.24) as (emulator, device):
        start = device.latest().command[0]
        wait(lambda: abs(device.latest().command[0] - start) > 0.1, device)
        time.sleep(MOVED_S)
        assert emulator.report()["arm"].stops == ()
        assert device.latest().mode is not Mode.FAULT
