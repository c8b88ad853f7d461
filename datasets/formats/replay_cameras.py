"""The cameras of a replay buffer of diffusion_policy: series with images and depth."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats.checks import image
from stringline.datasets.formats.depth_series import DepthOptions, depth_counts, stored_unit
from stringline.datasets.formats.extra_series import LEAST_SIDE
from stringline.datasets.formats.foreign import ForeignDataError, Frames, chosen_cameras
from stringline.datasets.formats.image_codecs import UNIT_M, check_pixels
from stringline.datasets.formats.replay_buffer import ReplayBuffer

COLOURS = 3
COLOURS_AND_ALPHA = 4
UNIT_ATTRIBUTE = "depth_unit_m"  # Written by our exports.


@dataclass(frozen=True)
class ReplayCamera:
    """A camera of the contract and its series; `depth` is None without depth.

    `unit_m` are the metres per stored number of depth.
    """

    camera: Camera
    colour: str
    depth: str | None
    unit_m: float = UNIT_M


def replay_cameras(
    buffer: ReplayBuffer, chosen: Mapping[str, str] | None, options: DepthOptions
) -> list[ReplayCamera]:
    """Returns the cameras of a buffer: every series with images, or the chosen ones.

    Images are (N, H, W, 3), (N, H, W, 4) with alpha, or (N, 3, H, W).

    `chosen` maps series to names of cameras. Series of depth have `depth` in their name and the
    shape (N, H, W) or (N, H, W, 1).

    Raises:
        ValueError: The depth does not fit a camera, or has no unit.
    """
    images = [key for key, shape in buffer.shapes.items() if _image_size(shape)]
    depths = [
        key
        for key, shape in buffer.shapes.items()
        if "depth" in key.lower() and (len(shape) == 3 or (len(shape) == 4 and shape[3] == 1))
    ]
    named = chosen_cameras(chosen, images, "series with images")
    paired = options.paired(images, depths)
    return [_camera(buffer, key, name, paired.get(key), options) for key, name in named.items()]


def _image_size(shape: Sequence[int]) -> Sequence[int]:
    """Returns height and width of a series with images; empty for other series."""
    if len(shape) == 4 and shape[3] == COLOURS:
        return shape[1:3]
    # Transforms (N, K, 4, 4) are no images.
    if len(shape) == 4 and shape[3] == COLOURS_AND_ALPHA and min(shape[1:3]) >= LEAST_SIDE:
        return shape[1:3]
    if len(shape) == 4 and shape[1] == COLOURS and min(shape[2:]) >= LEAST_SIDE:
        return shape[2:]
    return ()


def _camera(
    buffer: ReplayBuffer, key: str, name: str, depth: str | None, options: DepthOptions
) -> ReplayCamera:
    height, width = _image_size(buffer.shapes[key])
    check_pixels(f"data/{key}", width, height)
    if depth is None:
        return ReplayCamera(Camera(name, height, width, has_geometry=False), key, None)
    if tuple(buffer.shapes[depth][1:3]) != (height, width):
        raise ValueError(
            f"data/{depth} has images of {buffer.shapes[depth][1:3]}, data/{key} of "
            f"{(height, width)}; allowed: depth that is aligned with the colours."
        )
    array = buffer.array(depth)
    unit = options.unit_of(f"data/{depth}", array.attributes.get(UNIT_ATTRIBUTE))
    stored = stored_unit(array.dtype, unit)
    camera = Camera(name, height, width, options.checked_source, stored, has_geometry=False)
    return ReplayCamera(camera, key, depth, unit)


def other_series(
    buffer: ReplayBuffer,
    used: Collection[str],
    cameras: Sequence[ReplayCamera],
    bounds: tuple[int, int],
) -> tuple[dict[str, Array], dict[str, str]]:
    """Returns further series of an episode, see `ReplayBuffer.others`, and what is left out."""
    images = [key for each in cameras for key in (each.colour, each.depth) if key]
    found, left_out = buffer.others(used, images, bounds)
    for camera in cameras:
        if buffer.shapes[camera.colour][-1] == COLOURS_AND_ALPHA:
            left_out[f"alpha of {camera.colour}"] = "transparency"
    return found, left_out


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
        colours_last = (
            row if row.shape[-1] in (COLOURS, COLOURS_AND_ALPHA) else row.transpose(1, 2, 0)
        )
        found = _bytes(entry.colour, frame, colours_last[..., :COLOURS])
        yield image(f"data/{entry.colour}", frame, found, entry.camera.height, entry.camera.width)


def _depths(
    buffer: ReplayBuffer, entry: ReplayCamera, key: str, bounds: tuple[int, int]
) -> Iterator[Array]:
    camera = entry.camera
    size = camera.height, camera.width
    for frame, row in enumerate(buffer.each_row(key, *bounds)):
        where = f"data/{key}", frame
        yield depth_counts(where, row, size, entry.unit_m, camera.depth_unit_m)


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
