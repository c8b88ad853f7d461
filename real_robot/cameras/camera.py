"""The interface of a camera: images with their capture times."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
