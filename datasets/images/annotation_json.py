"""JSON files of COCO's layout: images, annotations and categories."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.images.image_files import read_colours
from stringline.datasets.images.omissions import Omissions, OmittedError
from stringline.datasets.images.reading import file_in

Plain = dict[str, Any]


@dataclass(frozen=True)
class AnnotationFile:
    """A JSON file of COCO's layout.

    Attributes:
        info: Description of the data set.
        images: The images.
        annotations: The annotations by the id of their image.
        categories: Names by id.
    """

    info: Plain
    images: list[Plain]
    annotations: Mapping[int | str | None, list[Plain]]
    categories: Mapping[int | str | None, object]

    @classmethod
    def read(cls, path: Path, omissions: Omissions) -> "AnnotationFile":
        """Reads a file; annotations without an image in it are left out.

        Raises:
            ForeignDataError: The file is not JSON, or lacks a list.
        """
        plain = _json(path)
        known = {_id(image.get("id")) for image in plain["images"]} - {None}
        annotations = defaultdict(list)
        for each in plain["annotations"]:
            if (image := _id(each.get("image_id"))) in known:
                annotations[image].append(each)
            else:
                omissions.add("annotations", "the file lists no such image", each.get("id"))
        names = {_id(each.get("id")): each.get("name") for each in plain.get("categories", ())}
        info = plain.get("info")
        return cls(info if isinstance(info, dict) else {}, plain["images"], annotations, names)

    def annotations_of(self, image: Plain) -> list[Plain]:
        """Returns the annotations of an image."""
        return self.annotations.get(_id(image.get("id")), [])

    def category_of(self, note: Plain) -> str | None:
        """Returns the name of the category of an annotation; None if it has no such name."""
        name = self.categories.get(_id(note.get("category_id")))
        return name if isinstance(name, str) and name.strip() else None


def _id(value: object) -> int | str | None:
    return value if isinstance(value, int | str) else None


def _json(path: Path) -> Plain:
    try:
        plain = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ForeignDataError(f"{path} is not a JSON file: {error}.") from error
    for name in ("images", "annotations", "categories"):
        entries = (
            plain.get(name, [] if name == "categories" else None)
            if isinstance(plain, dict)
            else None
        )
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ForeignDataError(
                f"{path} has no list {name!r}; required: images, annotations and categories, as "
                "in COCO."
            )
    return plain  # type: ignore[no-any-return]


def read_listed(folder: Path, image: Plain, file_name: object) -> NDArray[Any]:
    """Returns the pixels (H, W, 3) uint8 of an image whose size the JSON file tells.

    Raises:
        OmittedError: The file is missing, damaged, or has another size.
    """
    rgb = read_colours(file_in(folder, file_name))
    if (image.get("height"), image.get("width")) != rgb.shape[:2]:
        raise OmittedError("images", "their size is not that in the JSON file")
    return rgb
