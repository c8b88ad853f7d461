"""Exposure, gain, white balance, laser and focus of cameras: set, read back, and kept at restarts.

Cameras forget them when they are plugged in again or lose their power, and other programs change
them. So each start sets what is configured, and what the first start has found.
"""

import errno
import fcntl
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.real_robot.cameras.camera import CameraError

# Controls that automatic ones drive, by the automatic one.
DRIVEN: Mapping[str, tuple[str, ...]] = {
    "auto_exposure": ("exposure", "gain"),
    "auto_white_balance": ("white_balance",),
    "auto_focus": ("focus",),
}
_MANUAL_EXPOSURE = 1  # V4L2_EXPOSURE_MANUAL; other values are automatic.
_USER_CLASS = 0x00980900  # V4L2_CID_BASE of linux/v4l2-controls.h
_CAMERA_CLASS = 0x009A0900
_V4L2: Mapping[str, int] = {
    "auto_exposure": _CAMERA_CLASS + 1,
    "exposure": _CAMERA_CLASS + 2,
    "auto_focus": _CAMERA_CLASS + 12,
    "focus": _CAMERA_CLASS + 10,
    "auto_white_balance": _USER_CLASS + 12,
    "white_balance": _USER_CLASS + 26,
    "gain": _USER_CLASS + 19,
    "brightness": _USER_CLASS,
    "contrast": _USER_CLASS + 1,
    "saturation": _USER_CLASS + 2,
}
_CONTROL = struct.Struct("=Ii")  # struct v4l2_control
_GET = 0xC008561B  # VIDIOC_G_CTRL
_SET = 0xC008561C  # VIDIOC_S_CTRL
# Names of rs.option, in the colour sensor and, with "depth_" before the name, in the depth sensor.
_REALSENSE: Mapping[str, str] = {
    "auto_exposure": "enable_auto_exposure",
    "exposure": "exposure",
    "gain": "gain",
    "auto_white_balance": "enable_auto_white_balance",
    "white_balance": "white_balance",
    "emitter": "emitter_enabled",
    "laser_power": "laser_power",
    "preset": "visual_preset",
}
_DEPTH = "depth_"


class Controls(Protocol):
    """The controls of a running camera."""

    def read(self) -> dict[str, float]:
        """Returns the values of all controls that it has, by name."""
        ...

    def write(self, name: str, value: float) -> None:
        """Sets a control; OSError or RuntimeError if the camera refuses."""
        ...

    def is_on(self, automatic: str, value: float) -> bool:
        """Returns whether this value of an automatic control lets it drive others."""
        ...


class V4l2Controls:
    """The controls of a port of Linux.

    Args:
        fd: Descriptor of the port.
        ioctl: As `fcntl.ioctl`.
    """

    def __init__(self, fd: int, ioctl: Callable[[int, int, bytes], bytes] = fcntl.ioctl) -> None:
        self._fd = fd
        self._ioctl = ioctl

    def read(self) -> dict[str, float]:
        """Returns the values of all controls that it has, by name."""
        found = {}
        for name, ident in _V4L2.items():
            try:
                answer = self._ioctl(self._fd, _GET, _CONTROL.pack(ident, 0))
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTTY):
                    raise
            else:
                found[name] = float(_CONTROL.unpack(answer)[1])
        return found

    def write(self, name: str, value: float) -> None:
        """Sets a control."""
        self._ioctl(self._fd, _SET, _CONTROL.pack(_V4L2[name], round(value)))

    def is_on(self, automatic: str, value: float) -> bool:
        """Returns whether an automatic control is on; that of the exposure is a menu."""
        return value != (_MANUAL_EXPOSURE if automatic == "auto_exposure" else 0)


class RealSenseControls:
    """The options of a RealSense camera's sensors.

    Args:
        library: pyrealsense2.
        sensors: Sensors of the camera.
    """

    def __init__(self, library: Any, sensors: Sequence[Any]) -> None:
        self._options: dict[str, tuple[Any, Any]] = {}
        for sensor in sensors:
            prefix = _DEPTH if sensor.is_depth_sensor() else ""
            for name, option in _REALSENSE.items():
                known = getattr(library.option, option)
                if sensor.supports(known):
                    self._options[prefix + name] = (sensor, known)

    def read(self) -> dict[str, float]:
        """Returns the values of all options that it has, by name."""
        return {
            name: float(sensor.get_option(option))
            for name, (sensor, option) in self._options.items()
        }

    def write(self, name: str, value: float) -> None:
        """Sets an option."""
        sensor, option = self._options[name]
        sensor.set_option(option, value)

    def is_on(self, automatic: str, value: float) -> bool:
        """Returns whether an automatic control is on."""
        return value != 0


def set_controls(controls: Controls, wanted: Mapping[str, float]) -> dict[str, float]:
    """Sets controls and returns the values of all that do not change by themselves.

    Presets and automatic controls are set first, since they change others.

    Raises:
        CameraError: The camera lacks a control, refuses its value, or has another one afterwards.
    """
    try:
        known = controls.read()
        for name in sorted(wanted, key=lambda name: (not name.endswith("preset"), _order(name))):
            if name not in known:
                raise CameraError(str(unknown_name("control of this camera", name, known)))
            if controls.read().get(name) != wanted[name]:
                controls.write(name, wanted[name])
        found = controls.read()
    except (OSError, RuntimeError) as error:
        if isinstance(error, CameraError):
            raise
        raise CameraError(f"its controls cannot be set: {error}.") from error
    for name, value in wanted.items():
        if found.get(name) != value:
            raise CameraError(f"its {name} is {found.get(name):g}; expected is {value:g}.")
    return _settled(controls, found)


def _order(name: str) -> tuple[bool, str]:
    return name.removeprefix(_DEPTH) not in DRIVEN, name


def _settled(controls: Controls, found: Mapping[str, float]) -> dict[str, float]:
    """Returns the values of controls without those that an automatic one drives."""
    driven = {
        prefix + name
        for prefix in ("", _DEPTH)
        for automatic, names in DRIVEN.items()
        if prefix + automatic in found and controls.is_on(automatic, found[prefix + automatic])
        for name in names
    }
    return {name: value for name, value in found.items() if name not in driven}
