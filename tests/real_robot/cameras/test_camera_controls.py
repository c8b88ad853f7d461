"""Controls of cameras: a port of Linux that forgets them, and a sensor of Intel's library."""

import errno
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stringline.real_robot.cameras.camera import CameraError, Identity
from stringline.real_robot.cameras.camera_controls import V4l2Controls, set_controls
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.cameras.cameras import CameraHandle
from stringline.real_robot.ipc.heartbeat import CameraLiveness

ROOT = Path(__file__).parents[3]
# Numbers of linux/videodev2.h and v4l2-controls.h.
GET, SET = 0xC008561B, 0xC008561C
AUTO_EXPOSURE, EXPOSURE, GAIN, AUTO_BALANCE, BALANCE = (
    0x009A0901,
    0x009A0902,
    0x00980913,
    0x0098090C,
    0x0098091A,
)
FACTORY = {AUTO_EXPOSURE: 3, EXPOSURE: 157, GAIN: 64, AUTO_BALANCE: 1, BALANCE: 4600}


class Port:
    """The controls of a UVC camera behind `ioctl`; `plug` powers it again."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.stuck: set[int] = set()
        self.plug()

    def plug(self) -> None:
        self.values = dict(FACTORY)

    def ioctl(self, fd: int, request: int, argument: bytes) -> bytes:
        ident, value = struct.unpack("=Ii", argument)
        if ident not in self.values:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if request == SET:
            self.written.append(ident)
            if ident not in self.stuck:
                self.values[ident] = value
        else:
            assert request == GET
        return struct.pack("=Ii", ident, self.values[ident])

    def set(self, **wanted: float) -> dict[str, float]:
        return set_controls(V4l2Controls(-1, self.ioctl), wanted)


def test_controls_are_set_and_read_back_automatic_ones_first() -> None:
    port = Port()
    kept = port.set(exposure=80, auto_exposure=1, gain=10)
    assert port.written == [AUTO_EXPOSURE, EXPOSURE, GAIN]
    assert kept == {
        "auto_exposure": 1.0,
        "exposure": 80.0,
        "gain": 10.0,
        "auto_white_balance": 1.0,
    }


def test_what_an_automatic_control_drives_is_not_kept() -> None:
    assert Port().set() == {"auto_exposure": 3.0, "auto_white_balance": 1.0}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"exposur": 3.0}, "no control of this camera 'exposur'. Did you mean 'exposure'"),
        ({"gain": 5.0}, "its gain is 64; expected is 5"),
    ],
)
def test_a_control_that_is_missing_or_not_taken_is_an_error(
    wanted: dict[str, float], message: str
) -> None:
    port = Port()
    port.stuck = {GAIN}
    with pytest.raises(CameraError, match=message):
        port.set(**wanted)


def test_a_restart_sets_what_the_first_start_has_found() -> None:
    """A camera that was plugged in again has the values of the factory."""
    settings = CameraSettings.of("overhead", {"driver": "v4l2", "source": "/dev/video9"})
    handle = CameraHandle(settings, CameraLiveness.of(["overhead"]), 0)
    port = Port()
    by_hand = port.set(auto_exposure=1, exposure=33, gain=1)
    first = Identity("12", 480, 640, 30.0, "", port.set(**settings.controls))
    assert first.controls == by_hand
    handle._fixed(first)
    port.plug()
    again = port.set(**handle._setup.settings.controls)
    assert again == first.controls
    assert handle._setup.settings.serial == "12"
    port.plug()
    port.stuck = {EXPOSURE}
    with pytest.raises(CameraError, match="its exposure is 157; expected is 33"):
        port.set(**handle._setup.settings.controls)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"driver": "file", "source": "x", "controls": {"gain": 1}}, "file has no controls"),
        ({"driver": "realsense", "controls": {"gain": "high"}}, "gain is 'high' in controls"),
        ({"driver": "realsense", "controls": [1]}, r"controls are \[1\]; allowed: values by name"),
    ],
)
def test_controls_that_cannot_be_are_refused(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CameraSettings.of("overhead", plain)


SOFTWARE_CAMERA = """
import os
from stringline.real_robot.cameras.camera_controls import RealSenseControls, set_controls
from stringline.real_robot.cameras.realsense import librealsense
rs = librealsense()
device = rs.software_device()
eye = device.add_sensor("Color")
for option, value in ((rs.option.exposure, 156.0), (rs.option.gain, 64.0),
                      (rs.option.enable_auto_exposure, 1.0)):
    limits = rs.option_range()
    limits.min, limits.max, limits.step, limits.default = 0.0, 10000.0, 1.0, value
    eye.add_option(option, limits, True)
    eye.set_option(option, value)
controls = RealSenseControls(rs, device.query_sensors())
print(sorted(set_controls(controls, {}).items()))
print(sorted(set_controls(controls, {"exposure": 85.0, "auto_exposure": 0.0}).items()), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_options_of_intels_library_are_controls() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SOFTWARE_CAMERA],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "[('auto_exposure', 1.0)]",
        "[('auto_exposure', 0.0), ('exposure', 85.0), ('gain', 64.0)]",
    ], done.stderr


def test_settings_with_controls_stay_comparable() -> None:
    plain = {"driver": "realsense", "serial": 7, "controls": {"laser_power": 150}}
    settings = CameraSettings.of("overhead", plain)
    assert replace(settings) == settings
    assert settings.controls == {"laser_power": 150}
