"""Image folders: a folder for each class."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stringline.datasets.images.image_files import read_colours
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.datasets.images.omissions import Omissions
from stringline.datasets.images.reading import ItemReference, files_below


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """Reads `CLASS/.../NAME.png` and other image files.

    The label is the first folder below the path; images directly in the path have none.
    """

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images, sorted by path."""
        return [
            ItemReference(f"{file.relative_to(path)}", partial(_read, path, file))
            for file in files_below(path)
        ]


def _read(path: Path, file: Path) -> LabelledImage:
    return LabelledImage(rgb=read_colours(file), label=class_of(path, file))


def class_of(path: Path, file: Path) -> str | None:
    """Returns the first folder below `path` on the way to a file; None without one."""
    folders = file.relative_to(path).parts[:-1]
    return folders[0] if folders else None
