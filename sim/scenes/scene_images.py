"""Labelled images of rooms: each room depends on the settings and its number alone."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT, WHOLE, unknown_name
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.sim.scenes.captions import write_captions
from stringline.sim.scenes.labels import label_view
from stringline.sim.scenes.room_kinds import LARGEST, ROOM_KINDS, SMALLEST, furnish
from stringline.sim.scenes.room_model import RoomBuilder
from stringline.sim.scenes.room_renderer import RoomRenderer, View
from stringline.sim.scenes.rooms import ChooseAsset, Room, seeded_asset
from stringline.sim.scenes.viewpoints import Optics, check_order, draw_view

SOURCE = "scenes"
PARTLY_HIDDEN = 0.95
"""Visibility below which an object counts as partly hidden."""
VIEW_TRIES = 4
SHOWN_SHARE = 0.004  # Of the pixels of an image: 40 of 96 x 96.
LEAST_SHOWN = 4


@dataclass(frozen=True)
class SceneSettings:
    """What rooms and cameras are drawn from.

    Attributes:
        kinds: Names in `ROOM_KINDS`; room i is of kind i modulo their number.
        seed: Seed of all rooms.
        objects: Least and largest number of objects of a room.
        images_per_room: Number of cameras.
        captions: Largest number of captions of an image.
        optics: Sizes of images and ranges of cameras.

    Raises:
        ValueError: A name does not exist, or a number is outside of its range.
    """

    kinds: tuple[str, ...] = tuple(ROOM_KINDS)
    seed: int = 0
    objects: tuple[int, int] = (SMALLEST, LARGEST)
    images_per_room: int = 4
    captions: int = 3
    optics: Optics = field(default_factory=Optics)

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ValueError(f"kinds is []; allowed: any of {', '.join(ROOM_KINDS)}.")
        for kind in self.kinds:
            if kind not in ROOM_KINDS:
                raise unknown_name("kind of rooms", kind, ROOM_KINDS)
        WHOLE.check(seed=self.seed)
        COUNT.check(images_per_room=self.images_per_room, captions=self.captions)
        for number in self.objects:
            COUNT.check(objects=number)
        check_order("objects", self.objects)
        self.optics.check()


class SceneImages:
    """Draws the images of rooms; use one per process.

    `choose` draws the asset of a class, by default a parametric one.
    """

    def __init__(self, settings: SceneSettings, choose: ChooseAsset = seeded_asset) -> None:
        self.settings = settings
        self._choose = choose
        height, width = settings.optics.size
        self._largest = (2 * height, 2 * width)
        self._renderer = RoomRenderer(self._largest)

    def room(self, number: int) -> list[LabelledImage]:
        """Returns the images of room `number`.

        Raises:
            ValueError: Not enough objects fit in it.
        """
        settings = self.settings
        kind = settings.kinds[number % len(settings.kinds)]
        seed = [zlib.crc32(kind.encode()), settings.seed, number]
        room = furnish(kind, seed, objects=settings.objects, choose=self._choose)
        rng = np.random.default_rng([*seed, zlib.crc32(b"images")])
        builder = RoomBuilder(rng, self._largest)
        builder.add_room(room)
        for index, placed in enumerate(room.placed):
            builder.add(placed, index)
        self._renderer.open(builder.compile())
        identity = f"{kind}-{settings.seed}-{number:06d}"
        return [self._image(kind, identity, room, rng) for _ in range(settings.images_per_room)]

    def close(self) -> None:
        """Frees the graphics."""
        self._renderer.close()

    def _image(
        self, kind: str, identity: str, room: Room, rng: np.random.Generator
    ) -> LabelledImage:
        labelled = label_view(self._view(kind, room, rng), room, self._renderer, rng)
        captions = write_captions(kind, labelled.seen, self.settings.captions, rng)
        return replace(labelled.image, captions=captions, label=kind, room=identity, source=SOURCE)

    def _view(self, kind: str, room: Room, rng: np.random.Generator) -> View:
        """Draws a view in which few objects are in the way of the others, if there is one."""
        view = draw_view(kind, room, self.settings.optics, rng)
        for _ in range(VIEW_TRIES - 1):
            numbers, _ = self._renderer.objects(view)
            pixels = np.bincount(numbers.ravel(), minlength=2)[1:]
            if (pixels >= SHOWN_SHARE * numbers.size).sum() >= LEAST_SHOWN:
                break
            view = draw_view(kind, room, self.settings.optics, rng)
        return view


@dataclass
class Tally:
    """Counts over images."""

    images: int = 0
    objects: int = 0
    shown: int = 0
    hidden: int = 0

    def add(self, images: Sequence[LabelledImage]) -> None:
        """Counts the objects of images."""
        for image in images:
            assert image.segments is not None
            pixels = np.bincount(image.segments.ravel(), minlength=len(image.objects) + 1)[1:]
            self.images += 1
            self.objects += len(image.objects)
            self.shown += int((pixels >= SHOWN_SHARE * image.segments.size).sum())
            self.hidden += sum((one.visibility or 0) < PARTLY_HIDDEN for one in image.objects)

    def __str__(self) -> str:
        """Returns the counts as a sentence."""
        images = max(self.images, 1)
        objects = max(self.objects, 1)
        return (
            f"{self.images} images show {self.objects / images:.1f} objects each, of which "
            f"{self.shown / images:.1f} have {SHOWN_SHARE:.1%} of the pixels or more; "
            f"{self.hidden / objects:.0%} of the objects are partly hidden."
        )
