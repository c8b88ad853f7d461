"""Cameras that FFmpeg reads through PyAV: /dev/video*, and recorded videos.

Calls into PyAV may block for ever, so each has a deadline.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import av
import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame

from stringline.real_robot.cameras.camera import CameraError, DeviceClock, Frame, Identity
from stringline.real_robot.cameras.camera_controls import V4l2Controls, set_controls
from stringline.real_robot.cameras.camera_settings import CameraDriver, CameraSettings

T = TypeVar("T")


class BoundedCalls:
    """Runs calls one after the other in a thread, each with a time-out.

    A late call cannot be ended. Its thread is abandoned together with the objects of the call,
    which must not be used any more. It ends when the call returns, or with the process.

    Attributes:
        late: Whether a call was late; no further calls are made then.
    """

    def __init__(self, name: str) -> None:
        self.late = False
        self._calls = SimpleQueue[Callable[[], None] | None]()
        self._answers = SimpleQueue[Exception | None]()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def __call__(self, call: Callable[[], T], timeout_s: float) -> T:
        """Returns the result of a call, or raises its error.

        Raises:
            TimeoutError: This call or an earlier one was late.
        """
        if self.late:
            raise TimeoutError
        found: list[T] = []
        self._calls.put(lambda: found.append(call()))
        try:
            error = self._answers.get(timeout=timeout_s)
        except Empty:
            self.late = True
            self.end()
            raise TimeoutError from None
        if error is not None:
            raise error
        return found[0]

    def end(self) -> None:
        """Ends the thread after the current call."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception as error:
                self._answers.put(error)
            else:
                self._answers.put(None)


_SYSTEM = Path("/sys/class/video4linux")
_FIRST_S = 10.0
_NEXT_S = 2.0


class VideoCamera:
    """A camera without depth.

    A file is played at its own rate; its end is a failure of the camera.

    FFmpeg waits for a device without a time-out. So it runs in another thread, which is abandoned
    when an image is late and ends with the process.

    Args:
        settings: The source is the device or the file.
        first_s: Time-out of opening, which decodes images of some kinds of files.
        next_s: Time-out of the next image.
    """

    def __init__(
        self, settings: CameraSettings, *, first_s: float = _FIRST_S, next_s: float = _NEXT_S
    ) -> None:
        self._settings = settings
        self._clock = DeviceClock(settings.latency_s)
        self._first_s = first_s
        self._next_s = next_s
        self._live = settings.driver is CameraDriver.V4L2
        self._ffmpeg: BoundedCalls | None = None
        self._container: Any = None
        self._frames: Iterator[VideoFrame] = iter(())
        self._number = 0
        self._began = 0.0

    def start(self) -> Identity:
        """Opens the device or the file."""
        self._ffmpeg = BoundedCalls(f"stringline camera {self._settings.source}")
        try:
            return self._ffmpeg(self._open, self._first_s)
        except TimeoutError as error:
            raise CameraError(
                f"{self._settings.source} has delivered no image for {self._first_s:g} s."
            ) from error
        except CameraError:
            raise
        except (FFmpegError, OSError, ValueError, IndexError) as error:
            raise CameraError(
                f"{self._settings.source} cannot be opened as a camera: {error}."
            ) from error

    def frame(self) -> Frame:
        """Waits for the next image."""
        assert self._ffmpeg is not None
        try:
            image, received = self._ffmpeg(self._next, self._next_s)
        except TimeoutError as error:
            raise CameraError(
                f"{self._settings.source} has delivered no image for {self._next_s:g} s."
            ) from error
        except (FFmpegError, OSError, ValueError) as error:
            raise CameraError(f"{self._settings.source} delivers no images: {error}.") from error
        if image is None:
            raise CameraError(f"{self._settings.source} has ended.")
        stamp = float(image.time or 0.0)
        if not self._live:
            self._began = self._began or received - stamp
            time.sleep(max(0.0, self._began + stamp - time.monotonic()))
            received = time.monotonic()
        self._number += 1
        captured = self._clock.captured(stamp, received)
        return Frame(
            self._number, captured, np.asarray(image.to_ndarray(format="rgb24"), dtype=np.uint8)
        )

    def close(self) -> None:
        """Closes the device; one that FFmpeg still waits for stays open until the process ends."""
        if self._ffmpeg is None:
            return
        if self._container is not None and not self._ffmpeg.late:
            with contextlib.suppress(TimeoutError):
                self._ffmpeg(self._container.close, self._next_s)
        self._ffmpeg.end()
        self._ffmpeg = None

    def _open(self) -> Identity:
        settings = self._settings
        options = (
            {"video_size": f"{settings.width}x{settings.height}", "framerate": f"{settings.hz:g}"}
            if self._live
            else {}
        )
        self._container = av.open(
            settings.source, format="v4l2" if self._live else None, options=options
        )
        stream = self._container.streams.video[0]
        # Each of several threads would hold back an image.
        stream.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        self._frames = self._container.decode(stream)
        rate = float(stream.average_rate or stream.base_rate or 0)
        serial = serial_of(Path(settings.source)) if self._live else ""
        return Identity(
            serial,
            stream.height,
            stream.width,
            rate,
            f"{settings.source}, {stream.codec_context.name}",
            self._controls() if self._live else {},
        )

    def _controls(self) -> dict[str, float]:
        """Sets the controls of the device, which streams already, and returns their values."""
        port = os.open(self._settings.source, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return set_controls(V4l2Controls(port), self._settings.controls)
        finally:
            os.close(port)

    def _next(self) -> tuple[VideoFrame | None, float]:
        """Returns the next image, None at the end, and its time of arrival."""
        return next(self._frames, None), time.monotonic()


def serial_of(device: Path, system: Path = _SYSTEM) -> str:
    """Returns the serial number of the USB device of a video port, such as /dev/video0, or ""."""
    with contextlib.suppress(OSError):
        # The port belongs to an interface of the device; the device has the number.
        return (
            ((system / device.resolve().name / "device").resolve().parent / "serial")
            .read_text()
            .strip()
        )
    return ""
