"""The four kinds of rooms, as in STRING (Schenck et al., 2025), appendix F.1."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stringline.datasets.contract.argument_checks import COUNT, unknown_name
from stringline.sim.scenes.rooms import ChooseAsset, Room, seeded_asset

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
