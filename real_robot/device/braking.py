"""Context managers that brake the arms at the end of a block, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stringline.real_robot.device.device_process import DeviceError, DeviceProcess
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.safety.reasons import Mode


@contextmanager
def braked_after(device: DeviceProcess) -> Iterator[None]:
    """Brakes the arms at the end of the block, also after an error or Ctrl-C."""
    with braked_on_error(device):
        yield
    brake(device)


@contextmanager
def braked_on_error(device: DeviceProcess) -> Iterator[None]:
    """Brakes the arms if the block ends by an error or Ctrl-C."""
    try:
        yield
    except BaseException:
        with suppress(DeviceError, RobotNotReadyError):
            brake(device)
        raise


def brake(device: DeviceProcess) -> None:
    """Drops the plan in force. A fault stays: the arms hold, and only an operator resets it."""
    device.hold()
    if device.latest().mode is not Mode.FAULT:
        device.begin()
