"""COCO's JSON (Lin et al., 2014): 2D boxes and captions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.images.annotation_json import AnnotationFile, Plain, read_listed
from stringline.datasets.images.labelled_image import LabelledImage, LabelledObject
from stringline.datasets.images.omissions import Omissions
from stringline.datasets.images.reading import ItemReference

_ROUNDING_PX = 1.0  # Boxes of COCO reach beyond their images by as much.


@dataclass(frozen=True, kw_only=True)
class CocoImages:
    """Reads a file `instances_*.json` or `captions_*.json`.

    Crowds (`iscrowd`), and objects without a category or without a box in the image, are left out.
    Of boxes that reach beyond the image, the part in the image is kept.
    Segmentations are not read.

    Attributes:
        images: Folder of the images; None: that of the JSON file.
        captions: A file `captions_*.json` of the same images; None: only what the first file has.
    """

    images: str | None = None
    captions: str | None = None

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images of the JSON file, also those without objects.

        Raises:
            ForeignDataError: A file is not COCO's JSON.
        """
        known = AnnotationFile.read(path, omissions)
        files = [known]
        if self.captions is not None:
            files.append(AnnotationFile.read(Path(self.captions), omissions))
        folder = path.parent if self.images is None else Path(self.images)
        found = []
        for image in known.images:
            texts = _captions(note for file in files for note in file.annotations_of(image))
            read = partial(_read, folder, image, known, texts, omissions)
            found.append(ItemReference(str(image.get("file_name")), read))
        return found


def _read(
    folder: Path,
    image: Plain,
    known: AnnotationFile,
    captions: tuple[str, ...],
    omissions: Omissions,
) -> LabelledImage:
    rgb = read_listed(folder, image, image.get("file_name"))
    objects = []
    for note in known.annotations_of(image):
        if "caption" in note:
            continue
        name = known.category_of(note)
        box = box_of_sides(note.get("bbox"))
        inside = None if box is None else _inside(box, rgb.shape)
        where = f"annotation {note.get('id')}"
        if note.get("iscrowd"):
            omissions.add("objects", "crowds (iscrowd)", where)
        elif name is None:
            omissions.add("objects", "their category is not in the file", where)
        elif box is None:
            omissions.add("objects", "without a box, or of no area", where)
        elif inside is None:
            omissions.add("objects", "their box is outside of the image", where)
        else:
            if np.abs(inside - box).max() > _ROUNDING_PX:
                omissions.add("parts of boxes", "beyond the image", where)
            objects.append(LabelledObject(name=name, box2d=inside))
            if note.get("segmentation"):
                omissions.add("segmentations", "only boxes are read", where)
    return LabelledImage(rgb=rgb, captions=captions, objects=tuple(objects))


def _captions(notes: Iterable[Plain]) -> tuple[str, ...]:
    texts = (note["caption"] for note in notes if isinstance(note.get("caption"), str))
    return tuple(text.strip() for text in texts if text.strip())


def _inside(box: np.ndarray, shape: Sequence[int]) -> np.ndarray | None:
    """Returns the part of a box in an image (rows, columns, ...); None without one."""
    part = np.clip(box, 0, [shape[1], shape[0]] * 2)
    return part if (part[2:] > part[:2]).all() else None


def box_of_sides(box: object) -> np.ndarray | None:
    """Returns x0, y0, x1, y1 of x, y, width, height; None if unknown (-1) or without area."""
    sides = numbers(box, (4,))
    if sides is None or (sides[2:] <= 0).any():
        return None
    return np.concatenate([sides[:2], sides[:2] + sides[2:]])


def numbers(plain: object, shape: tuple[int, ...]) -> np.ndarray | None:
    """Returns finite numbers (shape) of a JSON file; None if they are anything else."""
    try:
        array = np.array(plain, np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.shape == shape and np.isfinite(array).all() else None
