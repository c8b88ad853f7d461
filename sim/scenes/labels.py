"""Labels of images: segments, boxes, visibility and truncation, from what was drawn."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.images.boxes import Box3d
from stringline.datasets.images.labelled_image import LabelledImage, LabelledObject
from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.scenes.asset_classes import size_word
from stringline.sim.scenes.room_renderer import RoomRenderer, View
from stringline.sim.scenes.rooms import PlacedAsset, Room
from stringline.sim.scenes.solids import turned

# A stereo camera for rooms: numbers of our choice, near those of RealSense D455.
SENSOR = StereoSensor(baseline_m=0.095, nearest_m=0.25, farthest_m=8.0)
HIDDEN_PX = 1  # Objects of fewer pixels are not labelled.


@dataclass(frozen=True, eq=False)
class SeenObject:
    """A labelled object with what captions say of it.

    Attributes:
        label: Its label.
        pixels: Number of its pixels in the image.
        colour: Name of its main colour; "" where unknown.
        size: "small", "large" or "".
        number: Index in the room.
        support: Index of what it stands on.
    """

    label: LabelledObject
    pixels: int
    colour: str
    size: str
    number: int
    support: int | None

    def phrases(self) -> list[str]:
        """Returns names for it from the shortest to the longest, without article."""
        name = self.label.name
        # An orange orange is an orange.
        coloured = name if self.colour in ("", name) else f"{self.colour} {name}"
        return list(dict.fromkeys([name, coloured, f"{self.size} {coloured}".strip()]))


@dataclass(frozen=True, eq=False)
class LabelledView:
    """An image without captions, and the objects in the order of its segments."""

    image: LabelledImage
    seen: tuple[SeenObject, ...]


def label_view(
    view: View, room: Room, renderer: RoomRenderer, rng: np.random.Generator
) -> LabelledView:
    """Draws an image of an open room and labels it; `rng` is the noise of the depth sensor."""
    numbers, clean = renderer.objects(view)
    segments = np.zeros(numbers.shape, np.uint16)
    seen = []
    for number in np.unique(numbers[numbers > 0]) - 1:
        mask = numbers == number + 1
        if mask.sum() < HIDDEN_PX:
            continue
        seen.append(_seen(view, room.placed[number], int(number), mask, renderer))
        segments[mask] = len(seen)
    image = LabelledImage(
        rgb=renderer.colours(view),
        depth=sensed(clean, view, rng),
        clean_depth=clean,
        intrinsics=view.intrinsics,
        T_world_camera=view.T_world_camera,
        segments=segments,
        objects=tuple(one.label for one in seen),
    )
    return LabelledView(image, tuple(seen))


def sensed(clean: NDArray[np.uint16], view: View, rng: np.random.Generator) -> NDArray[np.uint16]:
    """Returns what a stereo camera measures of clean depth (H, W) in millimetres."""
    return SENSOR.measure(clean, _mean_intrinsics(view), rng)


def box_of(placed: PlacedAsset, view: View) -> Box3d:
    """Returns the box of a placed asset in the frame of a camera."""
    box = Box3d(placed.centre(), turned(placed.yaw), placed.asset.size)
    return box.transformed(np.linalg.inv(view.T_world_camera))


def box_of_mask(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns x0, y0, x1, y1 in pixels of the box around a mask (H, W)."""
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float64)


def _seen(
    view: View, placed: PlacedAsset, number: int, mask: NDArray[np.bool_], renderer: RoomRenderer
) -> SeenObject:
    pixels = int(mask.sum())
    whole = renderer.alone(view.widened(), number + 1)
    top = view.height // 2
    left = view.width // 2
    inside = int(whole[top : top + view.height, left : left + view.width].sum())
    box = box_of(placed, view)
    label = LabelledObject(
        name=placed.asset.name,
        box2d=box_of_mask(mask),
        # The contract has no box whose middle lies behind the camera.
        box3d=box if box.centre[2] > 0 else None,
        visibility=min(1.0, pixels / max(inside, 1)),
        truncation=1.0 - inside / max(int(whole.sum()), 1),
        asset=placed.asset.identity,
    )
    asset = placed.asset
    return SeenObject(label, pixels, asset.colour, size_word(asset), number, placed.support)


def _mean_intrinsics(view: View) -> NDArray[np.float32]:
    """Returns intrinsics with one focal length, which the model of the sensor expects."""
    found = view.intrinsics.astype(np.float32)
    focal = np.sqrt(found[0, 0] * found[1, 1])
    found[0, 0] = focal
    found[1, 1] = focal
    return found
