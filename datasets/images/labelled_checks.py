"""Checks of labelled images and clips, before they are stored."""

from dataclasses import fields

import numpy as np

from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.contract.contract import Array
from stringline.datasets.images.boxes import TOLERANCE, Box3d
from stringline.datasets.images.labelled_image import (
    Item,
    LabelledClip,
    LabelledImage,
    LabelledObject,
)

_WHOLE_SHARE = Range(least=0, most=1)


def check_item(item: Item) -> None:
    """Checks an image or a clip; raises ValueError as the other two functions."""
    if isinstance(item, LabelledClip):
        check_clip(item)
    else:
        check_image(item)


def check_image(image: LabelledImage) -> None:
    """Checks an image; raises ValueError with the field, its value and what is allowed."""
    _check_type("image", image, LabelledImage)
    height, width = _check_colours(image.rgb, axes=3)
    for name in ("depth", "clean_depth", "segments"):
        _check_pixels(name, getattr(image, name), (height, width))
    _check_camera(image.intrinsics, image.T_world_camera, ())
    _check_texts(image)
    if not isinstance(image.captions, tuple) or not all(_is_text(text) for text in image.captions):
        raise ValueError(f"captions are {image.captions!r}; allowed: a tuple of texts, not empty.")
    for number, each in enumerate(image.objects):
        _check_object(number, each)
    if image.segments is not None and image.segments.max() > len(image.objects):
        raise ValueError(
            f"segments reach {image.segments.max()}; allowed: 0 to {len(image.objects)}, the "
            "number of objects."
        )


def check_clip(clip: LabelledClip) -> None:
    """Checks a clip; raises ValueError with the field, its value and what is allowed."""
    _check_type("clip", clip, LabelledClip)
    _check_colours(clip.rgb, axes=4)
    _check_pixels("depth", clip.depth, clip.rgb.shape[:-1])
    _check_camera(clip.intrinsics, clip.T_world_camera, clip.rgb.shape[:1])
    _check_texts(clip)


def _check_type(kind: str, got: object, wanted: type) -> None:
    if not isinstance(got, wanted):
        raise ValueError(f"The {kind} is a {type(got).__name__}; allowed: {wanted.__name__}.")


def _check_colours(rgb: Array, axes: int) -> tuple[int, int]:
    """Checks colours (..., H, W, 3) and returns height and width."""
    shape = np.shape(rgb)
    whole = len(shape) == axes and shape[-1] == 3 and 0 not in shape
    if not isinstance(rgb, np.ndarray) or rgb.dtype != np.uint8 or not whole:
        wanted = "(H, W, 3)" if axes == 3 else "(F, H, W, 3)"
        raise ValueError(f"rgb is {_described(rgb)}; allowed: uint8 {wanted}, not empty.")
    return shape[-3], shape[-2]


def _check_pixels(name: str, array: Array | None, shape: tuple[int, ...]) -> None:
    if array is not None and (np.shape(array) != shape or array.dtype != np.uint16):
        raise ValueError(f"{name} is {_described(array)}; allowed: uint16 {shape}, as rgb.")


def _check_camera(intrinsics: Array | None, pose: Array | None, frames: tuple[int, ...]) -> None:
    if intrinsics is not None:
        _check_matrix("intrinsics", intrinsics, (3, 3))
        if intrinsics[0, 0] <= 0 or intrinsics[1, 1] <= 0 or (intrinsics[2] != (0, 0, 1)).any():
            raise ValueError(
                f"intrinsics are {np.asarray(intrinsics).tolist()}; allowed: focal lengths above "
                "0, and 0, 0, 1 in the last row."
            )
    if pose is not None:
        _check_matrix("T_world_camera", pose, (*frames, 4, 4))
        rotation = np.asarray(pose, np.float64)[..., :3, :3]
        difference = np.abs(rotation @ np.swapaxes(rotation, -1, -2) - np.eye(3)).max()
        proper = (np.linalg.det(rotation) > 0).all() and (pose[..., 3, :] == (0, 0, 0, 1)).all()
        if difference > TOLERANCE or not proper:
            raise ValueError(
                f"T_world_camera is not a rigid transform; allowed: a proper rotation within "
                f"{TOLERANCE:g}, and 0, 0, 0, 1 in the last row."
            )


def _check_matrix(name: str, array: Array, shape: tuple[int, ...]) -> None:
    found = np.asarray(array)
    if found.shape != shape or found.dtype.kind not in "fiu" or not np.isfinite(found).all():
        raise ValueError(f"{name} is {_described(found)}; allowed: {shape} finite numbers.")


def _check_texts(item: Item) -> None:
    for field in fields(item):
        value = getattr(item, field.name)
        if field.name in ("label", "reverse_label") and value is not None and not _is_text(value):
            raise ValueError(f"{field.name} is {value!r}; allowed: a text, not empty, or None.")
        if field.name in ("room", "source") and not isinstance(value, str):
            raise ValueError(f"{field.name} is {value!r}; allowed: a text.")


def _check_object(number: int, each: LabelledObject) -> None:
    where = f"Object {number}"
    if not isinstance(each, LabelledObject) or not _is_text(each.name):
        raise ValueError(f"{where} is {each!r}; allowed: a LabelledObject with a name.")
    if not isinstance(each.asset, str):
        raise ValueError(f"{where} ({each.name}): asset is {each.asset!r}; allowed: a text.")
    if each.box2d is not None:
        box = np.asarray(each.box2d)
        if box.shape != (4,) or not np.isfinite(box).all() or (box[2:] <= box[:2]).any():
            raise ValueError(
                f"{where} ({each.name}): box2d is {box.tolist()}; allowed: x0, y0, x1, y1 with x0 "
                "below x1 and y0 below y1."
            )
    if each.box3d is not None:
        if not isinstance(each.box3d, Box3d):
            raise ValueError(f"{where} ({each.name}): box3d is {each.box3d!r}; allowed: a Box3d.")
        if each.box3d.centre[2] <= 0:
            raise ValueError(
                f"{where} ({each.name}): the centre of its box lies {-each.box3d.centre[2]:.3g} m "
                "behind the camera; allowed: in front of it."
            )
    for name in ("visibility", "truncation"):
        if (share := getattr(each, name)) is not None and share not in _WHOLE_SHARE:
            raise ValueError(
                f"{where} ({each.name}): {name} is {share!r}; allowed: {_WHOLE_SHARE}."
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _described(array: object) -> str:
    found = np.asarray(array)
    return f"{found.dtype} {found.shape}"
