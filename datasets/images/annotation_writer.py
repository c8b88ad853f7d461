"""Folders with PNG images and a JSON file of COCO's layout, from a store of images."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.formats.image_codecs import png
from stringline.datasets.images.annotation_json import Plain
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.labelled_image import LabelledImage, LabelledObject
from stringline.datasets.images.new_folder import new_folder
from stringline.datasets.images.omissions import Omissions, OmittedError

Describe = Callable[[LabelledImage, int], Plain]
"""Returns the entries of object number i of an image, or raises an OmittedError."""


class AnnotationWriter:
    """The lists of a JSON file, with numbers for images, annotations and categories."""

    def __init__(self, names: Iterable[str], omissions: Omissions) -> None:
        self.images: list[Plain] = []
        self.annotations: list[Plain] = []
        self._omissions = omissions
        self._categories = {name: number for number, name in enumerate(sorted(set(names)), 1)}

    def add(self, image: LabelledImage, entries: Plain, describe: Describe) -> int:
        """Adds an image and its objects, and returns the id of the image."""
        number = len(self.images) + 1
        height, width = image.rgb.shape[:2]
        self.images.append({"id": number, "width": width, "height": height, **entries})
        for row, each in enumerate(image.objects):
            try:
                described = describe(image, row)
            except OmittedError as error:
                self._omissions.add(error.part, error.reason, f"image {number}, {each.name}")
                continue
            self.annotations.append(
                {
                    "id": len(self.annotations) + 1,
                    "image_id": number,
                    "category_id": self._categories[each.name],
                    "iscrowd": 0,
                    **described,
                }
            )
        return number

    def write(self, path: Path, info: Plain) -> None:
        """Writes the JSON file."""
        plain = {"info": info, "images": self.images, "annotations": self.annotations}
        names = [{"id": number, "name": name} for name, number in self._categories.items()]
        path.write_text(json.dumps(plain | {"categories": names}))


def sides_of(each: LabelledObject, image: LabelledImage, row: int) -> Plain:
    """Returns `bbox` (x, y, width, height) and `area` of an object with a 2D box.

    The area is that of the segment, if it is known.
    """
    assert each.box2d is not None
    x0, y0, x1, y1 = each.box2d.tolist()
    area = (x1 - x0) * (y1 - y0)
    if image.segments is not None:
        area = int(np.count_nonzero(image.segments == row + 1))
    return {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": area}


def write_annotated(
    store: ImageStore,
    path: Path,
    write: Callable[[Iterable[tuple[str, LabelledImage]], Path, Omissions], Any],
) -> Omissions:
    """Writes a folder with `images/NAME.png` and what `write` adds; returns what is left out."""
    omissions = Omissions()
    with new_folder(path) as folder:
        (folder / "images").mkdir()

        def written() -> Iterable[tuple[str, LabelledImage]]:
            digits = len(str(len(store) - 1))
            for number in range(len(store)):
                image = store.image(number)
                name = f"images/{number:0{digits}}.png"
                (folder / name).write_bytes(png(image.rgb))
                yield name, image

        write(written(), folder, omissions)
    return omissions
