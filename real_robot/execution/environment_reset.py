"""A new world behind emulated arms while their device process runs by the clock."""

from collections.abc import Mapping

from stringline.real_robot.device.device_process import DeviceProcess
from stringline.real_robot.emulators.fri.fri_client import FriEmulator
from stringline.real_robot.emulators.lcm.lcm_client import LcmEmulator
from stringline.real_robot.emulators.program.emulator_client import Emulator
from stringline.real_robot.safety.reasons import Reason


def begin_world(
    emulator: Emulator, device: DeviceProcess, seed: int, options: Mapping[str, float]
) -> None:
    """Makes the world of that seed.

    Arms with controllers of their own are taken out of their motions by that, which is a fault. So
    they are let go before, and armed again where they then stand. What the old world leaves behind
    is cleared when the next episode begins.

    Args:
        emulator: Of the arms, by the clock.
        device: Armed.
        seed: Of the world.
        options: Of the task.

    Raises:
        RobotNotReadyError: A controller does not take commands again.
    """
    if isinstance(emulator, FriEmulator | LcmEmulator):
        device.begin()  # Brakes.
        device.disarm()
        emulator.begin(seed, options)
        device.arm()
    else:
        emulator.begin(seed, options)
    device.told = ~Reason(0)  # Whoever asks for a new world knows that the old one has ended.
