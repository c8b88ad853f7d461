"""Files with the pixels of labelled images."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import decoded, decoded_over
from stringline.datasets.images.omissions import OmittedError

WHITE = 255
_MOST_MM = np.iinfo(np.uint16).max


def read_colours(path: Path, background: int = WHITE) -> NDArray[np.uint8]:
    """Returns an image (H, W, 3) uint8 over a grey `background`, which transparent pixels show.

    Raises:
        OmittedError: The file is missing, truncated, or not an image.
    """
    try:
        return decoded_over(path.name, _bytes(path), background)
    except ForeignDataError as error:
        raise _damaged("images", error) from error


def read_depth(path: Path, unit_m: float) -> NDArray[np.uint16]:
    """Returns depth (H, W) uint16 in mm, 0 where unknown, from an image of 16 bits.

    Depth beyond 65.535 m becomes 0, unknown.

    Raises:
        OmittedError: The file is missing, truncated, has no 16 bits, or no pixel of it has a depth
            from 0.5 mm to 65.535 m in this unit.
    """
    try:
        counts = decoded(path.name, 0, _bytes(path))
    except ForeignDataError as error:
        raise _damaged("depth", error) from error
    if counts.ndim != 2 or counts.dtype != np.uint16:
        raise OmittedError("depth", "its images do not have one channel of 16 bits")
    millimetres = np.rint(counts * (unit_m * 1000.0))
    found = np.where(millimetres > _MOST_MM, 0, millimetres).astype(np.uint16)
    if counts.any() and not found.any():
        raise OmittedError(
            "depth", f"none of it is between 0.5 mm and 65.535 m with depth_unit_m={unit_m:g}"
        )
    return found


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OmittedError("images", "the file is missing") from error


def _damaged(part: str, error: ForeignDataError) -> OmittedError:
    if isinstance(error, OmittedError):
        return error
    return OmittedError(part, "truncated or damaged: the file does not decode")
