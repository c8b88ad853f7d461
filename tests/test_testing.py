"""Our readers and drivers pass the checks that `stringline.testing` has for those of others."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.datasets.formats.small_sets import READERS, VARIANTS

from stringline.real_robot.driver_interface.driver import ArmDriver
from stringline.real_robot.drivers.dynamixel.aloha_driver import AlohaDriver
from stringline.real_robot.drivers.fri.fri_driver import FriDriver
from stringline.real_robot.drivers.lcm.lcm_driver import LcmDriver
from stringline.real_robot.drivers.lcm.lcm_link import DEFAULT_ADDRESS
from stringline.testing import check_driver, check_reader

DRIVERS: dict[str, Callable[[], ArmDriver]] = {
    "aloha": lambda: AlohaDriver({"left": "/dev/none_left", "right": "/dev/none_right"}),
    "lcm": lambda: LcmDriver({"arm": DEFAULT_ADDRESS}),
    "fri": lambda: FriDriver({"arm": "127.0.0.1:30200"}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_readers(tmp_path: Path, name: str) -> None:
    of, write = VARIANTS[name]
    check_reader(READERS[of], write(tmp_path))


@pytest.mark.parametrize("name", DRIVERS)
def test_drivers(name: str) -> None:
    check_driver(DRIVERS[name]())
