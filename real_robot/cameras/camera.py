"""What a camera is to the bridge: images with the time at which they were taken."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Depth = NDArray[np.uint16]
Matrix = NDArray[np.float32]


class CameraError(RuntimeError):
    """A camera is not there, is not the one that is meant, or shows nothing any more."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One image.

    Attributes:
        number: Counted by the camera; a larger one is later, a gap is an image that was lost.
        captured: When it was taken, seconds of the host's monotonic clock.
        colour: (H, W, 3) sRGB.
        depth: (H, W) millimetres along the optical axis at the pixels of `colour`, 0 where there is
            no return; None without.
        intrinsics: (3, 3) of the image, the centre of pixel (0, 0) at (0.5, 0.5); None if nobody
            knows them.
    """

    number: int
    captured: float
    colour: Image
    depth: Depth | None = None
    intrinsics: Matrix | None = None


@dataclass(frozen=True)
class Identity:
    """What a camera says about itself once it runs.

    Attributes:
        serial: Number; empty if it does not tell.
        height: Rows of its own images.
        width: Columns.
        hz: Images per second that it promises.
        words: What else is worth knowing, such as its model.
    """

    serial: str
    height: int
    width: int
    hz: float
    words: str = ""


class Camera(Protocol):
    """A source of images, owned by one process.

    What goes wrong is a `CameraError`; what failed is not used again.
    """

    def start(self) -> Identity:
        """Opens it and waits until it promises images.

        Raises:
            CameraError: It is not there, or cannot do what it is to do.
        """
        ...

    def frame(self) -> Frame:
        """Waits for the next image, no longer than a few seconds.

        Raises:
            CameraError: It shows nothing any more.
        """
        ...

    def close(self) -> None:
        """Lets go of it."""
        ...
