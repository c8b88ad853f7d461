"""Writing of Omni3D's JSON (Brazil et al., 2023)."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from stringline.datasets.images.annotation_json import Plain
from stringline.datasets.images.annotation_writer import (
    AnnotationWriter,
    sides_of,
    write_annotated,
)
from stringline.datasets.images.boxes import Box3d
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.datasets.images.omissions import Omissions

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
