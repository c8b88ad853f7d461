"""Rooms and images that several tests look at."""

from functools import cache

import numpy as np

from stringline.sim.scenes.labels import LabelledView, label_view
from stringline.sim.scenes.room_renderer import RoomBuilder, RoomRenderer
from stringline.sim.scenes.rooms import ROOM_KINDS, Room, furnish
from stringline.sim.scenes.scene_images import Optics, draw_view

OPTICS = Optics(size=(96, 96))


@cache
def renderer() -> RoomRenderer:
    """Returns the renderer of this process."""
    return RoomRenderer((192, 192))


def open_room(kind: str, number: int) -> Room:
    """Furnishes a room and opens it in the renderer."""
    room = furnish(kind, [7, number])
    builder = RoomBuilder(np.random.default_rng(number), (192, 192))
    builder.add_room(room)
    for index, placed in enumerate(room.placed):
        builder.add(placed, index)
    renderer().open(builder.compile())
    return room


@cache
def views() -> tuple[tuple[str, Room, LabelledView], ...]:
    """Returns three labelled images of one room of each kind."""
    found = []
    for number, kind in enumerate(ROOM_KINDS):
        room = open_room(kind, number)
        rng = np.random.default_rng(number)
        for _ in range(3):
            view = draw_view(kind, room, OPTICS, rng)
            found.append((kind, room, label_view(view, room, renderer(), rng)))
    return tuple(found)
