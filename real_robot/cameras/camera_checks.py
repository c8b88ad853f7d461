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
            said = (
                f"{settings.driver.value} {identity.serial}, {identity.width}x{identity.height} "
                f"at {identity.hz:g} Hz"
            )
            note(", ".join(filter(None, (said, identity.words))))
            if settings.driver is not CameraDriver.EMULATED:  # A busy machine may draw late.
                note(f"; {demand_rate(handle):.1f} Hz measured")
            if calibration is not None and settings.name in calibration.cameras:
                emulated = (
                    settings.driver is CameraDriver.EMULATED
                )  # Its images are drawn in whatever size somebody wants.
                size = None if emulated else (identity.height, identity.width)
                note("; " + calibration.demand(settings.name, identity.serial, size))
            elif calibration is not None:
                note("; " + UNKNOWN)


def demand_rate(handle: CameraHandle) -> float:
    """Measures how many images a second a camera brings.

    Raises:
        CameraError: Far fewer than it promised.
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
            f"it brings {measured:.1f} images a second; configured are {hz:g}. In little light "
            f"automatic exposure takes "
            "longer; on a hub, cameras share its bandwidth."
        )
    return measured


class CameraWords:
    """Says when the arms begin to hold because a camera shows nothing new, and when they see again.

    Args:
        names: Of the cameras.
        say: Shows a line.
    """

    def __init__(self, names: Sequence[str], say: Callable[[str], None]) -> None:
        self._names = tuple(names)
        self._say = say
        self._tick = -1
        self._since = 0.0
        self._silent: tuple[str, ...] = ()

    def note(self, states: Sequence[DeviceState]) -> None:
        """Takes recent states, oldest first; those that were taken before are left out."""
        for state in states:
            if state.tick <= self._tick:
                continue
            self._tick = state.tick
            silent = tuple(old_cameras(state.old_cameras, self._names))
            if silent and silent != self._silent:
                self._since = self._since if self._silent else state.arms.time
                self._say(f"The arms hold: {', '.join(silent)} shows nothing new.")
            elif self._silent and not silent:
                self._say(f"The cameras see again, after {state.arms.time - self._since:.1f} s.")
            self._silent = silent
