"""The replay buffer of diffusion_policy (zarr format 2, concatenated episodes) and its cameras.

Layout: `data/<key>` (N, ...) for each series, `meta/episode_ends` (E,) cumulative. UMI compresses
images as JPEG XL.
"""

import itertools
import logging
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, DepthSource
from stringline.datasets.formats.checks import image
from stringline.datasets.formats.foreign import ForeignDataError, Frames, chosen_cameras
from stringline.datasets.formats.image_codecs import UNIT_M, check_pixels, counts
from stringline.datasets.formats.zarr_arrays import (
    NotNumbersError,
    ZarrArray,
    ZarrFiles,
    open_array,
)

UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)
ENDS = "meta/episode_ends"
_log = logging.getLogger(__name__)


class ReplayBuffer:
    """A replay buffer, open for reading."""

    def __init__(self, path: Path) -> None:
        """Opens a buffer and reads the ends of its episodes."""
        try:
            self._files = ZarrFiles(path)
            if self._files.json(".zgroup") is None:
                raise KeyError(".zgroup")
            array = open_array(self._files, ENDS)
            ends = array.rows(0, array.shape[0])
        except zipfile.BadZipFile as error:
            raise ValueError(
                f"{path} is not a complete zip file ({error}). Is it truncated?"
            ) from error
        except (KeyError, *UNREADABLE) as error:
            raise ValueError(
                f"{path} is not a replay buffer, a zarr 2 group with data and {ENDS} ({error})."
            ) from error
        if ends.ndim != 1 or ends.dtype.kind not in "iu" or (np.diff(ends, prepend=0) <= 0).any():
            raise ValueError(
                f"{path}: {ENDS} must be increasing integers; got {ends.dtype} {ends[:4]}..."
            )
        self.bounds = list(itertools.pairwise([0, *ends.tolist()]))
        opened = {key: self._open(key) for key in self._files.groups("data")}
        self._arrays = {key: array for key, array in opened.items() if array is not None}
        self.shapes = {key: array.shape for key, array in self._arrays.items()}

    def array(self, key: str) -> ZarrArray:
        """Returns the series `data/<key>`."""
        if key not in self._arrays:
            raise unknown_name("series", key, self._arrays)
        return self._arrays[key]

    def _open(self, key: str) -> ZarrArray | None:
        """Opens a series; None for one that has no numbers, such as strings."""
        try:
            return open_array(self._files, f"data/{key}")
        except NotNumbersError as error:
            _log.warning("data/%s is left out: %s.", key, error)
            return None
        except (KeyError, *UNREADABLE) as error:
            raise ValueError(f"data/{key} cannot be opened: {str(error).rstrip('.')}.") from error

    def offered(self) -> str:
        """Returns the series with their shapes, in words."""
        return ", ".join(f"{key} {shape[1:]}" for key, shape in self.shapes.items())

    def rows(self, key: str, start: int, stop: int, *, origin: int | None = None) -> Array:
        """Reads rows of a series; frames in messages count from `origin`, `start` by default."""
        array = self.array(key)
        origin = start if origin is None else origin
        if stop > array.shape[0]:
            raise ForeignDataError(
                f"data/{key} ends at frame {array.shape[0] - origin}, before the episode ends."
            )
        self._check_present(array, key, (start, stop, origin))
        try:
            return array.rows(start, stop)
        except UNREADABLE as error:
            frames = f"frames {start - origin} to {stop - origin - 1}"
            reason = str(error).rstrip(".")
            raise ForeignDataError(f"data/{key} cannot be read in {frames}: {reason}.") from error

    def each_row(self, key: str, start: int, stop: int) -> Iterator[Array]:
        """Yields rows of a series and reads them chunk by chunk."""
        chunk = self.array(key).chunks[0]
        ends = [*range(start - start % chunk + chunk, stop, chunk), stop]
        for first, last in itertools.pairwise([start, *ends]):
            yield from self.rows(key, first, last, origin=start)

    def _check_present(self, array: ZarrArray, key: str, wanted: tuple[int, int, int]) -> None:
        """Checks that all chunks exist: zarr means zeros, or a fill value, by missing ones."""
        start, stop, origin = wanted
        for place in array.places(start, stop):
            name = array.member(place)
            if not self._files.exists(name):
                frame = max(place[0] * array.chunks[0], start) - origin
                raise ForeignDataError(
                    f"data/{key} lacks the chunk of frame {frame} ({name}). Is the copy incomplete?"
                )


COLOURS = 3
UNIT_ATTRIBUTE = "depth_unit_m"  # Written by our exports; others store depth in m or mm.


@dataclass(frozen=True)
class ReplayCamera:
    """A camera of the contract and its series.

    `depth` is None without depth; `counted` means that it is stored in counts of the camera's unit.
    """

    camera: Camera
    colour: str
    depth: str | None
    counted: bool


def replay_cameras(
    buffer: ReplayBuffer, chosen: Mapping[str, str] | None, source: DepthSource
) -> list[ReplayCamera]:
    """Returns the cameras of a buffer: every series (N, H, W, 3), or the chosen ones.

    `chosen` maps series to names of cameras; `source` is the source of the depth.
    """
    images = [
        key for key, shape in buffer.shapes.items() if len(shape) == 4 and shape[3] == COLOURS
    ]
    named = chosen_cameras(chosen, images, "series with images")
    return [_camera(buffer, key, name, source) for key, name in named.items()]


def _camera(buffer: ReplayBuffer, key: str, name: str, source: DepthSource) -> ReplayCamera:
    height, width = buffer.shapes[key][1:3]
    check_pixels(f"data/{key}", width, height)
    depth = f"{key}_depth" if f"{key}_depth" in buffer.shapes else None
    unit = None if depth is None else buffer.array(depth).attributes.get(UNIT_ATTRIBUTE)
    camera = Camera(
        name, height, width, source if depth else None, float(unit or UNIT_M), has_geometry=False
    )
    return ReplayCamera(camera, key, depth, unit is not None)


def replay_images(
    buffer: ReplayBuffer, cameras: Sequence[ReplayCamera], bounds: tuple[int, int]
) -> dict[str, Frames]:
    """Returns functions that yield the frames of each camera in an episode, by key."""
    found: dict[str, Frames] = {}
    for entry in cameras:
        found[f"rgb/{entry.camera.name}"] = partial(_images, buffer, entry, bounds)
        if entry.depth is not None:
            found[f"depth/{entry.camera.name}"] = partial(
                _depths, buffer, entry, entry.depth, bounds
            )
    return found


def _images(buffer: ReplayBuffer, entry: ReplayCamera, bounds: tuple[int, int]) -> Iterator[Array]:
    for frame, row in enumerate(buffer.each_row(entry.colour, *bounds)):
        found = _bytes(entry.colour, frame, row)
        yield image(f"data/{entry.colour}", frame, found, entry.camera.height, entry.camera.width)


def _depths(
    buffer: ReplayBuffer, entry: ReplayCamera, key: str, bounds: tuple[int, int]
) -> Iterator[Array]:
    for frame, row in enumerate(buffer.each_row(key, *bounds)):
        if entry.counted and row.dtype == np.uint16:
            yield row
        else:
            yield counts(f"data/{key}", frame, row, entry.camera.height, entry.camera.width)


def _bytes(key: str, frame: int, row: Array) -> Array:
    """Returns an image as uint8; PushT of diffusion_policy stores floats from 0 to 255."""
    if row.dtype.kind != "f":
        return row
    if not (row.min() >= 0 and row.max() <= 255):
        raise ForeignDataError(
            f"data/{key} at frame {frame} has values from {row.min()} to {row.max()}; allowed: 0 "
            "to 255."
        )
    if 0 < row.max() <= 1:
        raise ForeignDataError(
            f"data/{key} at frame {frame} has values up to {row.max()}; allowed: 0 to 255. Is "
            "white 1?"
        )
    return np.rint(row).astype(np.uint8)
