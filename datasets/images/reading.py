"""Readers of public layouts of labelled images."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tqdm import tqdm

from stringline.datasets.images.labelled_checks import check_item
from stringline.datasets.images.labelled_image import Item
from stringline.datasets.images.omissions import Omissions, OmittedError
from stringline.datasets.images.resizing import resized

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
