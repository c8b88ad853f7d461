"""Rooms: where assets stand without overlap, and the four kinds of rooms.

The kinds are those of STRING (Schenck et al., 2025), appendix F.1.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.sim.scenes.asset_classes import VARIANTS, make_asset
from stringline.sim.scenes.assets import Asset, Top, Vectors, turned

_SIGNS = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], dtype=np.float64)
_TOUCH_M = 1e-9


@dataclass(frozen=True)
class Rectangle:
    """A turned rectangle in a plane.

    Attributes:
        x: Its middle, metres.
        y: Its middle.
        half_x: Half length along its first axis.
        half_y: Half length along its second axis.
        yaw: Angle of its first axis, rad.
    """

    x: float
    y: float
    half_x: float
    half_y: float
    yaw: float = 0.0

    def axes(self) -> Vectors:
        """Returns the axes (2, 2), one per row."""
        cos = np.cos(self.yaw)
        sin = np.sin(self.yaw)
        return np.array([(cos, sin), (-sin, cos)])

    def corners(self, margin: float = 0.0) -> Vectors:
        """Returns the corners (4, 2) of the rectangle, grown by a margin."""
        half = np.array([self.half_x + margin, self.half_y + margin])
        found: Vectors = np.array([self.x, self.y]) + (_SIGNS * half) @ self.axes()
        return found


def overlap(a: Rectangle, b: Rectangle, margin: float = 0.0) -> bool:
    """Returns whether two rectangles are nearer than a margin, by their separating axes."""
    reach = np.hypot(a.half_x, a.half_y) + np.hypot(b.half_x, b.half_y) + margin
    if (a.x - b.x) ** 2 + (a.y - b.y) ** 2 > reach**2:
        return False
    first = a.corners(margin)
    second = b.corners()
    for axis in (*a.axes(), *b.axes()):
        p = first @ axis
        q = second @ axis
        if p.max() <= q.min() + _TOUCH_M or q.max() <= p.min() + _TOUCH_M:
            return False
    return True


class Packing:
    """A level rectangle around the origin, and the rectangles on it."""

    def __init__(self, half_x: float, half_y: float, margin: float) -> None:
        self.half_x = half_x
        self.half_y = half_y
        self.margin = margin
        self.taken: list[Rectangle] = []

    def fits(self, one: Rectangle, others: Iterable[Rectangle] = ()) -> bool:
        """Returns whether a rectangle lies inside and overlaps none of those here and of others."""
        reach = np.abs(one.corners()).max(0)
        if reach[0] > self.half_x or reach[1] > self.half_y:
            return False
        return not any(overlap(one, other, self.margin) for other in (*self.taken, *others))

    def add(self, one: Rectangle) -> None:
        """Takes the space of a rectangle."""
        self.taken.append(one)


FROM_WALL_M = 0.1  # Space of what hangs on walls.
CLOSE_M = 0.005  # Margin between things at full packing.
LOOSE_M = 0.05  # Further margin at packing 0.
SURFACE_TRIES = 6
HEIGHT_M = (2.5, 3.0)
WALL_HEIGHTS_M = (1.4, 1.8)

ChooseAsset = Callable[[str, np.random.Generator], Asset]


@dataclass(frozen=True, eq=False)
class PlacedAsset:
    """An asset in a room.

    Attributes:
        position: (3,) of the origin of its frame in the frame of the room, metres.
        yaw: Its angle about z, rad.
        support: Index of the asset on which it stands; None on the floor or a wall.
    """

    asset: Asset
    position: Vectors
    yaw: float
    support: int | None = None

    def centre(self) -> Vectors:
        """Returns the middle (3,) of its box in the frame of the room."""
        middle = (self.asset.low + self.asset.high) / 2
        return np.asarray(self.position + turned(self.yaw) @ middle)

    def rectangle(self) -> Rectangle:
        """Returns the outline of its box from above."""
        centre = self.centre()
        half = self.asset.size / 2
        return Rectangle(centre[0], centre[1], half[0], half[1], self.yaw)


@dataclass(frozen=True, eq=False)
class Surface:
    """A top of a placed asset with what stands on it; in the frame of the top's middle."""

    owner: int
    top: Top
    packing: Packing


def seeded_asset(name: str, rng: np.random.Generator) -> Asset:
    """Draws a variant of a parametric class."""
    return make_asset(name, int(rng.integers(VARIANTS)))


@dataclass(eq=False)
class Room:
    """A room with level floor at z = 0 and walls at `half`, which is filled asset by asset.

    Attributes:
        rng: Stream of the room.
        half: (x, y) half lengths, metres.
        packing: Density, 0 to 1.
        most: Largest number of assets; nothing is placed beyond it.
        choose: Draws an asset of a class.
    """

    rng: np.random.Generator
    half: tuple[float, float]
    packing: float
    most: int
    choose: ChooseAsset = seeded_asset
    placed: list[PlacedAsset] = field(default_factory=list)
    surfaces: list[Surface] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.height = float(self.rng.uniform(*HEIGHT_M))
        x, y = self.half
        self.margin = CLOSE_M + (1 - self.packing) * LOOSE_M
        self._floor = Packing(x - FROM_WALL_M, y - FROM_WALL_M, self.margin)
        self._walls = [Packing(length, self.height, self.margin) for length in (x, y, x, y)]

    def is_full(self) -> bool:
        """Returns whether the room has as many assets as it may have."""
        return len(self.placed) >= self.most

    def stand(self, asset: Asset, x: float, y: float, yaw: float) -> int | None:
        """Puts the middle of an asset at a place on the floor; None if it does not fit there."""
        if self.is_full():
            return None
        spot = Rectangle(x, y, asset.size[0] / 2, asset.size[1] / 2, yaw)
        if not self._floor.fits(spot):
            return None
        self._floor.add(spot)
        return self._put(asset, x, y, 0.0, yaw, None)

    def stand_at_wall(self, name: str, tries: int = 20) -> int | None:
        """Puts an asset of a class with its back to a wall; None if no place was found."""
        asset = self.choose(name, self.rng)
        for _ in range(tries):
            wall = int(self.rng.integers(4))
            along = self._draw_along(wall, asset)
            if along is None:
                continue
            distance = self._wall_distance(wall) - FROM_WALL_M - asset.size[1] / 2 - 1e-6
            x, y, yaw = _at_wall(wall, along, distance)
            if (found := self.stand(asset, x, y, yaw)) is not None:
                return found
        return None

    def stand_free(self, name: str, share: float = 1.0, tries: int = 20) -> int | None:
        """Puts an asset of a class anywhere in a share of the floor; None if nothing fits."""
        asset = self.choose(name, self.rng)
        for _ in range(tries):
            x, y = (float(share * self.rng.uniform(-half, half)) for half in self.half)
            yaw = float(self.rng.uniform(-np.pi, np.pi))
            if (found := self.stand(asset, x, y, yaw)) is not None:
                return found
        return None

    def stand_beside(
        self, name: str, anchor: int, direction: float, gap: float = 0.0, face: bool = True
    ) -> int | None:
        """Puts an asset beside another one, as near as it fits; it faces it if `face`.

        The direction is an angle in the frame of the other: -pi / 2 is in front of it.
        """
        asset = self.choose(name, self.rng)
        other = self.placed[anchor]
        at = other.yaw + direction
        middle = other.centre()
        toward = np.array([np.cos(at), np.sin(at)])
        # Its front -y points to the other at a yaw of at - pi / 2.
        yaw = at - np.pi / 2 if face else other.yaw
        yaw += float(self.rng.normal(0, 0.08))
        half = other.asset.size / 2
        reach = abs(np.cos(direction)) * half[0] + abs(np.sin(direction)) * half[1]
        for further in np.linspace(0, 0.5, 6):
            x, y = middle[:2] + toward * (reach + asset.size[1] / 2 + gap + further)
            if (found := self.stand(asset, float(x), float(y), yaw)) is not None:
                return found
        return None

    def put_on(self, name: str, owner: int | None = None) -> int | None:
        """Puts an asset of a class on a top, of `owner` if given; None if nothing fits."""
        asset = self.choose(name, self.rng)
        spaces = [one for one in self.surfaces if owner is None or one.owner == owner]
        if not spaces or self.is_full():
            return None
        for _ in range(SURFACE_TRIES):
            surface = spaces[self.rng.integers(len(spaces))]
            if asset.size[2] > surface.top.clearance:
                continue
            packing = surface.packing
            yaw = self._yaw_on(surface)
            x = float(self.rng.uniform(-packing.half_x, packing.half_x))
            y = float(self.rng.uniform(-packing.half_y, packing.half_y))
            spot = Rectangle(x, y, asset.size[0] / 2, asset.size[1] / 2, yaw)
            if (found := self.set_on(asset, surface, spot)) is not None:
                return found
        return None

    def set_on(self, asset: Asset, surface: Surface, spot: Rectangle) -> int | None:
        """Puts an asset on a top at a given spot of its middle; None if it does not fit."""
        if self.is_full() or not surface.packing.fits(spot):
            return None
        surface.packing.add(spot)
        return self._lift(asset, surface, spot)

    def hang(self, name: str, tries: int = 10) -> int | None:
        """Puts an asset of a class on a wall; None if nothing fits."""
        asset = self.choose(name, self.rng)
        if self.is_full():
            return None
        for _ in range(tries):
            wall = int(self.rng.integers(4))
            along = self._draw_along(wall, asset)
            z = float(self.rng.uniform(*WALL_HEIGHTS_M))
            high = asset.size[2] / 2
            if along is None or z + 2 * high > self.height or asset.size[1] > FROM_WALL_M:
                continue
            spot = Rectangle(along, z + high - self.height / 2, asset.size[0] / 2, high)
            if self._walls[wall].fits(spot):
                self._walls[wall].add(spot)
                x, y, yaw = _at_wall(wall, along, self._wall_distance(wall) - asset.size[1] / 2)
                return self._put(asset, x, y, z, yaw, None)
        return None

    def _yaw_on(self, surface: Surface) -> float:
        """Draws a yaw on a top: things on shelves face as these do, others mostly too."""
        if surface.top.clearance < 1.0:
            return 0.0
        if self.rng.uniform() < 0.5:
            return float(self.rng.normal(0, 0.2))
        return float(self.rng.uniform(-np.pi, np.pi))

    def _wall_distance(self, wall: int) -> float:
        return self.half[1 - wall % 2]

    def _draw_along(self, wall: int, asset: Asset) -> float | None:
        """Draws a place along a wall; None if the asset is longer than the wall."""
        room = self.half[wall % 2] - FROM_WALL_M - asset.size[0] / 2
        return None if room <= 0 else float(self.rng.uniform(-room, room))

    def _lift(self, asset: Asset, surface: Surface, spot: Rectangle) -> int:
        owner = self.placed[surface.owner]
        middle = np.array([surface.top.x + spot.x, surface.top.y + spot.y, surface.top.z])
        x, y, z = owner.position + turned(owner.yaw) @ middle
        return self._put(asset, x, y, z, owner.yaw + spot.yaw, surface.owner)

    def _put(
        self, asset: Asset, x: float, y: float, z: float, yaw: float, support: int | None
    ) -> int:
        """Adds an asset, given the middle of its box from above and its lowest height."""
        middle = (asset.low + asset.high) / 2
        offset = turned(yaw) @ (middle[0], middle[1], asset.low[2])
        number = len(self.placed)
        self.placed.append(PlacedAsset(asset, np.array([x, y, z]) - offset, yaw, support))
        for top in asset.tops:
            self.surfaces.append(
                Surface(number, top, Packing(top.half_x, top.half_y, self.margin / 2))
            )
        return number


def _at_wall(wall: int, along: float, distance: float) -> tuple[float, float, float]:
    """Returns x, y and yaw of an asset whose back (y) points to one of the four walls."""
    turn = wall * np.pi / 2
    x, y = turned(turn)[:2, :2] @ (along, distance)
    return float(x), float(y), turn


SMALLEST = 8
LARGEST = 25
FAILURES = 40  # Failures in a row after which nothing more fits.
ROOM_TRIES = 10
TABLES = ("dining table", "dining table", "coffee table", "desk")
DISHES = ("cup", "mug", "bowl", "plate", "glass", "bottle", "teapot", "jar", "can")
FRUIT = ("apple", "orange", "pear", "banana", "bowl")
DESK = ("laptop", "monitor", "keyboard", "book", "desk lamp", "mug", "phone", "speaker")
CLUTTER = (
    *DISHES,
    *FRUIT,
    *DESK,
    *("vase", "pan", "pot", "box", "block", "car", "candle", "alarm clock", "small plant"),
    *("table lamp", "book"),
)
DECORATION = ("book", "vase", "candle", "small plant", "box", "bowl", "speaker", "alarm clock")
LOOSE = ("plant", "basket", "ball", "stool", "ottoman", "floor lamp", "chair", "rug")
HANGING = ("clock", "picture", "mirror", "wall shelf")
LARGE = ("bookshelf", "cabinet", "chest", "bed", "television", "bench", "side table")
FRONT = -np.pi / 2


def _one(room: Room, names: Sequence[str]) -> str:
    return names[int(room.rng.integers(len(names)))]


def _some(room: Room, count: int, names: Sequence[str], owner: int | None) -> None:
    """Puts up to `count` things on an asset."""
    for _ in range(count if owner is not None else 0):
        room.put_on(_one(room, names), owner)


def _lounge(room: Room) -> None:
    """Adds a sofa at a wall, a table in front of it, seats around it and cushions."""
    sofa = room.stand_at_wall("sofa")
    if sofa is None:
        return
    table = room.stand_beside("coffee table", sofa, FRONT, room.rng.uniform(0.2, 0.4), face=False)
    _some(room, int(room.rng.integers(1, 4)), (*DECORATION, *DISHES), table)
    _some(room, int(room.rng.integers(0, 3)), ("cushion",), sofa)
    if table is not None:
        for direction in (0.0, np.pi, FRONT)[: room.rng.integers(1, 4)]:
            room.stand_beside(_one(room, ("armchair", "ottoman")), table, direction, 0.2)
    for direction in (0.0, np.pi):
        name = _one(room, ("floor lamp", "side table", "plant"))
        room.stand_beside(name, sofa, direction, 0.03, face=False)


def _dining(room: Room) -> None:
    """Adds a table with chairs around it and dishes on it."""
    table = room.stand_free("dining table", 0.7)
    if table is None:
        return
    for direction in (FRONT, np.pi / 2, 0.0, np.pi)[: room.rng.integers(2, 5)]:
        room.stand_beside("chair", table, direction, 0.02)
    _some(room, int(room.rng.integers(2, 6)), (*DISHES, *FRUIT, "vase", "candle"), table)


def _office(room: Room) -> None:
    """Adds a desk at a wall, devices on it, and a chair in front of it."""
    desk = room.stand_at_wall("desk")
    if desk is None:
        return
    room.stand_beside(_one(room, ("office chair", "chair")), desk, FRONT, 0.05)
    _some(room, int(room.rng.integers(2, 6)), DESK, desk)
    room.stand_beside(_one(room, ("basket", "cabinet")), desk, 0.0, 0.05, face=False)


def _reading(room: Room) -> None:
    """Adds a shelf with books, and an armchair with a lamp."""
    shelf = room.stand_at_wall("bookshelf")
    _some(room, int(room.rng.integers(2, 6)), ("book", "book", "vase", "small plant"), shelf)
    chair = room.stand_at_wall("armchair")
    if chair is not None:
        room.stand_beside("floor lamp", chair, 0.0, 0.03, face=False)
        side = room.stand_beside("side table", chair, np.pi, 0.03, face=False)
        _some(room, 2, ("book", "cup", "table lamp", "glass"), side)


def _fill(room: Room, on: Sequence[str], share: float) -> None:
    """Adds things until there are as many as there may be, or nothing more fits.

    `on` are the classes for tops; `share` is the share of them in all attempts.
    """
    failures = 0
    while not room.is_full() and failures < FAILURES:
        draw = room.rng.uniform()
        if draw < share:
            found = room.put_on(_one(room, on))
        elif draw < share + 0.6 * (1 - share):
            found = room.stand_free(_one(room, LOOSE), tries=4)
        elif draw < share + 0.85 * (1 - share):
            found = room.stand_at_wall(_one(room, LARGE), tries=4)
        else:
            found = room.hang(_one(room, HANGING))
        failures = 0 if found is not None else failures + 1


def _living_room(room: Room) -> None:
    areas = (_lounge, _dining, _office, _reading)
    for number in room.rng.permutation(len(areas))[: room.rng.integers(2, 5)]:
        areas[number](room)
    _fill(room, (*DECORATION, *DISHES), 0.5)


def _cluttered_table(room: Room) -> None:
    table = room.stand_free(_one(room, TABLES), 0.3)
    _some(room, room.most, CLUTTER, table)
    _seats(room, table, 3)
    _fill(room, CLUTTER, 0.8)


def _tables(room: Room) -> None:
    tables = [
        room.stand_free(_one(room, (*TABLES, "side table")), 0.8)
        for _ in range(room.rng.integers(2, 5))
    ]
    each = -(-room.most // len(tables))
    for table in tables:
        _some(room, int(room.rng.integers(2, each + 1)), CLUTTER, table)
        _seats(room, table, 2)
    _fill(room, CLUTTER, 0.8)


def _trays(room: Room) -> None:
    table = room.stand_free(_one(room, TABLES), 0.3)
    trays = [] if table is None else [room.put_on("tray", table) for _ in range(3)]
    for tray in trays[: room.rng.integers(1, 4)]:
        _some(room, int(room.rng.integers(3, 7)), (*DISHES, *FRUIT, "candle"), tray)
    _some(room, int(room.rng.integers(1, 6)), CLUTTER, table)
    _seats(room, table, 2)
    _fill(room, CLUTTER, 0.8)


def _seats(room: Room, table: int | None, most: int) -> None:
    """Adds up to `most` seats around a table."""
    if table is not None:
        for direction in room.rng.permutation(4)[: room.rng.integers(0, most + 1)]:
            room.stand_beside(_one(room, ("chair", "stool")), table, direction * np.pi / 2, 0.02)


ROOM_KINDS: Mapping[str, Callable[[Room], None]] = {
    "living_room": _living_room,
    "cluttered_table": _cluttered_table,
    "tables": _tables,
    "trays": _trays,
}
HALVES_M: Mapping[str, tuple[float, float]] = {
    "living_room": (1.8, 2.8),
    "cluttered_table": (1.4, 2.2),
    "tables": (1.8, 2.6),
    "trays": (1.4, 2.2),
}
"""Range of half lengths of a kind."""


def furnish(
    kind: str,
    seed: Sequence[int],
    *,
    objects: tuple[int, int] = (SMALLEST, LARGEST),
    choose: ChooseAsset = seeded_asset,
) -> Room:
    """Returns a room of a kind with a drawn number of objects.

    A room in which fewer than the least number fit is drawn again.

    Args:
        kind: A name in `ROOM_KINDS`.
        seed: Seed of the room.
        objects: Least and largest number of objects.
        choose: Draws an asset of a class.

    Raises:
        ValueError: There is no such kind, the numbers are not allowed, or in no attempt enough
            objects fit.
    """
    if kind not in ROOM_KINDS:
        raise unknown_name("kind of rooms", kind, ROOM_KINDS)
    least, most = objects
    COUNT.check(objects=least)
    if most < least:
        raise ValueError(f"objects is [{least}, {most}]; allowed: the least number first.")
    held = 0
    for attempt in range(ROOM_TRIES):
        rng = np.random.default_rng([*seed, attempt])
        count = int(rng.integers(least, most + 1))
        half = (float(rng.uniform(*HALVES_M[kind])), float(rng.uniform(*HALVES_M[kind])))
        room = Room(rng, half, float(rng.uniform()), count, choose)
        ROOM_KINDS[kind](room)
        if len(room.placed) >= least:
            return room
        held = max(held, len(room.placed))
    raise ValueError(
        f"Nothing more fits in a room of kind {kind!r} after {held} objects, of which objects="
        f"[{least},{most}] demands {least}; allowed: fewer objects."
    )
