"""The interface of a camera: images with their capture times by the host's monotonic clock."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_SAMPLES = 300


class DeviceClock:
    """Subtracts the smallest recent delay between stamp and arrival, which counts as zero.

    So an image that waited in a queue keeps its age. The window is a number of samples, not a time:
    a process that was suspended does not take its backlog for fresh. The clock of the stamps is
    arbitrary; if it goes backwards, it was set, and the mapping starts again.

    Args:
        latency_s: Measured time from capture to stamp.
    """

    def __init__(self, latency_s: float = 0.0) -> None:
        self._latency_s = latency_s
        self._delays: deque[float] = deque(maxlen=_SAMPLES)
        self._stamp = float("-inf")

    def captured(self, stamp: float, received: float) -> float:
        """Returns the capture time (s) of an image that was `received` on the host's clock."""
        if stamp < self._stamp:
            self._delays.clear()
        self._stamp = stamp
        self._delays.append(received - stamp)
        return stamp + min(self._delays) - self._latency_s


Image = NDArray[np.uint8]
Depth = NDArray[np.uint16]
Matrix = NDArray[np.float32]


class CameraError(RuntimeError):
    """A camera is missing, is not the configured one, or delivers no images."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One image.

    Attributes:
        number: Counter of the camera, increasing; a gap is a lost image.
        captured: Capture time, seconds of the monotonic clock of the host.
        colour: (H, W, 3) sRGB, 0 to 255.
        depth: (H, W) millimetres along the optical axis at the pixels of `colour`, 0 without a
            return; None without depth.
        intrinsics: (3, 3) in pixels, the centre of pixel (0, 0) at (0.5, 0.5); None if unknown.
    """

    number: int
    captured: float
    colour: Image
    depth: Depth | None = None
    intrinsics: Matrix | None = None


@dataclass(frozen=True)
class Identity:
    """Properties that a running camera reports; the size is that of its own images.

    Attributes:
        serial: Serial number; empty if unknown.
        controls: Values of its controls that do not change by themselves, by name.
    """

    serial: str
    height: int
    width: int
    hz: float
    description: str = ""
    controls: Mapping[str, float] = field(default_factory=dict)


class Camera(Protocol):
    """A source of images, owned by one process. After a `CameraError` it is not used again."""

    def start(self) -> Identity:
        """Opens the camera and waits until it is ready to deliver images.

        Raises:
            CameraError: The camera is missing or lacks the configured format.
        """
        ...

    def frame(self) -> Frame:
        """Waits for the next image, at most a few seconds.

        Raises:
            CameraError: No image arrives.
        """
        ...

    def close(self) -> None:
        """Releases the camera."""
        ...
