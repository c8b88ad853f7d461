"""The replay buffer of diffusion_policy (zarr format 2, concatenated episodes) and its cameras.

Layout: `data/<key>` (N, ...) for each series, `meta/episode_ends` (E,) cumulative. UMI
compresses images as JPEG XL. Cameras are series with images and depth.

Raw recordings have videos beside the numbers, `videos/<episode>/<camera>.mp4`: diffusion_policy
records them with `replay_buffer.zarr` (Chi et al., 2023); step k of an episode saw the frame at
k divided by the control rate, as in its `real_data_to_replay_buffer`.
"""

import itertools
import lzma
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera
from stringline.datasets.files.limits import MOST_OMITTED_BYTES, MOST_OMITTED_CHUNKS
from stringline.datasets.formats.checks import image, inside, visible_files
from stringline.datasets.formats.foreign import (
    LEAST_SIDE,
    NO_NUMBERS,
    Described,
    ForeignDataError,
    Frames,
    chosen_cameras,
    extra_series,
)
from stringline.datasets.formats.image_codecs import (
    UNIT_M,
    DepthOptions,
    check_pixels,
    depth_counts,
    stored_unit,
)
from stringline.datasets.formats.video import frames_at, size_and_rate
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


class ReplayBuffer:
    """A replay buffer, open for reading."""

    def __init__(self, path: Path) -> None:
        """Opens a buffer and reads the ends of its episodes."""
        try:
            self.path = path
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
        self._others = [key for key, array in opened.items() if array is None]
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
        except NotNumbersError:
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
        lost = self._omitted(key, start, stop)
        if array.fill_value is None and lost:
            frame = max(lost[0][0], start) - origin
            raise ForeignDataError(
                f"data/{key} lacks the chunk of frame {frame} ({lost[0][1]}). Is the copy "
                "incomplete?"
            )
        try:
            return array.rows(start, stop)
        except UNREADABLE as error:
            frames = f"frames {start - origin} to {stop - origin - 1}"
            reason = str(error).rstrip(".")
            raise ForeignDataError(f"data/{key} cannot be read in {frames}: {reason}.") from error

    def others(
        self, used: Collection[str], images: Collection[str], bounds: tuple[int, int]
    ) -> tuple[dict[str, Array], dict[str, str]]:
        """Returns further series of an episode, see `extra_series`, and what is left out.

        `used` are the series that have been read, `images` those of the cameras.
        """
        taken = {*used, *images}
        offered = {
            key: Described((bounds[1] - bounds[0], *shape[1:]), self.array(key).dtype)
            for key, shape in self.shapes.items()
            if key not in taken
        }
        found, skipped_fields = extra_series(
            offered, lambda key: self.rows(key, *bounds), bounds[1] - bounds[0]
        )
        skipped_fields |= dict.fromkeys(self._others, NO_NUMBERS)
        for key in [*taken, *(name for name in offered if name not in skipped_fields)]:
            if self._omitted(key, *bounds):
                skipped_fields[f"chunks of {key}"] = "not stored; read as the fill value"
        return found, skipped_fields

    def each_row(self, key: str, start: int, stop: int) -> Iterator[Array]:
        """Yields rows of a series and reads them chunk by chunk."""
        chunk = self.array(key).chunks[0]
        ends = [*range(start - start % chunk + chunk, stop, chunk), stop]
        for first, last in itertools.pairwise([start, *ends]):
            yield from self.rows(key, first, last, origin=start)

    def _omitted(self, key: str, start: int, stop: int) -> list[tuple[int, str]]:
        """Returns the first row and the file of each chunk that does not exist.

        zarr does not store chunks that only contain the fill value.

        Raises:
            ForeignDataError: They are so large or so many that a few bytes would take long to read.
        """
        array = self.array(key)
        found: list[tuple[int, str]] = []
        for place in array.places(start, stop):
            name = array.member(place)
            if self._files.exists(name):
                continue
            found.append((place[0] * array.chunks[0], name))
            size = len(found) * array.chunk_bytes
            if len(found) > MOST_OMITTED_CHUNKS or size > MOST_OMITTED_BYTES:
                raise ForeignDataError(
                    f"data/{key} lacks {len(found)} chunks of {array.chunk_bytes} bytes or more; "
                    f"allowed: {MOST_OMITTED_CHUNKS} chunks, {MOST_OMITTED_BYTES} bytes. Is the "
                    "copy incomplete?"
                )
        return found


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
    found, skipped_fields = buffer.others(used, images, bounds)
    for camera in cameras:
        if buffer.shapes[camera.colour][-1] == COLOURS_AND_ALPHA:
            skipped_fields[f"alpha of {camera.colour}"] = "transparency"
    return found, skipped_fields


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


BUFFER = "replay_buffer.zarr"
FOLDER = "videos"


def recorded_buffer(path: Path) -> Path:
    """Returns the replay buffer of a recording, given its folder or the buffer itself."""
    return inside(path, path / BUFFER) if (path / BUFFER).is_dir() else path


def recorded_videos(buffer: Path) -> Path | None:
    """Returns the folder of the videos beside a replay buffer, or None."""
    folder = buffer.resolve().parent / FOLDER
    return folder if visible_files(inside(folder.parent, folder), "*/*.mp4") else None


def video_cameras(
    folder: Path, number: int, chosen: Mapping[str, str] | None, times: Array
) -> dict[str, tuple[Camera, Frames]]:
    """Returns the cameras of an episode by the name of their file, and functions with their frames.

    Args:
        folder: The folder `videos`.
        number: Number of the episode.
        chosen: New name of the camera by the name of the file; None takes all files.
        times: (T,) s since the beginning of the videos.

    Raises:
        ForeignDataError: The episode has no videos, or a file cannot be read.
    """
    found_files = visible_files(folder / str(number), "*.mp4")
    files = {path.stem: inside(folder.parent, path) for path in found_files}
    if not files:
        raise ForeignDataError(f"There are no videos of it in {folder / str(number)}.")
    found: dict[str, tuple[Camera, Frames]] = {}
    for name, new in chosen_cameras(chosen, list(files), "video").items():
        key = f"{FOLDER}/{number}/{name}"
        height, width, fps = size_and_rate(files[name], key)
        frames = partial(frames_at, files[name], key, times, fps=fps)
        found[name] = (Camera(new, height, width, has_geometry=False), frames)
    return found
