"""Image files (JPEG, PNG, TIFF), and foreign depth images along the optical axis."""

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, DepthSource
from stringline.datasets.files.limits import MOST_PIXELS
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library

FORMATS = ("JPEG", "PNG", "TIFF")


class _BombError(Exception):
    """Pillow's own limit, above ours, was passed."""


@contextmanager
def _no_bombs(image: ModuleType) -> Iterator[None]:
    """Raises `_BombError` where Pillow would print a warning about huge images, or raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", image.DecompressionBombWarning)
        try:
            yield
        except (image.DecompressionBombWarning, image.DecompressionBombError) as error:
            raise _BombError(error) from error


def check_pixels(name: str, width: int, height: int) -> None:
    """Checks the size of an image before it is decoded; messages begin with `name`."""
    if width * height > MOST_PIXELS:
        raise ForeignDataError(
            f"{name} has {width} x {height} pixels; allowed: {MOST_PIXELS} in all."
        )


def decoded(key: str, frame: int, data: bytes) -> Array:
    """Decodes a JPEG, PNG or TIFF image, possibly padded with zeros.

    Messages contain `key` and `frame`. Returns (H, W, 3) uint8; (H, W) uint16 or float32 for depth.
    """
    image = optional_library("PIL.Image", package="pillow")
    try:
        # Pillow would try all formats that it knows, and run Ghostscript for one of them.
        with _no_bombs(image), image.open(io.BytesIO(data), formats=FORMATS) as opened:
            check_pixels(f"{key} at frame {frame}", *opened.size)
            opened.load()
            if opened.mode.startswith("I"):
                return np.asarray(opened).astype(np.uint16)
            if opened.mode == "F":
                return np.asarray(opened)
            return np.asarray(opened.convert("RGB"))
    except ForeignDataError:
        raise
    except (OSError, SyntaxError, ValueError, _BombError) as error:
        raise ForeignDataError(f"{key} at frame {frame} does not decode: {error}.") from error


def decoded_picture(data: bytes, kind: str, shape: tuple[int, ...]) -> Array:
    """Decodes an image of one format, named as in Pillow, with the pixels that its file contains.

    `shape` is that of the image without axes of length 1, checked before it is decoded.
    """
    image = optional_library("PIL.Image", package="pillow")
    try:
        with _no_bombs(image), image.open(io.BytesIO(data), formats=(kind,)) as opened:
            check_pixels("an image", *opened.size)
            size = opened.height, opened.width, len(opened.getbands())
            if tuple(length for length in size if length != 1) != shape:
                raise ForeignDataError(f"an image has the shape {size}; allowed: {shape}")
            return np.asarray(opened)
    except ForeignDataError:
        raise
    except (OSError, SyntaxError, ValueError, _BombError) as error:
        raise ForeignDataError(f"an image does not decode: {error}") from error


def jpeg(image: Array, quality: int) -> bytes:
    """Encodes an image (H, W, 3) uint8 as JPEG."""
    return _encoded(image, "JPEG", quality=quality)


def png(image: Array) -> bytes:
    """Encodes an image (H, W, 3) uint8 or depth (H, W) uint16 as PNG."""
    return _encoded(image, "PNG", compress_level=1)


def _encoded(image: Array, kind: str, **options: int) -> bytes:
    pillow = optional_library("PIL.Image", package="pillow")
    buffer = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(image)).save(buffer, format=kind, **options)
    return buffer.getvalue()


UNIT_M = 0.001
FARTHEST_M = 60.0
NEAREST_FULL_MM = 20  # An image without larger values must be in metres.
LARGEST_CODE = 4095


def checked_source(source: str) -> DepthSource:
    """Checks a source of depth and returns it."""
    for known in get_args(DepthSource):
        if source == known:
            found: DepthSource = known
            return found
    raise unknown_name("source of depth", source, get_args(DepthSource))


def counts(key: str, frame: int, depth: Array, height: int, width: int) -> Array:
    """Returns a depth image (height, width) uint16 in mm; messages contain `key` and `frame`.

    `depth` is (height, width) or (height, width, 1): floats in metres, or integers in millimetres,
    as in LeRobot and robosuite. Values that suggest another unit raise an error.
    """
    found = depth[..., 0] if depth.ndim == 3 and depth.shape[-1] == 1 else depth
    if found.shape != (height, width):
        raise ForeignDataError(
            f"{key} at frame {frame} has shape {depth.shape}; allowed: {(height, width)}."
        )
    if found.dtype.kind == "f":
        metres = np.asarray(found, np.float64)
        if not (metres >= 0).all():
            raise ForeignDataError(
                f"{key} at frame {frame} has values that are negative or not finite."
            )
        if metres.max() > FARTHEST_M:
            raise ForeignDataError(
                f"{key} at frame {frame} reaches {metres.max():.6g}; allowed: metres, at most "
                f"{FARTHEST_M:g}. Are these millimetres?"
            )
        return np.rint(metres / UNIT_M).astype(np.uint16)
    if found.dtype.kind not in "iu" or found.min() < 0 or found.max() > np.iinfo(np.uint16).max:
        raise ForeignDataError(
            f"{key} at frame {frame} is {found.dtype}; allowed: floats in m, integers from 0 to "
            "65535 in mm."
        )
    if 0 < found.max() < NEAREST_FULL_MM:
        raise ForeignDataError(
            f"{key} at frame {frame} reaches {found.max()}; integers are millimetres. Are these "
            "metres?"
        )
    return found.astype(np.uint16)


def metres_of_codes(codes: Array, info: Mapping[str, Any]) -> Array:
    """Returns depth (...) in metres from LeRobot's codes (...) of 12 bits; code 0 becomes 0.

    LeRobot 0.6 stores the logarithm of depth plus a shift, or the depth, linearly between two
    limits. `info` is the description of the video in `info.json`.
    """
    names = ("video.depth_min", "video.depth_max", "video.shift", "video.use_log")
    for name in names:
        if name not in info:
            raise ForeignDataError(
                f"info.json lacks {name}, a parameter of the depth codes; required: "
                f"{', '.join(names)}."
            )
    low, high, shift, logarithmic = (info[name] for name in names)
    share = codes.astype(np.float64) / LARGEST_CODE
    if logarithmic:
        start = np.log(low + shift)
        end = np.log(high + shift)
        metres = np.exp(start + share * (end - start)) - shift
    else:
        metres = low + share * (high - low)
    return np.where(codes == 0, 0.0, metres)


PICTURES = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats of labelled images, as Pillow names them; it would try all others as well."""


def decoded_over(key: str, data: bytes, background: int) -> NDArray[np.uint8]:
    """Decodes an image of one of `PICTURES` in front of a grey `background`, 0 to 255.

    Messages contain `key`. Returns (H, W, 3) uint8.
    """
    image = optional_library("PIL.Image", package="pillow")
    try:
        with _no_bombs(image), image.open(io.BytesIO(data), formats=PICTURES) as opened:
            check_pixels(key, *opened.size)
            opened.load()
            if opened.mode in ("RGBA", "LA", "PA") or "transparency" in opened.info:
                behind = image.new("RGBA", opened.size, (background,) * 3 + (255,))
                behind.alpha_composite(opened.convert("RGBA"))
                return np.array(behind.convert("RGB"))
            return np.array(opened.convert("RGB"))
    except ForeignDataError:
        raise
    except (OSError, SyntaxError, ValueError, _BombError) as error:
        raise ForeignDataError(f"{key} does not decode: {error}.") from error
