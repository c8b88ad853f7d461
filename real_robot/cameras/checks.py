"""What is looked at about cameras before arms move, a line each."""

import time

from stringline.real_robot.cameras.calibration import UNKNOWN, Calibration
from stringline.real_robot.cameras.camera import CameraError
from stringline.real_robot.cameras.cameras import Cameras
from stringline.real_robot.cameras.handle import CameraHandle
from stringline.real_robot.cameras.liveliness import Count
from stringline.real_robot.cameras.settings import CameraDriver
from stringline.real_robot.checklist import Checklist

_PICTURES = 10
_SLOWEST_SHARE = 0.8


def check_cameras(cameras: Cameras, checklist: Checklist, calibration: Calibration | None) -> None:
    """Waits for each camera and compares it with its configuration and, if there is one, with its calibration.

    Args:
        cameras: Started, not yet looked after: what fails now is to be seen.
        checklist: Shows what was found.
        calibration: Where the cameras were measured to be.
    """
    for handle in cameras.handles:
        settings = handle.settings
        with checklist.check(f"camera {settings.name}") as note:
            identity = handle.wait(cameras.start_s)
            said = f"{settings.driver.value} {identity.serial}, {identity.width}x{identity.height} at {identity.hz:g} Hz"
            note(", ".join(filter(None, (said, identity.words))))
            if settings.driver is not CameraDriver.EMULATED:  # A busy machine may draw late.
                note(f"; {demand_rate(handle):.1f} Hz measured")
            if calibration is not None and settings.name in calibration.cameras:
                emulated = settings.driver is CameraDriver.EMULATED  # Its pictures are drawn in whatever size somebody wants.
                size = None if emulated else (identity.height, identity.width)
                note("; " + calibration.demand(settings.name, identity.serial, size))
            elif calibration is not None:
                note("; " + UNKNOWN)


def demand_rate(handle: CameraHandle) -> float:
    """Measures how many pictures a second a camera brings.

    Raises:
        CameraError: Far fewer than it promised.
    """
    hz = handle.settings.hz
    first, began, deadline = handle.count(Count.PICTURES), handle.captured, time.monotonic() + 3 * _PICTURES / hz + 0.5
    while handle.count(Count.PICTURES) < first + _PICTURES and time.monotonic() < deadline:
        time.sleep(0.2 / hz)
    came, seconds = handle.count(Count.PICTURES) - first, handle.captured - began
    measured = came / seconds if seconds > 0 else 0.0
    if measured < _SLOWEST_SHARE * hz:
        raise CameraError(
            f"it brings {measured:.1f} pictures a second; configured are {hz:g}. In little light automatic exposure takes "
            "longer; on a hub, cameras share its bandwidth."
        )
    return measured
