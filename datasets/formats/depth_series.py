"""Depth of foreign data: the series that belongs to a camera, and its unit."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE, unknown_name
from stringline.datasets.contract.contract import Array, DepthSource
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import (
    FARTHEST_M,
    NEAREST_FULL_MM,
    UNIT_M,
    checked_source,
)

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
            stated_m: The unit in the data, if they contain it.

        Raises:
            ValueError: Neither the data nor the options contain it, or they differ.
        """
        if stated_m is not None and stated_m not in POSITIVE:
            raise ValueError(f"{key} has a unit of {stated_m!r} by itself; allowed: {POSITIVE}.")
        unit = self.unit_m if stated_m is None else stated_m
        if unit is None:
            raise ValueError(
                f"{key} does not contain its unit; set format.depth_unit_m, metres per stored "
                f"number: {_UNITS}. format.depth={{}} leaves depth out."
            )
        if self.unit_m is not None and self.unit_m != unit:
            raise ValueError(
                f"{key} has a unit of {unit:g} m by itself; format.depth_unit_m is "
                f"{self.unit_m:g}. Leave the option out."
            )
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
