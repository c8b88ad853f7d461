"""Reading and writing of Omni3D's JSON (Brazil et al., 2023): 3D boxes in the camera frame.

`dimensions` are [width, height, length]; these are the sides along the axes z, y and x of the
box.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.images.coco import (
    AnnotationFile,
    AnnotationWriter,
    Plain,
    box_of_sides,
    numbers,
    read_listed,
    sides_of,
    write_annotated,
)
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.labelled_image import Box3d, LabelledImage, LabelledObject
from stringline.datasets.images.reading import ItemReference, Omissions, OmittedError

_BOXES_2D = ("bbox2D_tight", "bbox2D_trunc", "bbox2D_proj")


@dataclass(frozen=True, kw_only=True)
class Omni3dImages:
    """Reads a file such as `SUNRGBD_train.json`.

    Of an object whose 3D box is not valid (`valid3D`), unknown (-1), without volume, with axes that
    are not orthogonal, or behind the camera, only the box is left out.

    Attributes:
        images: Folder of the images; if None, that of the JSON file.
    """

    images: str | None = None

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images of the JSON file, also those without objects.

        Raises:
            ForeignDataError: The file is not such JSON.
        """
        known = AnnotationFile.read(path, omissions)
        folder = path.parent if self.images is None else Path(self.images)
        return [
            ItemReference(
                str(image.get("file_path")), partial(_read, folder, image, known, omissions)
            )
            for image in known.images
        ]


def _read(folder: Path, image: Plain, known: AnnotationFile, omissions: Omissions) -> LabelledImage:
    rgb = read_listed(folder, image, image.get("file_path"))
    intrinsics = numbers(image.get("K"), (3, 3))
    if intrinsics is None:
        raise OmittedError("images", "without intrinsics K")
    objects = [
        each
        for note in known.annotations_of(image)
        if (each := _object(note, known, omissions)) is not None
    ]
    sequence = image.get("seq_id")
    return LabelledImage(
        rgb=rgb,
        intrinsics=intrinsics,
        objects=tuple(objects),
        room="" if sequence in (None, -1) else str(sequence),
        source=str(known.info.get("name") or ""),
    )


def _object(note: Plain, known: AnnotationFile, omissions: Omissions) -> LabelledObject | None:
    where = f"annotation {note.get('id')}"
    name = note.get("category_name") or known.category_of(note)
    if not isinstance(name, str) or not name.strip():
        omissions.add("objects", "without the name of a category", where)
        return None
    box = None
    try:
        box = _box3d(note)
    except OmittedError as error:
        omissions.add(error.part, error.reason, where)
    return LabelledObject(
        name=name,
        box2d=_box2d(note),
        box3d=box,
        visibility=_share(note.get("visibility")),
        truncation=_share(note.get("truncation")),
    )


def _box3d(note: Plain) -> Box3d:
    if not note.get("valid3D", True):
        raise OmittedError("3D boxes", "not valid (valid3D)")
    centre = numbers(note.get("center_cam"), (3,))
    sizes = numbers(note.get("dimensions"), (3,))
    rotation = numbers(note.get("R_cam"), (3, 3))
    if centre is None or sizes is None or rotation is None or (sizes == -1).all():
        raise OmittedError("3D boxes", "unknown (-1)")
    if (sizes <= 0).any():
        raise OmittedError("3D boxes", "without volume")
    if centre[2] <= 0 or note.get("behind_camera") is True:
        raise OmittedError("3D boxes", "behind the camera")
    try:
        return Box3d(centre, rotation, sizes[::-1])
    except ValueError as error:
        raise OmittedError("3D boxes", "their axes are not orthogonal and right-handed") from error


def _box2d(note: Plain) -> np.ndarray | None:
    """Returns the first known box: around the visible part, then within the image, then all."""
    for name in _BOXES_2D:
        box = numbers(note.get(name), (4,))
        if box is not None and (box[2:] > box[:2]).all():
            return box
    return box_of_sides(note.get("bbox"))


def _share(value: object) -> float | None:
    known = isinstance(value, int | float) and 0 <= value <= 1
    return float(value) if known else None  # type: ignore[arg-type]


OMNI3D = "omni3d.json"
# Omni3D's order of corners, by the axes x, y and z of the box.
_SIGNS = np.array(
    [
        (-1, -1, -1),
        (1, -1, -1),
        (1, 1, -1),
        (-1, 1, -1),
        (-1, -1, 1),
        (1, -1, 1),
        (1, 1, 1),
        (-1, 1, 1),
    ]
)
_NO_BOX = [-1.0] * 4


def write_omni3d(store: ImageStore, path: str | Path) -> Omissions:
    """Writes the images, intrinsics, 2D and 3D boxes of a store in Omni3D's layout.

    The folder contains `images` and `omni3d.json`. It appears when all is written. Images without
    intrinsics are left out; depth, poses, segments, labels and captions have no place in the
    format. Unknown values are -1.

    Raises:
        ValueError: `path` exists, or the store has clips.
    """
    names = set[str]().union(*store.names())
    sources = set(store.sources())

    def write(images: Iterable[tuple[str, LabelledImage]], folder: Path, left: Omissions) -> None:
        writer = AnnotationWriter(names, left)
        for name, image in images:
            if image.intrinsics is None:
                left.add("images", "without intrinsics", name)
                (folder / name).unlink()
                continue
            writer.add(image, _camera(name, image), _described)
        if len(sources) > 1:
            left.add("sources", "a file names one for all images", path, len(sources))
        writer.write(folder / OMNI3D, {"name": sources.pop() if len(sources) == 1 else ""})

    return write_annotated(store, Path(path), write)


def _camera(name: str, image: LabelledImage) -> Plain:
    assert image.intrinsics is not None
    return {
        "file_path": name,
        "K": image.intrinsics.tolist(),
        "seq_id": image.room or -1,
        "src_90_rotate": 0,
        "src_flagged": False,
    }


def _described(image: LabelledImage, row: int) -> Plain:
    each = image.objects[row]
    known = each.box2d is not None
    return {
        "category_name": each.name,
        "visibility": -1 if each.visibility is None else each.visibility,
        "truncation": -1 if each.truncation is None else each.truncation,
        "bbox2D_tight": each.box2d.tolist() if each.box2d is not None else _NO_BOX,
        "bbox2D_trunc": _NO_BOX,
        "bbox2D_proj": _NO_BOX,
        **(sides_of(each, image, row) if known else {"bbox": _NO_BOX, "area": -1}),
        "behind_camera": False,
        "segmentation_pts": -1,
        "lidar_pts": -1,
        "depth_error": -1,
        **_box(each.box3d),
    }


def _box(box: Box3d | None) -> Plain:
    if box is None:
        unknown = [-1.0] * 3
        return {
            "valid3D": False,
            "bbox3D_cam": [unknown] * 8,
            "center_cam": unknown,
            "dimensions": unknown,
            "R_cam": [unknown] * 3,
        }
    corners = box.centre + (_SIGNS / 2 * box.size) @ box.rotation.T
    return {
        "valid3D": True,
        "bbox3D_cam": corners.tolist(),
        "center_cam": box.centre.tolist(),
        "dimensions": box.size[::-1].tolist(),
        "R_cam": box.rotation.tolist(),
    }
