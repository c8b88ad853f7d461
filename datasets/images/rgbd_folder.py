"""Folders of colour and depth images with the intrinsics of the camera."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from stringline.datasets.contract.argument_checks import POSITIVE
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.images.coco import numbers
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.datasets.images.reading import (
    ItemReference,
    Omissions,
    OmittedError,
    files_below,
    read_colours,
    read_depth,
)

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
