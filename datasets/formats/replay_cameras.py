"""The cameras of a replay buffer: which series hold pictures, which hold their depth."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stringline.datasets.contract import Array, Camera, DepthSource
from stringline.datasets.formats.checks import picture
from stringline.datasets.formats.depth import UNIT_M, counts
from stringline.datasets.formats.foreign import ForeignDataError, Frames
from stringline.datasets.formats.replay_buffer import ReplayBuffer
from stringline.datasets.names import unknown_name

COLOURS = 3
UNIT_ATTRIBUTE = "depth_unit_m"  # Our exports say it; others leave depth in m or mm.


@dataclass(frozen=True)
class ReplayCamera:
    """A camera of the contract and the series that feed it.

    Attributes:
        camera: The camera.
        colour: Series of its pictures.
        depth: Series of its depth, or None.
        counted: Whether depth is in counts of the camera's unit already.
    """

    camera: Camera
    colour: str
    depth: str | None
    counted: bool


def replay_cameras(buffer: ReplayBuffer, chosen: Mapping[str, str] | None, source: DepthSource) -> list[ReplayCamera]:
    """Returns the cameras of a buffer: every series (N, H, W, 3), or the chosen ones.

    Args:
        buffer: The data.
        chosen: Series to take, each with the camera's name; None takes all.
        source: Where depth comes from.

    Raises:
        ValueError: A series does not exist or holds no pictures.
    """
    pictures = [key for key, shape in buffer.shapes.items() if len(shape) == 4 and shape[3] == COLOURS]
    for key in chosen or ():
        if key not in pictures:
            raise unknown_name("series with pictures", key, pictures)
    return [_camera(buffer, key, name, source) for key, name in (chosen or {key: key for key in pictures}).items()]


def _camera(buffer: ReplayBuffer, key: str, name: str, source: DepthSource) -> ReplayCamera:
    height, width = buffer.shapes[key][1:3]
    depth = f"{key}_depth" if f"{key}_depth" in buffer.shapes else None
    unit = None if depth is None else buffer.array(depth).attrs.get(UNIT_ATTRIBUTE)
    camera = Camera(name, height, width, source if depth else None, float(unit or UNIT_M), has_geometry=False)
    return ReplayCamera(camera, key, depth, unit is not None)


def replay_pictures(buffer: ReplayBuffer, cameras: Sequence[ReplayCamera], bounds: tuple[int, int]) -> dict[str, Frames]:
    """Returns what starts a pass over the frames of each camera in an episode."""
    found: dict[str, Frames] = {}
    for entry in cameras:
        found[f"rgb/{entry.camera.name}"] = partial(_pictures, buffer, entry, bounds)
        if entry.depth is not None:
            found[f"depth/{entry.camera.name}"] = partial(_depths, buffer, entry, entry.depth, bounds)
    return found


def _pictures(buffer: ReplayBuffer, entry: ReplayCamera, bounds: tuple[int, int]) -> Iterator[Array]:
    for frame, row in enumerate(buffer.each_row(entry.colour, *bounds)):
        found = _bytes(entry.colour, frame, row)
        yield picture(f"data/{entry.colour}", frame, found, entry.camera.height, entry.camera.width)


def _depths(buffer: ReplayBuffer, entry: ReplayCamera, key: str, bounds: tuple[int, int]) -> Iterator[Array]:
    for frame, row in enumerate(buffer.each_row(key, *bounds)):
        if entry.counted and row.dtype == np.uint16:
            yield row
        else:
            yield counts(f"data/{key}", frame, row, entry.camera.height, entry.camera.width)


def _bytes(key: str, frame: int, row: Array) -> Array:
    """Returns a picture as uint8; diffusion_policy's PushT has floats from 0 to 255."""
    if row.dtype.kind != "f":
        return row
    if not (row.min() >= 0 and row.max() <= 255):
        raise ForeignDataError(f"data/{key} at frame {frame} has values from {row.min()} to {row.max()}; allowed: 0 to 255.")
    if 0 < row.max() <= 1:
        raise ForeignDataError(f"data/{key} at frame {frame} has values up to {row.max()}; allowed: 0 to 255. Is white 1?")
    return np.rint(row).astype(np.uint8)
