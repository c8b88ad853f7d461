"""Labelled images of rooms: each room depends on the settings and its number alone.

Cameras look at the things of a room. Several processes may draw the rooms; the results are in the
order of the rooms for any number of processes.
"""

import os
import threading
import zlib
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT, WHOLE, Range, unknown_name
from stringline.datasets.images.labelled_image import LabelledImage
from stringline.sim.scenes.assets import Vectors, turned
from stringline.sim.scenes.labels import label_view, write_captions
from stringline.sim.scenes.room_renderer import RoomBuilder, RoomRenderer, View
from stringline.sim.scenes.rooms import (
    LARGEST,
    ROOM_KINDS,
    SMALLEST,
    ChooseAsset,
    PlacedAsset,
    Room,
    furnish,
    seeded_asset,
)

CANDIDATES = 8
FROM_WALL_M = 0.15
FREE_M = 0.12  # Around the camera.
SHOWN_PX = 40  # Estimated pixels from which on an object counts as shown.
ENOUGH = 10
DISTANCES_M: Mapping[str, tuple[float, float]] = {"living_room": (1.2, 3.2), "tables": (0.9, 2.2)}
CLOSE_M = (0.6, 1.5)  # Distances of the other kinds.
HEIGHTS_M = (0.3, 1.0)  # Above what is looked at.
SIZES = Range(least=16, most=1024, whole=True)
FIELDS_DEG = Range(least=20, most=110)
ASPECTS = Range(least=0.25, most=4)
OFFSET = 0.06  # Largest distance of the principal point from the centre, share of the image.


@dataclass(frozen=True)
class Optics:
    """Ranges of cameras.

    Attributes:
        size: Rows and columns of images.
        fovy_deg: Vertical field of view.
        aspect: Vertical divided by horizontal focal length. Above 1 the field is wider, as of a
            wide photograph that was resized to `size`.
    """

    size: tuple[int, int] = (96, 96)
    fovy_deg: tuple[float, float] = (45.0, 70.0)
    aspect: tuple[float, float] = (0.75, 1.333)

    def check(self) -> None:
        """Checks the numbers; raises ValueError for one that is not allowed."""
        for side in self.size:
            SIZES.check(image_size=side)
        for name, limits, known in (
            ("fovy_deg", self.fovy_deg, FIELDS_DEG),
            ("aspect", self.aspect, ASPECTS),
        ):
            for number in limits:
                known.check(**{name: number})
            check_order(name, limits)

    def draw(self, rng: np.random.Generator) -> Vectors:
        """Draws intrinsics (3, 3) in pixels."""
        height, width = self.size
        fy = height / 2 / np.tan(np.radians(rng.uniform(*self.fovy_deg)) / 2)
        fx = fy / np.exp(rng.uniform(*np.log(self.aspect)))
        cx, cy = rng.uniform(0.5 - OFFSET, 0.5 + OFFSET, 2) * (width, height)
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])


def check_order(name: str, limits: tuple[float, float]) -> None:
    """Checks that the ends of a range are in order; raises ValueError otherwise."""
    if limits[1] < limits[0]:
        raise ValueError(f"{name} is {list(limits)}; allowed: the least number first.")


def looking(eye: Vectors, target: Vectors) -> Vectors:
    """Returns T_world_camera (4, 4) of a level camera at `eye` that looks at `target`."""
    forward = (target - eye) / np.linalg.norm(target - eye)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3, :3] = np.stack([right, np.cross(forward, right), forward], axis=1)
    pose[:3, 3] = eye
    return pose


def draw_view(kind: str, room: Room, optics: Optics, rng: np.random.Generator) -> View:
    """Returns the view, of some drawn ones, that shows the most objects, or the first with many."""
    best = None
    most = -1
    for _ in range(CANDIDATES):
        view = _candidate(kind, room, optics, rng)
        count = _shown(view, room.placed) if _is_free(view, room.placed) else 0
        if count > most:
            best = view
            most = count
        if count >= ENOUGH:
            break
    assert best is not None
    return best


def _candidate(kind: str, room: Room, optics: Optics, rng: np.random.Generator) -> View:
    """Draws a view of one of the objects, mostly of one that stands on another one."""
    on_tops = [one for one in room.placed if one.support is not None]
    choice = on_tops if on_tops and rng.uniform() < 0.8 else room.placed
    target = choice[rng.integers(len(choice))].centre() + rng.normal(0, 0.08, 3)
    distance = rng.uniform(*DISTANCES_M.get(kind, CLOSE_M))
    angle = rng.uniform(-np.pi, np.pi)
    away = np.array([distance * np.cos(angle), distance * np.sin(angle), rng.uniform(*HEIGHTS_M)])
    eye = target + away
    inside = np.array([*room.half, room.height]) - FROM_WALL_M
    eye = np.clip(eye, (-inside[0], -inside[1], 0.3), inside)
    return View(looking(eye, target), optics.draw(rng), *optics.size)


def _is_free(view: View, placed: Sequence[PlacedAsset]) -> bool:
    """Returns whether a camera is outside of all boxes, by a margin."""
    eye = view.T_world_camera[:3, 3]
    for one in placed:
        local = (eye - one.position) @ turned(one.yaw)
        if (local > one.asset.low - FREE_M).all() and (local < one.asset.high + FREE_M).all():
            return False
    return True


def _shown(view: View, placed: Sequence[PlacedAsset]) -> int:
    """Returns how many objects have their middle in the image, at some size, if none is hidden."""
    centres = np.stack([one.centre() for one in placed]) - view.T_world_camera[:3, 3]
    local = centres @ view.T_world_camera[:3, :3]
    depth = np.maximum(local[:, 2], 1e-6)
    pixels = local @ view.intrinsics.T / depth[:, None]
    inside = (pixels[:, :2] >= 0).all(1) & (pixels[:, :2] < (view.width, view.height)).all(1)
    # An ellipse of two thirds of the diagonal's square is near the outline of most things.
    areas = np.array([(one.asset.size**2).sum() for one in placed]) / 3
    scale = view.intrinsics[0, 0] * view.intrinsics[1, 1] / depth**2
    return int((inside & (local[:, 2] > 0) & (areas * scale >= SHOWN_PX)).sum())


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


Item = TypeVar("Item")
ItemT = TypeVar("ItemT", covariant=True)
AHEAD = 4  # Rooms that wait per process.


class Drawer(Protocol[ItemT]):
    """Draws the images or clips of one room after the other."""

    def room(self, number: int) -> Sequence[ItemT]:
        """Returns the images or clips of a room."""
        ...

    def close(self) -> None:
        """Frees the graphics."""
        ...


class _Own(Generic[Item]):
    """The drawer of this process."""

    drawer: Drawer[Any] | None = None


def draw_rooms(
    make: Callable[[], Drawer[Item]], count: int, workers: int
) -> Generator[Sequence[Item], None, None]:
    """Yields the images or clips of the rooms 0 to `count`; its end stops the processes.

    Args:
        make: Makes the drawer of a process; it is pickled.
        count: Number of rooms.
        workers: Number of processes; 0 takes one per processor, 1 draws in this process.

    Raises:
        ValueError: The number of processes is not allowed, or a room cannot be drawn.
    """
    WHOLE.check(workers=workers)
    processes = min(workers or os.cpu_count() or 1, count)
    if processes == 1:
        drawer = make()
        try:
            yield from (drawer.room(number) for number in range(count))
        finally:
            drawer.close()
        return
    # Graphics do not survive a fork, so the processes are spawned.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _start, (make,))
    try:
        waiting: deque[Future[Sequence[Item]]] = deque()
        for number in range(count):
            waiting.append(pool.submit(_room, number))
            if len(waiting) == AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _start(make: Callable[[], Drawer[Any]]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Own.drawer = make()


def _end_with_parent() -> None:
    # Otherwise a process would stay behind when its parent is killed.
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _room(number: int) -> Sequence[Any]:
    assert _Own.drawer is not None
    found: Sequence[Any] = _Own.drawer.room(number)
    return found
