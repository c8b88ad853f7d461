"""The replay buffer of diffusion_policy (zarr format 2, concatenated episodes) and its cameras.

Layout: `data/<key>` (N, ...) for each series, `meta/episode_ends` (E,) cumulative. UMI compresses
images as JPEG XL.
"""

import itertools
import lzma
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_OMITTED_BYTES, MOST_OMITTED_CHUNKS
from stringline.datasets.formats.extra_series import Described, extra_series
from stringline.datasets.formats.foreign import ForeignDataError
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
NO_NUMBERS = "no numbers"


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
        found, left_out = extra_series(
            offered, lambda key: self.rows(key, *bounds), bounds[1] - bounds[0]
        )
        left_out |= dict.fromkeys(self._others, NO_NUMBERS)
        for key in [*taken, *(name for name in offered if name not in left_out)]:
            if self._omitted(key, *bounds):
                left_out[f"chunks of {key}"] = "not stored; read as the fill value"
        return found, left_out

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
