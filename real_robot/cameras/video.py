"""Cameras that FFmpeg reads, through PyAV: any that Linux knows as /dev/video*, and a recorded video in place of one."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame

from stringline.real_robot.cameras.camera import CameraError, Frame, Identity
from stringline.real_robot.cameras.device_clock import DeviceClock
from stringline.real_robot.cameras.settings import CameraDriver, CameraSettings

_SYSTEM = Path("/sys/class/video4linux")


class VideoCamera:
    """A camera without depth. A file is played at its own rate and ends when it ends, which is a camera that fails.

    Args:
        settings: Its source is the device or the file.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._settings, self._clock = settings, DeviceClock(settings.latency_s)
        self._live = settings.driver is CameraDriver.V4L2
        self._container: Any = None
        self._frames: Iterator[VideoFrame] = iter(())
        self._number, self._began = 0, 0.0

    def start(self) -> Identity:
        """Opens the device or the file.

        Raises:
            CameraError: It is not there, is in use, or shows no pictures.
        """
        settings = self._settings
        asked = {"video_size": f"{settings.width}x{settings.height}", "framerate": f"{settings.hz:g}"} if self._live else {}
        try:
            self._container = av.open(settings.source, format="v4l2" if self._live else None, options=asked)
            stream = self._container.streams.video[0]
        except (FFmpegError, OSError, ValueError, IndexError) as error:
            raise CameraError(f"{settings.source} cannot be opened as a camera: {error}.") from error
        # Several threads would each keep a picture back.
        stream.thread_type, stream.codec_context.thread_count = "NONE", 1
        self._frames = self._container.decode(stream)
        rate = float(stream.average_rate or stream.base_rate or 0)
        serial = serial_of(Path(settings.source)) if self._live else ""
        return Identity(serial, stream.height, stream.width, rate, f"{settings.source}, {stream.codec_context.name}")

    def frame(self) -> Frame:
        """Waits for the next picture.

        Raises:
            CameraError: There is none.
        """
        try:
            picture = next(self._frames, None)
        except (FFmpegError, OSError, ValueError) as error:
            raise CameraError(f"{self._settings.source} shows nothing any more: {error}.") from error
        if picture is None:
            raise CameraError(f"{self._settings.source} is at its end.")
        stamp = float(picture.time or 0.0)
        if not self._live:
            self._began = self._began or time.monotonic() - stamp
            time.sleep(max(0.0, self._began + stamp - time.monotonic()))
        self._number += 1
        captured = self._clock.captured(stamp, time.monotonic())
        return Frame(self._number, captured, np.asarray(picture.to_ndarray(format="rgb24"), dtype=np.uint8))

    def close(self) -> None:
        """Lets go of the device."""
        if self._container is not None:
            self._container.close()
            self._container = None


def serial_of(device: Path, system: Path = _SYSTEM) -> str:
    """Returns the serial number of the USB device behind a video port; empty if it has none.

    Args:
        device: Such as /dev/video0, or a link to it.
        system: Where the kernel lists video ports.
    """
    with contextlib.suppress(OSError):
        # The port belongs to an interface of the device; the number stands with the device.
        return ((system / device.resolve().name / "device").resolve().parent / "serial").read_text().strip()
    return ""
