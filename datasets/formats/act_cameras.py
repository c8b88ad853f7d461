"""The cameras of an episode of ACT's HDF5: colours and depth, raw or encoded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats import hdf5
from stringline.datasets.formats.checks import image
from stringline.datasets.formats.depth_series import DepthOptions, depth_counts, stored_unit
from stringline.datasets.formats.foreign import ForeignDataError, Frames, chosen_cameras
from stringline.datasets.formats.image_codecs import UNIT_M, check_pixels, decoded

IMAGES = "observations/images"
DEPTHS = "observations/images_depth"
COLOURS = 3


@dataclass(frozen=True)
class ActCamera:
    """A camera of the contract and its data sets; `depth` is None without depth.

    `unit_m` are the metres per stored number of depth.
    """

    camera: Camera
    colour: str
    depth: str | None = None
    unit_m: float = UNIT_M

    @property
    def keys(self) -> list[str]:
        """The data sets."""
        return [self.colour, *([self.depth] if self.depth else [])]


def act_cameras(
    file: Any, chosen: Mapping[str, str] | None, options: DepthOptions
) -> list[ActCamera]:
    """Returns the cameras of an open file: all, or the `chosen` ones with their new names.

    Raises:
        ForeignDataError: A data set has no images, or depth belongs to no camera.
        ValueError: The unit of the depth is not given.
    """
    colours, depths = (hdf5.members(file, group) for group in (IMAGES, DEPTHS))
    try:
        paired = options.paired(colours, depths)
    except ValueError as error:  # Of this file; the next one may have all cameras.
        raise ForeignDataError(str(error)) from None
    return [
        _camera(file, name, new, paired.get(name), options)
        for name, new in chosen_cameras(chosen, colours).items()
    ]


def act_images(path: Path, cameras: Sequence[ActCamera], *, swap: bool) -> dict[str, Frames]:
    """Returns functions that yield the frames of each camera by key; `swap` red and blue."""
    found: dict[str, Frames] = {}
    for entry in cameras:
        found[f"rgb/{entry.camera.name}"] = partial(_colours, path, entry, swap=swap)
        if entry.depth is not None:
            found[f"depth/{entry.camera.name}"] = partial(_depths, path, entry, entry.depth)
    return found


def _camera(file: Any, name: str, new: str, depth: str | None, options: DepthOptions) -> ActCamera:
    colour = f"{IMAGES}/{name}"
    first = _first(file, colour)
    if first.ndim != 3 or first.shape[2] != COLOURS:
        raise ForeignDataError(
            f"{colour} has frames of shape {first.shape}; allowed: (H, W, 3), or JPEG."
        )
    height, width = first.shape[:2]
    check_pixels(colour, width, height)
    if depth is None:
        return ActCamera(Camera(new, height, width, has_geometry=False), colour)
    key = f"{DEPTHS}/{depth}"
    behind = _first(file, key)
    if behind.shape[:2] != (height, width):
        raise ForeignDataError(
            f"{key} has frames of shape {behind.shape}, {colour} of {first.shape}; allowed: depth "
            "that is aligned with the colours."
        )
    unit = options.unit_of(key, None)
    stored = stored_unit(behind.dtype, unit)
    camera = Camera(new, height, width, options.checked_source, stored, has_geometry=False)
    return ActCamera(camera, colour, key, unit)


def _first(file: Any, key: str) -> Array:
    """Returns the first frame of a data set."""
    rows = hdf5.rows(hdf5.dataset(file, key), key, 0, 1)
    if not len(rows):
        raise ForeignDataError(f"{key} has no frames.")
    return _decoded(key, 0, rows[0])


def _colours(path: Path, entry: ActCamera, *, swap: bool) -> Iterator[Array]:
    camera = entry.camera
    for frame, row in hdf5.each_row(path, entry.colour):
        found = _decoded(entry.colour, frame, row)
        found = image(entry.colour, frame, found, camera.height, camera.width)
        yield found[..., ::-1] if swap else found


def _depths(path: Path, entry: ActCamera, key: str) -> Iterator[Array]:
    camera = entry.camera
    size = camera.height, camera.width
    for frame, row in hdf5.each_row(path, key):
        found = _decoded(key, frame, row)
        yield depth_counts((key, frame), found, size, entry.unit_m, camera.depth_unit_m)


def _decoded(key: str, frame: int, row: Any) -> Array:
    """Returns the image of a raw or encoded row."""
    found = np.frombuffer(row, np.uint8) if isinstance(row, bytes) else np.asarray(row)
    return decoded(key, frame, found.tobytes()) if found.ndim == 1 else found
