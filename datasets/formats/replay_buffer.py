"""The replay buffer of diffusion_policy (zarr format 2, concatenated episodes) and its cameras.

Layout: `data/<key>` (N, ...) for each series, `meta/episode_ends` (E,) cumulative. UMI compresses
images as JPEG XL.
"""

import itertools
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.formats.checks import image
from stringline.datasets.formats.depth_series import DepthOptions, depth_counts, stored_unit
from stringline.datasets.formats.extra_series import LEAST_SIDE, Described, extra_series
from stringline.datasets.formats.foreign import ForeignDataError, Frames, chosen_cameras
from stringline.datasets.formats.image_codecs import UNIT_M
from stringline.datasets.formats.libraries import optional_library

UNREADABLE = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile)
IMAGE_CODECS = ("jpeg", "jpeg2k", "jpegxl", "png", "webp")
IMAGE_CODECS_MISSING = 'Compressed images need: pip install "stringline[formats]"'
ENDS = "meta/episode_ends"


class ReplayBuffer:
    """A replay buffer, open for reading."""

    def __init__(self, path: Path) -> None:
        """Opens a buffer and reads the ends of its episodes."""
        zarr = optional_library("zarr")
        _register_image_codecs()
        self.path = path
        self._members: set[str] | None = None
        try:
            store: Any = path
            if path.is_file():
                with zipfile.ZipFile(path) as archive:
                    self._members = set(archive.namelist())
                store = optional_library("zarr.storage").ZipStore(path, mode="r")
            self._group = zarr.open_group(store, mode="r", zarr_format=2)
            ends = np.asarray(self._group[ENDS][:])
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
        self.shapes = {key: self.array(key).shape for key in self._keys()}

    def array(self, key: str) -> Any:
        """Returns the series `data/<key>`."""
        if key not in self._keys():
            raise unknown_name("series", key, self._keys())
        try:
            return self._group[f"data/{key}"]
        except (TypeError, *UNREADABLE) as error:  # TypeError: unknown setting of a codec.
            missing = find_spec("imagecodecs") is None and "imagecodecs" in str(error)
            hint = f" {IMAGE_CODECS_MISSING}" if missing else ""
            raise ValueError(f"data/{key} cannot be opened: {error}.{hint}") from error

    def _keys(self) -> list[str]:
        """Returns the names of the series without opening them, since a codec may be missing."""
        if self._members is None:
            return sorted(folder.parent.name for folder in self.path.glob("data/*/.zarray"))
        return sorted(
            name.split("/")[1]
            for name in self._members
            if re.fullmatch(r"data/[^/]+/\.zarray", name)
        )

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
        if array.metadata.fill_value is None and (lost := self._omitted(key, start, stop)):
            frame = max(lost[0][0], start) - origin
            raise ForeignDataError(
                f"data/{key} lacks the chunk of frame {frame} ({lost[0][1]}). Is the copy "
                "incomplete?"
            )
        try:
            return np.asarray(array[start:stop])
        except UNREADABLE as error:
            frames = f"frames {start - origin} to {stop - origin - 1}"
            raise ForeignDataError(f"data/{key} cannot be read in {frames}: {error}.") from error

    def others(
        self, used: Collection[str], cameras: Sequence["ReplayCamera"], bounds: tuple[int, int]
    ) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns further series of an episode, see `extra_series`, and what is left out.

        `used` are the series that have been read, besides those of the cameras.
        """
        taken = {*used, *(key for each in cameras for key in (each.colour, each.depth) if key)}
        offered = {
            key: Described((bounds[1] - bounds[0], *shape[1:]), self.array(key).dtype)
            for key, shape in self.shapes.items()
            if key not in taken
        }
        found, left_out = extra_series(
            offered, lambda key: self.rows(key, *bounds), bounds[1] - bounds[0]
        )
        for key in [*taken, *(name for name in offered if name not in left_out)]:
            if self._omitted(key, *bounds):
                left_out[f"chunks of {key}"] = "not stored; read as the fill value"
        for camera in cameras:
            if self.shapes[camera.colour][-1] == COLOURS_AND_ALPHA:
                left_out[f"alpha of {camera.colour}"] = "transparency"
        return found, left_out

    def each_row(self, key: str, start: int, stop: int) -> Iterator[Array]:
        """Yields rows of a series and reads them chunk by chunk."""
        chunk = int(self.array(key).chunks[0])
        ends = [*range(start - start % chunk + chunk, stop, chunk), stop]
        for first, last in itertools.pairwise([start, *ends]):
            yield from self.rows(key, first, last, origin=start)

    def _omitted(self, key: str, start: int, stop: int) -> list[tuple[int, str]]:
        """Returns the first row and the file of each chunk that does not exist.

        zarr does not store chunks that only contain the fill value.
        """
        array = self.array(key)
        found = []
        along = [
            range(-(-length // chunk))
            for length, chunk in zip(array.shape[1:], array.chunks[1:], strict=True)
        ]
        rows = int(array.chunks[0])
        for place in itertools.product(range(start // rows, -(-stop // rows)), *along):
            name = f"data/{key}/{array.metadata.dimension_separator.join(map(str, place))}"
            if self._members is None:
                present = (self.path / name).exists()
            else:
                present = name in self._members
            if not present:
                found.append((place[0] * rows, name))
        return found


def _register_image_codecs() -> None:
    """Registers the image codecs with zarr if they are installed."""
    try:
        codecs = optional_library("imagecodecs.numcodecs", package="imagecodecs")
    except ValueError:
        return
    codecs.register_codecs([f"imagecodecs_{name}" for name in IMAGE_CODECS], verbose=False)


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
    if depth is None:
        return ReplayCamera(Camera(name, height, width, has_geometry=False), key, None)
    if tuple(buffer.shapes[depth][1:3]) != (height, width):
        raise ValueError(
            f"data/{depth} has images of {buffer.shapes[depth][1:3]}, data/{key} of "
            f"{(height, width)}; allowed: depth that is aligned with the colours."
        )
    array = buffer.array(depth)
    unit = options.unit_of(f"data/{depth}", array.attrs.get(UNIT_ATTRIBUTE))
    stored = stored_unit(array.dtype, unit)
    camera = Camera(name, height, width, options.checked_source, stored, has_geometry=False)
    return ReplayCamera(camera, key, depth, unit)


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
