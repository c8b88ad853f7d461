"""Armed followers for tests of deployments."""

from collections.abc import Iterator

import pytest

from stringline import ALOHA, SafetyLimits
from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.emulators.program.emulator_client import Emulator


@pytest.fixture
def armed_device(emulator: Emulator) -> Iterator[DeviceProcess]:
    """The device process of emulated ALOHA arms, armed, without a limit of Cartesian speed."""
    driver = AlohaDriver(emulator.ports, bus_watchdog_s=0.0, answer_timeout_s=0.2)
    limits = SafetyLimits.of(ALOHA, cartesian_speed=None, soft_start_s=0.0)
    with DeviceProcess(driver, ALOHA, limits) as running:
        running.connect()
        running.arm()
        yield running
