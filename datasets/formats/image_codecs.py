"""Image files (JPEG, PNG, TIFF), and foreign depth images along the optical axis.

Pillow reads only the named formats, and the size of an image is checked before it is decoded.
Depth has a series that belongs to a camera, and a unit, which most files do not contain.
"""

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name
from stringline.datasets.contract.contract import Array, DepthSource
from stringline.datasets.files.limits import MOST_PIXELS
from stringline.datasets.formats.foreign import ForeignDataError

FORMATS = ("JPEG", "PNG", "TIFF")
_log = logging.getLogger(__name__)


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
        raise ForeignDataError(
            f"{key} at frame {frame} does not decode: {_why(data, FORMATS, error)}."
        ) from error


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
        raise ForeignDataError(f"an image does not decode: {_why(data, (kind,), error)}") from error


def _why(data: bytes, formats: Sequence[str], error: Exception) -> str:
    """Returns why an image does not decode; Pillow only names the object that held its bytes."""
    if type(error).__name__ != "UnidentifiedImageError":
        return str(error)
    begins = f"begin with {data[:8].hex(' ')}" if data else "are missing"
    return f"its {len(data)} bytes {begins}, no image of {', '.join(formats)}"


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
        raise ForeignDataError(f"{key} does not decode: {_why(data, PICTURES, error)}.") from error


# Words in the names of series that do not tell one camera from another.
_WORDS = {"rgb", "color", "colors", "colour", "image", "images", "img", "camera", "cam", "depth"}
_UNITS = "0.001 for millimetres, 1 for metres"


@dataclass(frozen=True)
class DepthOptions:
    """The options of an import for depth.

    Attributes:
        series: Series of depth by series of colours; None pairs them by their names, and an empty
            mapping leaves all depth out.
        unit_m: Metres per stored number; None reads it from the data.
        source: Source of the depth: `measured`, `simulated` or `estimated`.
    """

    series: Mapping[str, str] | None = None
    unit_m: float | None = None
    source: str = "measured"

    def __post_init__(self) -> None:
        """Checks the unit and the source."""
        checked_source(self.source)
        if self.unit_m is not None:
            POSITIVE.check(**{"format.depth_unit_m": self.unit_m})

    @property
    def checked_source(self) -> DepthSource:
        """The source."""
        return checked_source(self.source)

    def unit_of(self, key: str, stated_m: float | None) -> float:
        """Returns the metres per stored number of a series.

        Args:
            key: Name of the series in messages.
            stated_m: The unit in the data, if they contain it. The option has priority over it,
                with a message if they differ.

        Raises:
            ValueError: Neither the data nor the options contain it.
        """
        if stated_m is not None and stated_m not in POSITIVE:
            raise ValueError(f"{key} has a unit of {stated_m!r} by itself; allowed: {POSITIVE}.")
        unit = stated_m if self.unit_m is None else self.unit_m
        if unit is None:
            raise ValueError(
                f"{key} does not contain its unit; set format.depth_unit_m, metres per stored "
                f"number: {_UNITS}. format.depth={{}} leaves depth out."
            )
        if stated_m is not None and stated_m != unit:
            _tell(f"{key}: {unit:g} m per number (format.depth_unit_m); the data say {stated_m:g}.")
        return float(unit)

    def paired(self, colours: Sequence[str], depths: Sequence[str]) -> dict[str, str]:
        """Returns the series of depth of each series of colours that has one.

        By default, the names are equal apart from words such as `image` and `depth`: `camera_0` and
        `depth_0`, `img` and `img_depth`.

        Raises:
            ValueError: A series does not exist, is that of two cameras, or belongs to none.
        """
        if self.series is not None:
            for colour, depth in self.series.items():
                if colour not in colours:
                    raise unknown_name("series with images", colour, colours)
                if depth not in depths:
                    raise unknown_name("series with depth", depth, depths)
            return dict(self.series)
        found: dict[str, str] = {}
        for depth in depths:
            named = [colour for colour in colours if depth in (colour, f"{colour}_depth")]
            owners = named or [name for name in colours if _essence(name) == _essence(depth)]
            if len(owners) != 1 or owners[0] in found:
                raise ValueError(
                    f"The depth series {depth!r} belongs to no camera by its name; set "
                    f"format.depth={{COLOUR: {depth}}}, or {{}} to leave depth out. Colours: "
                    f"{', '.join(colours) or 'none'}."
                )
            found[owners[0]] = depth
        return found


@lru_cache(64)
def _tell(sentence: str) -> None:
    """Logs a sentence once: the unit is asked for again with each episode."""
    _log.warning("%s", sentence)


def _essence(name: str) -> tuple[str, ...]:
    """Returns the parts of the name of a series without common words."""
    parts = re.findall(r"[a-z]+|\d+", name.lower())
    return tuple(part for part in parts if part not in _WORDS)


def stored_unit(dtype: np.dtype[Any], unit_m: float) -> float:
    """Returns the unit in which depth is stored: that of the data for integers up to 1 mm."""
    return unit_m if dtype.kind in "iu" and unit_m <= UNIT_M else UNIT_M


def depth_counts(
    where: tuple[str, int],
    depth: Array,
    size: tuple[int, int],
    unit_m: float,
    stored_m: float = UNIT_M,
) -> Array:
    """Returns a depth image (H, W) uint16; 0 is no return.

    Args:
        where: Name of the series and number of the frame, for messages.
        depth: (H, W) or (H, W, 1), finite and not negative.
        size: H and W.
        unit_m: Metres per number.
        stored_m: Metres per number of the result.

    Raises:
        ForeignDataError: Another shape or type, or values that suggest another unit.
    """
    found = depth[..., 0] if depth.ndim == 3 and depth.shape[-1] == 1 else depth
    frame = f"{where[0]} at frame {where[1]}"
    if found.shape != size or found.dtype.kind not in "iuf":
        raise ForeignDataError(
            f"{frame} is {found.dtype} {depth.shape}; allowed: floats or integers of {size}."
        )
    if not (found >= 0).all():
        raise ForeignDataError(f"{frame} has values that are negative or not finite.")
    largest = float(found.max(initial=0)) * unit_m
    whole = found.dtype.kind != "f"
    if largest > (np.iinfo(np.uint16).max * stored_m if whole else FARTHEST_M):
        raise ForeignDataError(
            f"{frame} reaches {largest:.6g} m at {unit_m:g} m per number; allowed: at most "
            f"{FARTHEST_M:g}. Is format.depth_unit_m right: {_UNITS}?"
        )
    if not whole and 0 < 1e3 * largest < NEAREST_FULL_MM:
        raise ForeignDataError(
            f"{frame} reaches {1e3 * largest:.6g} mm at {unit_m:g} m per number; expected: at "
            f"least {NEAREST_FULL_MM}. Is format.depth_unit_m right: {_UNITS}?"
        )
    if whole and unit_m == stored_m:
        return found.astype(np.uint16)
    return np.rint(np.asarray(found, np.float64) * (unit_m / stored_m)).astype(np.uint16)
