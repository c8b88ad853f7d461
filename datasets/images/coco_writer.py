"""Writing of COCO's JSON (Lin et al., 2014)."""

import json
from collections.abc import Iterable
from pathlib import Path

from stringline.datasets.images.annotation_json import Plain
from stringline.datasets.images.annotation_writer import (
    AnnotationWriter,
    sides_of,
    write_annotated,
)
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.datasets.images.omissions import Omissions, OmittedError

INSTANCES = "instances.json"
CAPTIONS = "captions.json"


def write_coco(store: ImageStore, path: str | Path) -> Omissions:
    """Writes the images, 2D boxes and captions of a store in COCO's layout.

    The folder contains `images`, `instances.json` and `captions.json`. It appears when all is
    written. Objects without a 2D box are left out; depth, cameras, segments, labels and 3D boxes
    have no place in the format.

    Raises:
        ValueError: `path` exists, or the store has clips.
    """
    names = set[str]().union(*store.names())

    def write(images: Iterable[tuple[str, LabelledImage]], folder: Path, left: Omissions) -> None:
        instances = AnnotationWriter(names, left)
        captions: list[Plain] = []
        for name, image in images:
            number = instances.add(image, {"file_name": name}, _described)
            for text in image.captions:
                note = {"id": len(captions) + 1, "image_id": number, "caption": text}
                captions.append(note)
        instances.write(folder / INSTANCES, {})
        plain = {"info": {}, "images": instances.images, "annotations": captions}
        (folder / CAPTIONS).write_text(json.dumps(plain))

    return write_annotated(store, Path(path), write)


def _described(image: LabelledImage, row: int) -> Plain:
    each = image.objects[row]
    if each.box2d is None:
        raise OmittedError("objects", "without a 2D box")
    return sides_of(each, image, row)
