"""The contract of one labelled image, and of one labelled clip: fields, 3D boxes and checks.

Camera frame: x right, y down, z forward, metres. The upper left pixel covers (0, 0) to (1, 1),
so its centre lies at (0.5, 0.5). Depth is along the z axis. A store checks each item before it
is written.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from stringline.datasets.contract.argument_checks import Range
from stringline.datasets.contract.contract import Array

TOLERANCE = 2e-4
"""Largest difference of R^T R from the identity; axes with four decimals stay below 1.8e-4."""


@dataclass(frozen=True, eq=False)
class Box3d:
    """An oriented box.

    A point c of the cube [-1/2, 1/2]^3 lies at `centre + rotation @ (size * c)`.

    Attributes:
        centre: (3,) in metres, in the camera frame unless stated otherwise.
        rotation: (3, 3) proper rotation; its columns are the axes of the box.
        size: (3,) side lengths along these axes in metres, above 0.

    Raises:
        ValueError: A shape differs, a number is not finite, a side is not above 0, or the axes are
            not orthogonal and right-handed.
    """

    centre: np.ndarray
    rotation: np.ndarray
    size: np.ndarray

    def __post_init__(self) -> None:
        for name, shape in (("centre", (3,)), ("rotation", (3, 3)), ("size", (3,))):
            array = np.asarray(getattr(self, name), np.float64)
            if array.shape != shape or not all(map(math.isfinite, array.ravel().tolist())):
                raise ValueError(
                    f"{name} of a box is {array.tolist()}; allowed: {shape} finite numbers."
                )
            object.__setattr__(self, name, array)
        if min(self.size.tolist()) <= 0:
            raise ValueError(f"The sides of a box are {self.size.tolist()} m; allowed: above 0.")
        if not _is_rotation(self.rotation.T.tolist()):
            raise ValueError(
                f"The axes of a box are {self.rotation.tolist()}; allowed: columns of a proper "
                f"rotation, within {TOLERANCE:g}."
            )

    def corners(self) -> np.ndarray:
        """Returns the corners (8, 3), in the order of `CORNER_SIGNS`."""
        corners: np.ndarray = self.centre + (CORNER_SIGNS / 2 * self.size) @ self.rotation.T
        return corners

    def transformed(self, T_ab: np.ndarray) -> "Box3d":
        """Returns the box in frame a, for a box in frame b and the transform (4, 4) of b to a."""
        rotation = T_ab[:3, :3]
        return Box3d(rotation @ self.centre + T_ab[:3, 3], rotation @ self.rotation, self.size)


def _is_rotation(axes: Sequence[Sequence[float]]) -> bool:
    """Returns whether three axes are orthogonal, right-handed and of length 1.

    Plain numbers: arrays of this size take ten times as long, most of the time of a reading store.
    """
    (a, b, c), (d, e, f), (g, h, i) = axes
    deviations = (
        a * a + b * b + c * c - 1,
        d * d + e * e + f * f - 1,
        g * g + h * h + i * i - 1,
        a * d + b * e + c * f,
        a * g + b * h + c * i,
        d * g + e * h + f * i,
    )
    determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    return max(map(abs, deviations)) <= TOLERANCE and determinant > 0


CORNER_SIGNS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], np.float64)
"""(8, 3) signs of the corners; the last axis changes first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledObject:
    """One object of an image.

    Attributes:
        name: Its name, such as "folding chair".
        box2d: (4,) x0, y0, x1, y1 in pixels; a box of the one pixel in column 3 and row 5 is
            3, 5, 4, 6. None where unknown.
        box3d: The box of the whole object in the camera frame; None where unknown.
        visibility: Share of its pixels that other objects do not hide, 0 to 1; None where unknown.
        truncation: Share of the object outside of the image, 0 to 1; None where unknown.
        asset: Identity of its form or mesh, for splits by asset; "" where unknown.
    """

    name: str
    box2d: np.ndarray | None = None
    box3d: Box3d | None = None
    visibility: float | None = None
    truncation: float | None = None
    asset: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledImage:
    """One image with all that is known of it.

    Attributes:
        rgb: (H, W, 3) uint8.
        depth: (H, W) uint16 in millimetres, 0 where unknown; None without depth.
        clean_depth: (H, W) uint16, the depth before the sensor's noise; None where unknown.
        intrinsics: (3, 3) in pixels; None where unknown.
        T_world_camera: (4, 4) camera to world, where world z is up; None where unknown.
        segments: (H, W) uint16; i + 1 where object i is seen, 0 elsewhere; None where unknown.
        label: Its class; None where unknown.
        captions: Texts that hold for the image.
        objects: The objects, in the order of `segments`.
        room: Identity of the room or scene; images of one room lie on one side of a split.
        source: Identity of the origin, such as the style of a drawing or the video of a clip.
    """

    rgb: np.ndarray
    depth: np.ndarray | None = None
    clean_depth: np.ndarray | None = None
    intrinsics: np.ndarray | None = None
    T_world_camera: np.ndarray | None = None
    segments: np.ndarray | None = None
    label: str | None = None
    captions: tuple[str, ...] = ()
    objects: tuple[LabelledObject, ...] = ()
    room: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledClip:
    """One clip with its class.

    Attributes:
        rgb: (F, H, W, 3) uint8.
        depth: (F, H, W) uint16 in millimetres, 0 where unknown; None without depth.
        intrinsics: (3, 3) in pixels, equal for all frames; None where unknown.
        T_world_camera: (F, 4, 4) camera to world; None where unknown.
        label: Its class, such as "lift"; None where unknown.
        reverse_label: The class of the clip played backwards, such as "put down"; None where
            no class describes it.
        room: Identity of the room or scene.
        source: Identity of the origin; clips of one video have one source.
    """

    rgb: np.ndarray
    depth: np.ndarray | None = None
    intrinsics: np.ndarray | None = None
    T_world_camera: np.ndarray | None = None
    label: str | None = None
    reverse_label: str | None = None
    room: str = ""
    source: str = ""


Item = LabelledImage | LabelledClip


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
                f"{where} ({each.name}): {name} must be {_WHOLE_SHARE} (got {share!r})."
            )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _described(array: object) -> str:
    found = np.asarray(array)
    return f"{found.dtype} {found.shape}"
