"""Checks of cameras before arms move, and messages about cameras that make the arms hold."""

import time
from collections.abc import Callable, Sequence

from stringline.real_robot.cameras.calibration_file import UNKNOWN, Calibration
from stringline.real_robot.cameras.camera import CameraError
from stringline.real_robot.cameras.camera_handle import CameraHandle
from stringline.real_robot.cameras.camera_settings import CameraDriver
from stringline.real_robot.cameras.cameras import Cameras
from stringline.real_robot.device.device_state import DeviceState
from stringline.real_robot.ipc.camera_liveness import Count
from stringline.real_robot.operator.checklist import Checklist
from stringline.real_robot.safety.reasons import old_cameras

_IMAGES = 10
_SLOWEST_SHARE = 0.8


def check_cameras(cameras: Cameras, checklist: Checklist, calibration: Calibration | None) -> None:
    """Waits for each camera and checks it against its configuration and calibration.

    The cameras are started, but without automatic restarts, which would hide failures.
    """
    for handle in cameras.handles:
        settings = handle.settings
        with checklist.check(f"camera {settings.name}") as note:
            identity = handle.wait(cameras.start_s)
            text = (
                f"{settings.driver.value} {identity.serial}, {identity.width}x{identity.height} "
                f"at {identity.hz:g} Hz"
            )
            kept = ", ".join(f"{name} {value:g}" for name, value in identity.controls.items())
            note(", ".join(filter(None, (text, identity.description, kept))))
            if settings.driver is not CameraDriver.EMULATED:  # A busy machine may draw late.
                note(f"; {check_rate(handle):.1f} Hz measured")
            if calibration is not None and settings.name in calibration.cameras:
                # Emulated images are drawn in any requested size.
                emulated = settings.driver is CameraDriver.EMULATED
                size = None if emulated else (identity.height, identity.width)
                note("; " + calibration.check(settings.name, identity.serial, size))
            elif calibration is not None:
                note("; " + UNKNOWN)


def check_rate(handle: CameraHandle) -> float:
    """Measures the rate of a camera and returns it, images per second.

    Raises:
        CameraError: The rate is less than 80 percent of the configured one.
    """
    hz = handle.settings.hz
    first = handle.count(Count.IMAGES)
    began = handle.captured
    deadline = time.monotonic() + 3 * _IMAGES / hz + 0.5
    while handle.count(Count.IMAGES) < first + _IMAGES and time.monotonic() < deadline:
        time.sleep(0.2 / hz)
    came = handle.count(Count.IMAGES) - first
    seconds = handle.captured - began
    measured = came / seconds if seconds > 0 else 0.0
    if measured < _SLOWEST_SHARE * hz:
        raise CameraError(
            f"it delivers {measured:.1f} images per second; configured are {hz:g}. Automatic "
            f"exposure slows it down in low light, and cameras on a hub share its bandwidth."
        )
    return measured


class CameraReport:
    """Reports when the arms hold for lack of new images, and when these arrive again."""

    def __init__(self, names: Sequence[str], report: Callable[[str], None]) -> None:
        self._names = tuple(names)
        self._report = report
        self._tick = -1
        self._since = 0.0
        self._silent: tuple[str, ...] = ()

    def note(self, states: Sequence[DeviceState]) -> None:
        """Reports changes in recent states, oldest first, each state once."""
        for state in states:
            if state.tick <= self._tick:
                continue
            self._tick = state.tick
            silent = tuple(old_cameras(state.old_cameras, self._names))
            if silent and silent != self._silent:
                self._since = self._since if self._silent else state.arms.time
                self._report(f"The arms hold: no new images from {', '.join(silent)}.")
            elif self._silent and not silent:
                seconds = state.arms.time - self._since
                self._report(f"All cameras deliver images again, after {seconds:.1f} s.")
            self._silent = silent
