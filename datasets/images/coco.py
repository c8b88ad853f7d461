"""Reading and writing of COCO's JSON (Lin et al., 2014), and folders of images with depth.

`AnnotationFile` and `AnnotationWriter` are for all JSON files of COCO's layout, with images,
annotations and categories; Omni3D's (`omni3d.py`) have it, too.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.image_codecs import png
from stringline.datasets.images.image_store import ImageStore, new_folder
from stringline.datasets.images.labelled_image import LabelledImage, LabelledObject
from stringline.datasets.images.reading import (
    ItemReference,
    Omissions,
    OmittedError,
    file_in,
    files_below,
    read_colours,
    read_depth,
)

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


_ROUNDING_PX = 1.0  # Boxes of COCO reach beyond their images by as much.


@dataclass(frozen=True, kw_only=True)
class CocoImages:
    """Reads a file `instances_*.json` or `captions_*.json`.

    Crowds (`iscrowd`), and objects without a category or without a box in the image, are left out.
    Of boxes that reach beyond the image, the part in the image is kept.
    Segmentations are not read.

    Attributes:
        images: Folder of the images; if None, that of the JSON file.
        captions: A file `captions_*.json` of the same images; if None, only what the first file
            has.
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


_FILES = ("intrinsics.json", "intrinsics.txt")


@dataclass(frozen=True, kw_only=True)
class RgbdImages:
    """Reads `rgb/NAME.png`, `depth/NAME.png` of 16 bits and `intrinsics.json` or `intrinsics.txt`.

    The path is such a folder, or contains some; their names are the rooms. In folders of such
    folders, such as `kitchen/sequence_1`, the outer one is the label and both are the room.
    `intrinsics.txt` has a 3x3 matrix, or 4x4 as in ScanNet; `intrinsics.json` has fx, fy, cx and
    cy. `pose/NAME.txt`, if there, is the 4x4 transform of the camera to the world.

    Attributes:
        depth_unit_m: Metres per count of the depth images, such as 0.001, or 0.0002 for TUM's;
            required.
    """

    depth_unit_m: float | None = None

    def __post_init__(self) -> None:
        if self.depth_unit_m is None:
            raise ForeignDataError(
                "depth_unit_m is missing: images of 16 bits do not tell their unit; 0.001 for "
                "millimetres, 0.0002 for TUM's data."
            )
        POSITIVE.check(depth_unit_m=self.depth_unit_m)

    def references(self, path: Path, omissions: Omissions) -> Sequence[ItemReference]:
        """Lists the images by room, sorted by name.

        Raises:
            ForeignDataError: There is no folder rgb, or intrinsics are missing or unreadable.
        """
        images = [path / "rgb", *path.glob("*/rgb"), *path.glob("*/*/rgb")]
        rooms = sorted(each.parent for each in images if each.is_dir())
        if not rooms:
            raise ForeignDataError(
                f"{path} has no folder rgb, and none of its folders and of theirs has one."
            )
        found = []
        for room in rooms:
            intrinsics = _intrinsics(room)
            depths = {file.stem: file for file in files_below(room / "depth")}
            for file in files_below(room / "rgb"):
                depth = depths.get(file.stem)
                if depth is None:
                    omissions.add("images", "without a depth image", file.relative_to(path))
                    continue
                read = partial(self._read, file, depth, intrinsics, _label(room, path))
                found.append(ItemReference(f"{file.relative_to(path)}", read))
        return found

    def _read(
        self, file: Path, depth_file: Path, intrinsics: np.ndarray, label: str | None
    ) -> LabelledImage:
        assert self.depth_unit_m is not None
        rgb = read_colours(file)
        depth = read_depth(depth_file, self.depth_unit_m)
        if depth.shape != rgb.shape[:2]:
            raise OmittedError("images", "depth and colours differ in size")
        room = file.parents[1]
        pose = room / "pose" / f"{file.stem}.txt"
        return LabelledImage(
            rgb=rgb,
            depth=depth,
            intrinsics=intrinsics,
            T_world_camera=_matrix(pose, (4,)) if pose.is_file() else None,
            label=label,
            room=f"{label}/{room.name}" if label else room.name,
        )


def _label(room: Path, path: Path) -> str | None:
    """Returns the name of the folder between the path and a room; None without such a folder."""
    return room.parent.name if path not in (room, room.parent) else None


def _intrinsics(room: Path) -> np.ndarray:
    file = next((room / name for name in _FILES if (room / name).is_file()), None)
    if file is None:
        raise ForeignDataError(f"{room} has neither {' nor '.join(_FILES)}.")
    if file.suffix == ".txt":
        return _matrix(file, (3, 4))[:3, :3]
    try:
        plain = json.loads(file.read_bytes())
        values = numbers([plain[name] for name in ("fx", "fy", "cx", "cy")], (4,))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        values = None
    if values is None:
        raise ForeignDataError(f"{file} has no numbers fx, fy, cx and cy.")
    fx, fy, cx, cy = values
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])


def _matrix(file: Path, sides: tuple[int, ...]) -> np.ndarray:
    try:
        rows = [line.split() for line in file.read_text().splitlines() if line.strip()]
        for side in sides:
            if (matrix := numbers(rows, (side, side))) is not None:
                return matrix
    except (OSError, UnicodeDecodeError):
        pass
    shapes = " or ".join(f"{side}x{side}" for side in sides)
    raise ForeignDataError(f"{file} does not contain a matrix of {shapes} finite numbers.")
