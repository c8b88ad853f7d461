"""Resets the environment of emulated arms while their device process runs in real time."""

from collections.abc import Mapping
from typing import Any

from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.emulators.lcm.lcm_client import LcmEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator


def reset_environment(
    emulator: Emulator, device: DeviceProcess, seed: int, options: Mapping[str, Any]
) -> None:
    """Begins the world of a seed.

    A reset moves the arms, which interrupts the motion of arms with their own controllers and so is
    a fault. So these are disarmed before, and armed again where they then stand. The next episode
    clears faults of the old world.
    """
    if isinstance(emulator, FriEmulator | LcmEmulator):
        device.begin()  # Brakes.
        device.disarm()
        emulator.begin(seed, options)
        device.arm()
    else:
        emulator.begin(seed, options)
    device.new_world = True
