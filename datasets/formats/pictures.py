"""Single compressed pictures: JPEG and PNG, colour and depth."""

import io

import numpy as np

from stringline.datasets.contract import Array
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library


def decoded(key: str, frame: int, data: bytes) -> Array:
    """Decodes a picture.

    Args:
        key: How messages name the series.
        frame: Its number.
        data: JPEG, PNG or TIFF; zeros behind its end do no harm.

    Returns:
        (H, W, 3) uint8; (H, W) uint16 or float32 for depth.

    Raises:
        ForeignDataError: It is damaged.
    """
    image = optional_library("PIL.Image", package="pillow")
    try:
        with image.open(io.BytesIO(data)) as opened:
            opened.load()
            if opened.mode.startswith("I"):
                return np.asarray(opened).astype(np.uint16)
            if opened.mode == "F":
                return np.asarray(opened)
            return np.asarray(opened.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ForeignDataError(f"{key} at frame {frame} does not decode: {error}.") from error


def jpeg(picture: Array, quality: int) -> bytes:
    """Encodes a picture (H, W, 3) uint8 as JPEG."""
    return _encoded(picture, "JPEG", quality=quality)


def png(picture: Array) -> bytes:
    """Encodes a picture (H, W, 3) uint8, or depth (H, W) uint16, as PNG, without loss."""
    return _encoded(picture, "PNG", compress_level=1)


def _encoded(picture: Array, kind: str, **options: int) -> bytes:
    image = optional_library("PIL.Image", package="pillow")
    buffer = io.BytesIO()
    image.fromarray(np.ascontiguousarray(picture)).save(buffer, format=kind, **options)
    return buffer.getvalue()
