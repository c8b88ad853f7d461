"""Intel RealSense cameras, or their recordings: colour, aligned depth and intrinsics."""

import ctypes
import importlib
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from stringline.real_robot.cameras.camera import (
    CameraError,
    Depth,
    DeviceClock,
    Frame,
    Identity,
    Matrix,
)
from stringline.real_robot.cameras.camera_controls import RealSenseControls, set_controls
from stringline.real_robot.cameras.camera_settings import CameraSettings

_FIRST_S = 5.0
_NEXT_S = 2.0
_UNIT_M = 0.001
_NOTICEABLE_DISTORTION = 1e-3


def librealsense() -> ModuleType:
    """Imports pyrealsense2; on a system without libusb, that of the extra is loaded first.

    Raises:
        CameraError: The library is not installed, or cannot be loaded.
    """
    try:
        return importlib.import_module("pyrealsense2")
    except ModuleNotFoundError as error:
        raise CameraError(
            "This needs pyrealsense2, which is not installed. Run: pip install "
            '"stringline[realsense]"'
        ) from error
    except ImportError as error:
        if "libusb" not in str(error):
            raise CameraError(f"pyrealsense2 cannot be loaded: {error}.") from error
    try:
        found = importlib.import_module("libusb_package").get_library_path()
        ctypes.CDLL(str(found), ctypes.RTLD_GLOBAL)
        return importlib.import_module("pyrealsense2")
    except (ImportError, OSError) as error:
        raise CameraError(
            f"pyrealsense2 needs libusb, which cannot be loaded ({error}). Run: apt install "
            f'libusb-1.0-0, or pip install "stringline[realsense]"'
        ) from error


class RealSenseCamera:
    """One RealSense camera.

    The queue of the library holds the newest set of images only. It stamps them by the clock of the
    camera or, as "global time", by the wall clock; either is mapped to the monotonic clock, see
    `DeviceClock`.

    Args:
        settings: The serial number selects one of several cameras; the source is a recording.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._settings = settings
        self._clock = DeviceClock(settings.latency_s)
        self._library: Any = None
        self._pipeline: Any = None
        self._align: Any = None
        self._unit_m = _UNIT_M
        self._intrinsics: Matrix = np.eye(3, dtype=np.float32)
        self._timeout_s = _FIRST_S

    def start(self) -> Identity:
        """Finds the camera and starts its streams."""
        rs = self._library = librealsense()
        pipeline = rs.pipeline()
        wanted = self._configuration(rs)
        try:
            # The start of a missing camera would wait until it is plugged in.
            if not wanted.can_resolve(rs.pipeline_wrapper(pipeline)):
                raise CameraError(f"no camera delivers {self._requested()}. {self._present(rs)}")
            profile = pipeline.start(wanted)
        except CameraError:
            raise
        except RuntimeError as error:
            raise CameraError(f"it cannot be started: {error} {self._present(rs)}") from error
        self._pipeline = pipeline
        device = profile.get_device()
        video = profile.get_stream(rs.stream.color).as_video_stream_profile()
        lens = video.get_intrinsics()
        # The origin is the centre of the first pixel in the library, its corner in the contract.
        self._intrinsics = np.array(
            [[lens.fx, 0, lens.ppx + 0.5], [0, lens.fy, lens.ppy + 0.5], [0, 0, 1]],
            dtype=np.float32,
        )
        if self._settings.depth:
            self._align = rs.align(rs.stream.color)
            self._unit_m = float(device.first_depth_sensor().get_depth_scale())
        description = [self._info(device, rs.camera_info.name)]
        if max(np.abs(lens.coeffs), default=0.0) > _NOTICEABLE_DISTORTION:
            bent = ", ".join(f"{value:.3f}" for value in lens.coeffs)
            description.append(f"its lens distortion ({bent}) is not corrected")
        serial = self._info(device, rs.camera_info.serial_number)
        controls = self._controls(rs, device)
        return Identity(
            serial,
            video.height(),
            video.width(),
            float(video.fps()),
            "; ".join(filter(None, description)),
            controls,
        )

    def _controls(self, rs: Any, device: Any) -> dict[str, float]:
        """Sets the controls of a camera, which recordings do not have, and returns their values."""
        if not self._settings.source:
            return set_controls(
                RealSenseControls(rs, device.query_sensors()), self._settings.controls
            )
        if self._settings.controls:
            raise CameraError("a recording has no controls.")
        return {}

    def frame(self) -> Frame:
        """Waits for the next pair of images."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            arrived, frames = self._pipeline.try_wait_for_frames(
                max(1, round((deadline - time.monotonic()) * 1000))
            )
            received = time.monotonic()
            if not arrived:
                raise CameraError(f"it has delivered no image for {self._timeout_s:g} s.")
            colour = frames.get_color_frame()
            depth = frames.get_depth_frame()
            if colour and (self._align is None or (depth and self._belong_together(colour, depth))):
                break  # Sets may be incomplete, or of two moments, mostly after the start.
        if self._align is not None:
            aligned = self._align.process(frames)
            colour = aligned.get_color_frame()
            depth = aligned.get_depth_frame()
        self._timeout_s = _NEXT_S
        return Frame(
            number=int(colour.get_frame_number()),
            captured=self._clock.captured(float(colour.get_timestamp()) / 1e3, received),
            colour=np.array(colour.get_data(), dtype=np.uint8),
            depth=None if self._align is None else self._millimetres(np.asarray(depth.get_data())),
            intrinsics=self._intrinsics,
        )

    def close(self) -> None:
        """Stops the streams."""
        if self._pipeline is not None:
            self._pipeline.stop()
            self._pipeline = None

    def _belong_together(self, colour: Any, depth: Any) -> bool:
        """Returns whether two images are of one moment; stamps of two clocks are not compared."""
        if colour.get_frame_timestamp_domain() != depth.get_frame_timestamp_domain():
            return True
        return bool(abs(colour.get_timestamp() - depth.get_timestamp()) < 500.0 / self._settings.hz)

    def _configuration(self, rs: Any) -> Any:
        settings = self._settings
        wanted = rs.config()
        if settings.source:
            if not Path(settings.source).is_file():
                raise CameraError(f"the recording {settings.source} does not exist.")
            wanted.enable_device_from_file(settings.source, repeat_playback=False)
        elif settings.serial:
            wanted.enable_device(settings.serial)
        size = (settings.width, settings.height)
        hz = round(settings.hz)
        wanted.enable_stream(rs.stream.color, *size, rs.format.rgb8, hz)
        if settings.depth:
            wanted.enable_stream(rs.stream.depth, *size, rs.format.z16, hz)
        return wanted

    def _requested(self) -> str:
        """Returns the requested format as text."""
        settings = self._settings
        kinds = "colour and depth" if settings.depth else "colour"
        number = f" with the serial number {settings.serial}" if settings.serial else ""
        return f"{kinds} of {settings.width}x{settings.height} at {settings.hz:g} Hz{number}"

    def _millimetres(self, counts: Depth) -> Depth:
        """Returns depth in the unit of the contract; values beyond its range count as no return."""
        depth = np.rint(counts * (self._unit_m / _UNIT_M))
        return np.where(depth <= np.iinfo(np.uint16).max, depth, 0).astype(np.uint16)

    def _present(self, rs: Any) -> str:
        if self._settings.source:
            return f"The recording is {self._settings.source}."
        found = [
            self._info(device, rs.camera_info.serial_number)
            for device in rs.context().query_devices()
        ]
        return f"Connected serial numbers: {', '.join(found) or 'none'}."

    @staticmethod
    def _info(device: Any, what: Any) -> str:
        return str(device.get_info(what)) if device.supports(what) else ""
