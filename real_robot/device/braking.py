"""What stops arms whatever ends the work that moves them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from stringline.real_robot.device.device_process import DeviceError, DeviceProcess
from stringline.real_robot.driver_interface.driver import RobotNotReadyError
from stringline.real_robot.safety.reasons import Mode


@contextmanager
def braked_after(device: DeviceProcess) -> Iterator[None]:
    """Whatever ends the block, an error or Ctrl-C too, the arms brake then instead of following the rest of their plan.

    Raises:
        DeviceError: The device process is gone, so that nobody brakes them; unless an error says
            already why the block ended.
    """
    with braked_on_error(device):
        yield
    brake(device)


@contextmanager
def braked_on_error(device: DeviceProcess) -> Iterator[None]:
    """The same where the block is left by an error, or by Ctrl-C."""
    try:
        yield
    except BaseException:
        with suppress(DeviceError, RobotNotReadyError):
            brake(device)
        raise


def brake(device: DeviceProcess) -> None:
    """Drops what the arms follow.

    A fault is left as it is: they hold already, and only a person may say that it is over.

    Raises:
        DeviceError: The device process is gone.
    """
    if device.latest().mode is not Mode.FAULT:
        device.begin()
