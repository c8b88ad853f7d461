"""Labels of images, and captions that hold.

Labels are segments, boxes, visibility and truncation, from what was drawn. Captions consist of
names, colours, sizes, and spatial relations. A caption states that there are such objects: "a red
mug on a wooden table" holds if any red mug of the image stands on any wooden table of it. Sides are
those of the image.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.images.labelled_image import Box3d, LabelledImage, LabelledObject
from stringline.sim.rendering.depth_sensor import StereoSensor
from stringline.sim.scenes.asset_classes import size_word
from stringline.sim.scenes.assets import turned
from stringline.sim.scenes.room_renderer import RoomRenderer, View
from stringline.sim.scenes.rooms import PlacedAsset, Room

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


CLEAR_VISIBILITY = 0.4
CLEAR_PX = 30
ROOMS: Mapping[str, str] = {
    "living_room": "a living room",
    "cluttered_table": "a cluttered table",
    "tables": "a room with tables",
    "trays": "a table with trays",
}
SHOWING = " showing "
MOST_NAMED = 4

Relation = Callable[[SeenObject, SeenObject], bool]


def _left(a: SeenObject, b: SeenObject) -> bool:
    assert a.label.box2d is not None
    assert b.label.box2d is not None
    return bool(a.label.box2d[2] <= b.label.box2d[0])


def _right(a: SeenObject, b: SeenObject) -> bool:
    return _left(b, a)


def _depths(one: SeenObject) -> tuple[float, float]:
    """Returns the depths of the nearest and the farthest corner of a box, metres."""
    if one.label.box3d is None:
        return -np.inf, np.inf
    depths = one.label.box3d.corners()[:, 2]
    return float(depths.min()), float(depths.max())


def _behind(a: SeenObject, b: SeenObject) -> bool:
    """Farther away as a whole, and in the same columns of the image."""
    beside = _left(a, b) or _right(a, b)
    return not beside and _depths(a)[0] >= _depths(b)[1]


def _in_front(a: SeenObject, b: SeenObject) -> bool:
    return _behind(b, a)


def _on(a: SeenObject, b: SeenObject) -> bool:
    return a.support == b.number


RELATIONS: Mapping[str, Relation] = {
    "left of": _left,
    "right of": _right,
    "in front of": _in_front,
    "behind": _behind,
    "on": _on,
}
BETWEEN = " between "


def _between(a: SeenObject, b: SeenObject, c: SeenObject) -> bool:
    return (_left(b, a) and _left(a, c)) or (_left(c, a) and _left(a, b))


def write_captions(
    kind: str, seen: Sequence[SeenObject], count: int, rng: np.random.Generator
) -> tuple[str, ...]:
    """Returns up to `count` captions: one that names objects, then relations of them.

    Only objects that are seen clearly are named; without any, the caption names the room.
    """
    clear = [
        one
        for one in seen
        if one.pixels >= CLEAR_PX and (one.label.visibility or 0) >= CLEAR_VISIBILITY
    ]
    if not clear:
        return (ROOMS[kind],)
    found = [_naming(kind, clear, rng)]
    for _ in range(8 * count):
        if len(found) >= count:
            break
        sentence = _relating(clear, rng)
        if sentence is not None and sentence not in found:
            found.append(sentence)
    return tuple(found[:count])


def caption_holds(caption: str, kind: str, seen: Sequence[SeenObject]) -> bool:
    """Returns whether a caption holds for the objects of an image, by reading its text.

    Raises:
        ValueError: The sentence is of no known form.
    """
    room, showing, rest = caption.partition(SHOWING)
    if room == ROOMS[kind]:
        named = rest.replace(" and ", ", ").split(", ") if showing else []
        # The names are different, so one object for each is enough.
        return len(set(named)) == len(named) and all(_called(one, seen) for one in named)
    if BETWEEN in caption:
        first, others = caption.split(BETWEEN)
        second, third = others.split(" and ")
        triples = _distinct(seen, first, second, third)
        return any(_between(*triple) for triple in triples)
    for words, holds in RELATIONS.items():
        first, found, second = caption.partition(f" {words} ")
        if found:
            return any(holds(*pair) for pair in _distinct(seen, first, second))
    raise ValueError(f"The caption is {caption!r}; allowed: names of objects, or one relation.")


def _called(phrase: str, seen: Sequence[SeenObject]) -> list[SeenObject]:
    """Returns the objects that a phrase with its article describes."""
    _, _, bare = phrase.partition(" ")
    return [one for one in seen if bare in one.phrases()]


def _distinct(seen: Sequence[SeenObject], *phrases: str) -> list[tuple[SeenObject, ...]]:
    """Returns the tuples of different objects that phrases describe."""
    described = [{id(one) for one in _called(phrase, seen)} for phrase in phrases]
    return [
        group
        for group in permutations(seen, len(phrases))
        if all(id(one) in allowed for one, allowed in zip(group, described, strict=True))
    ]


def _phrase(one: SeenObject, rng: np.random.Generator) -> str:
    phrases = one.phrases()
    bare = phrases[rng.integers(len(phrases))]
    return f"{'an' if bare[0] in 'aeiou' else 'a'} {bare}"


def _naming(kind: str, clear: Sequence[SeenObject], rng: np.random.Generator) -> str:
    """Names up to four objects by different phrases."""
    order = rng.permutation(len(clear))[: rng.integers(1, MOST_NAMED + 1)]
    named = list(dict.fromkeys(_phrase(clear[number], rng) for number in order))
    listed = ", ".join(named[:-1])
    text = f"{listed} and {named[-1]}" if listed else named[0]
    return f"{ROOMS[kind]}{SHOWING}{text}"


def _relating(clear: Sequence[SeenObject], rng: np.random.Generator) -> str | None:
    """Returns a relation that holds between drawn objects; None if the drawn ones have none."""
    if len(clear) < 2:
        return None
    order = [clear[number] for number in rng.permutation(len(clear))]
    if len(order) > 2 and rng.uniform() < 0.25 and _between(*order[:3]):
        first, second, third = (_phrase(one, rng) for one in order[:3])
        return f"{first}{BETWEEN}{second} and {third}"
    held = [words for words, holds in RELATIONS.items() if holds(order[0], order[1])]
    if not held:
        return None
    # The last ones say more than a side.
    words = held[-1] if rng.uniform() < 0.7 else held[rng.integers(len(held))]
    return f"{_phrase(order[0], rng)} {words} {_phrase(order[1], rng)}"
