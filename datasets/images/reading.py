"""Reading of public layouts of labelled images, and their conversion to stores.

A reader lists references; each reads an image or clip, which may get another size. What cannot
be read is left out and counted by part and reason.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from stringline.datasets.cameras.resampling import (
    resample_colour,
    resample_depth,
    resample_intrinsics,
)
from stringline.datasets.contract.argument_checks import printable
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import decoded, decoded_over
from stringline.datasets.images.image_store import ImageStore, ImageWriter
from stringline.datasets.images.labelled_image import Item, LabelledClip, LabelledObject, check_item


class OmittedError(ForeignDataError):
    """An item that is left out, by the part at fault and the reason."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason


class Omissions:
    """What a reader leaves out: numbers by part and reason, each with its first example."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], str] = {}

    def add(self, part: str, reason: str, example: object, count: int = 1) -> None:
        """Counts parts that are left out; `example` names the first of them."""
        self.counts[part, reason] += count
        self._examples.setdefault((part, reason), str(example))

    def table(self) -> str:
        """Returns a table; empty if nothing was left out."""
        if not self.counts:
            return ""
        width = max(len(printable(part)) for part, _ in self.counts)
        digits = len(str(max(self.counts.values())))
        lines = [
            f"  {printable(part):<{width}}  {count:>{digits}}: {printable(reason)} (the first: "
            f"{printable(self._examples[part, reason])})\n"
            for (part, reason), count in sorted(self.counts.items())
        ]
        return f"Left out of the data:\n{''.join(lines)}"


WHITE = 255
_MOST_MM = np.iinfo(np.uint16).max


def read_colours(path: Path, background: int = WHITE) -> NDArray[np.uint8]:
    """Returns an image (H, W, 3) uint8 over a grey `background`, which transparent pixels show.

    Raises:
        OmittedError: The file is missing, truncated, or not an image.
    """
    try:
        return decoded_over(path.name, _bytes(path), background)
    except ForeignDataError as error:
        raise _damaged("images", error) from error


def read_depth(path: Path, unit_m: float) -> NDArray[np.uint16]:
    """Returns depth (H, W) uint16 in mm, 0 where unknown, from an image of 16 bits.

    Depth beyond 65.535 m becomes 0, unknown.

    Raises:
        OmittedError: The file is missing, truncated, has no 16 bits, or no pixel of it has a depth
            from 0.5 mm to 65.535 m in this unit.
    """
    try:
        counts = decoded(path.name, 0, _bytes(path))
    except ForeignDataError as error:
        raise _damaged("depth", error) from error
    if counts.ndim != 2 or counts.dtype != np.uint16:
        raise OmittedError("depth", "its images do not have one channel of 16 bits")
    millimetres = np.rint(counts * (unit_m * 1000.0))
    found = np.where(millimetres > _MOST_MM, 0, millimetres).astype(np.uint16)
    if counts.any() and not found.any():
        raise OmittedError(
            "depth", f"none of it is between 0.5 mm and 65.535 m with depth_unit_m={unit_m:g}"
        )
    return found


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OmittedError("images", "the file is missing") from error


def _damaged(part: str, error: ForeignDataError) -> OmittedError:
    if isinstance(error, OmittedError):
        return error
    return OmittedError(part, "truncated or damaged: the file does not decode")


def resized(item: Item, height: int, width: int) -> Item:
    """Returns an image or clip with fewer pixels; intrinsics and 2D boxes are scaled.

    Raises:
        OmittedError: It would have to be enlarged.
    """
    old = item.rgb.shape[-3:-1]
    if old == (height, width):
        return item
    if old[0] < height or old[1] < width:
        raise OmittedError("images", f"smaller than {height}x{width}")
    # Images are clips of one frame.
    rgb = resample_colour(item.rgb.reshape(-1, *item.rgb.shape[-3:]), height, width)
    shared: dict[str, Any] = {
        "rgb": rgb.reshape(*item.rgb.shape[:-3], height, width, 3),
        "depth": _resized(item.depth, height, width),
        "intrinsics": item.intrinsics
        if item.intrinsics is None
        else resample_intrinsics(item.intrinsics, (old[0], old[1]), (height, width)),
    }
    if isinstance(item, LabelledClip):
        return replace(item, **shared)
    return replace(
        item,
        **shared,
        clean_depth=_resized(item.clean_depth, height, width),
        segments=_resized(item.segments, height, width),
        objects=_scaled(item.objects, height / old[0], width / old[1]),
    )


def _resized(pixels: Array | None, height: int, width: int) -> Array | None:
    """Takes the nearest pixels: means lie between two surfaces, or between two objects."""
    if pixels is None:
        return None
    frames = resample_depth(pixels.reshape(-1, *pixels.shape[-2:]), height, width, "nearest")
    return frames.reshape(*pixels.shape[:-2], height, width)


def _scaled(
    objects: Sequence[LabelledObject], rows: float, columns: float
) -> tuple[LabelledObject, ...]:
    scale = np.array([columns, rows, columns, rows])
    return tuple(
        each if each.box2d is None else replace(each, box2d=each.box2d * scale) for each in objects
    )


IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class ItemReference:
    """The place of an image or clip; `read` decodes it, or raises a ForeignDataError."""

    name: str
    read: Callable[[], Item]


class ImageReader(Protocol):
    """A reader of a public layout."""

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the items of a data set without their pixels.

        What is left out, now or in `ItemReference.read`, is added to `omissions`.
        """
        ...


def read_items(
    reader: ImageReader,
    path: Path,
    omissions: Omissions,
    *,
    image_size: tuple[int, int] | None = None,
    quiet: bool = True,
) -> Iterator[Item]:
    """Yields the items of a data set one by one; those that cannot be read are left out.

    `image_size` is rows and columns; None means those of the data.

    Raises:
        ValueError: There is no data set, or nothing in it can be read.
    """
    if not path.exists():
        raise ValueError(f"There is no data set at {path}.")
    references = reader.references(path, omissions)
    if not references:
        raise ValueError(f"{path} has no images of this format. {omissions.table()}".strip())
    read = 0
    for reference in tqdm(references, "reading", unit="image", dynamic_ncols=True, disable=quiet):
        try:
            item = reference.read()
            if image_size is not None:
                item = resized(item, *image_size)
            check_item(item)
        except OmittedError as error:
            omissions.add(error.part, error.reason, reference.name)
            continue
        except ValueError as error:
            omissions.add("images", f"{error}".replace(reference.name, "it"), reference.name)
            continue
        read += 1
        yield item
    if not read:
        raise ValueError(
            f"None of the {len(references)} images of {path} can be read. {omissions.table()}"
        )


def files_below(folder: Path, suffixes: Iterable[str] = IMAGE_SUFFIXES) -> list[Path]:
    """Returns the files with one of the suffixes in a folder and its folders, sorted by path."""
    wanted = tuple(suffixes)
    return sorted(
        Path(at, name)
        for at, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(wanted) and not name.startswith(".")
    )


def file_in(folder: Path, name: object) -> Path:
    """Returns the path of a file that a data set names, below a folder.

    Raises:
        OmittedError: The name leaves the folder, or is not a text.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise OmittedError("images", "without the name of a file")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise OmittedError("images", "their path leaves the folder of the images")
    return folder / name


def convert_data_set(
    reader: ImageReader,
    path: Path,
    store: Path,
    omissions: Omissions,
    image_size: tuple[int, int] | None = None,
) -> ImageStore:
    """Writes a store with the images or clips of a data set, one by one, with a progress bar.

    Args:
        reader: Reader of the layout of the data set.
        path: Path of the data set.
        store: Path of the store, which must not exist.
        omissions: What is left out is added here.
        image_size: Rows and columns of the stored images; if None, as in the data.

    Raises:
        ValueError: There is no data set, nothing of it can be read, or the store exists.
    """
    with ImageWriter(store) as writer:
        for item in read_items(reader, path, omissions, image_size=image_size, quiet=False):
            if isinstance(item, LabelledClip):
                writer.add_clip(item)
            else:
                writer.add(item)
    return ImageStore(store)
