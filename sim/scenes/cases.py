"""Forms of tables, shelves, cases and lamps."""

import numpy as np

from stringline.sim.scenes.assets import DARK, STEEL, Sketch
from stringline.sim.scenes.palette import FABRIC, WOODEN

PAINTS = (WOODEN, WOODEN, WOODEN, "white", "black", "grey", "brown")


def _table(s: Sketch, w: float, d: float, h: float) -> None:
    """Adds a board on four legs, two panels or one column; round ones have a column."""
    colour = s.use(*PAINTS)
    leg = colour if s.chance(0.6) else STEEL
    thick = s.draw(0.025, 0.045)
    kind = s.rng.integers(3)
    if kind == 0:
        s.legs(w - 0.04, d - 0.04, h - thick, s.draw(0.02, 0.035), leg)
    elif kind == 1:
        for x in (-1, 1):
            s.box((0.03, 0.85 * d, h - thick), (x * (w / 2 - 0.08), 0, 0), leg)
        s.box((w - 0.16, 0.02, 0.25), (0, 0.3 * d, h - thick - 0.25), leg)
    else:
        s.post(0.04, h - thick, (0, 0, 0), leg)
        s.box((0.6 * w, 0.1, 0.03), colour=leg)
        s.box((0.1, 0.6 * d, 0.03), colour=leg)
    s.box((w, d, thick), (0, 0, h - thick))
    s.top((w - 0.04, d - 0.04), h)


def dining_table(s: Sketch) -> None:
    """A table to sit at; a round one in a third of the cases."""
    h = s.draw(0.7, 0.77)
    if s.chance(0.33):
        s.name = "round table"
        colour = s.use(*PAINTS)
        r = s.draw(0.45, 0.65)
        s.post(0.05, h - 0.03, (0, 0, 0), s.second())
        s.post(0.5 * r, 0.03, (0, 0, 0), s.second())
        s.post(r, 0.03, (0, 0, h - 0.03), colour)
        s.top((1.38 * r, 1.38 * r), h)
    else:
        _table(s, s.draw(1.2, 1.8), s.draw(0.75, 0.95), h)


def coffee_table(s: Sketch) -> None:
    """A low table."""
    _table(s, s.draw(0.8, 1.15), s.draw(0.5, 0.7), s.draw(0.36, 0.46))


def side_table(s: Sketch) -> None:
    """A small table."""
    w = s.draw(0.38, 0.55)
    _table(s, w, w * s.draw(0.9, 1.0), s.draw(0.45, 0.6))


def desk(s: Sketch) -> None:
    """A table with a case of drawers at one side."""
    colour = s.use(*PAINTS)
    w = s.draw(1.1, 1.5)
    d = s.draw(0.58, 0.75)
    h = s.draw(0.7, 0.76)
    side = 1 if s.chance(0.5) else -1
    s.box((w, d, 0.03), (0, 0, h - 0.03))
    s.box((0.03, d - 0.04, h - 0.03), (-side * (w / 2 - 0.02), 0, 0))
    x = side * (w / 2 - 0.21)
    s.box((0.4, d - 0.06, h - 0.03), (x, 0.02, 0), colour)
    for z in np.linspace(0.06, h - 0.26, 3):
        s.box((0.36, 0.015, 0.17), (x, -d / 2 + 0.045, z), s.second(WOODEN, "white", "black"))
    s.top((w - 0.04, d - 0.04), h)


def bookshelf(s: Sketch) -> None:
    """A case of boards, open in front."""
    s.use(*PAINTS)
    w = s.draw(0.6, 1.1)
    d = s.draw(0.26, 0.34)
    h = s.draw(1.0, 1.7)
    count = round(h / s.draw(0.32, 0.42))
    s.box((w, 0.015, h), (0, d / 2 - 0.008, 0))
    for x in (-1, 1):
        s.box((0.025, d, h), (x * (w / 2 - 0.0125), 0, 0))
    step = (h - 0.025) / count
    for number in range(count + 1):
        s.box((w, d, 0.025), (0, 0, number * step))
        inside = number < count
        space = (w - 0.08, d - 0.05) if inside else (w - 0.04, d - 0.04)
        clearance = step - 0.04 if inside else 10.0
        s.top(space, number * step + 0.025, (0, -0.01), clearance)


def _case(s: Sketch, w: float, d: float, h: float) -> None:
    """Adds a closed case on a plinth, on which things stand."""
    s.box((w - 0.04, d - 0.04, 0.05), colour=DARK)
    s.box((w, d, h - 0.05), (0, 0, 0.05))
    s.top((w - 0.04, d - 0.04), h)


def cabinet(s: Sketch) -> None:
    """A case with a door that swings, and knobs."""
    s.use(*PAINTS, "blue", "green", "red")
    w = s.draw(0.5, 0.9)
    d = s.draw(0.35, 0.5)
    h = s.draw(0.7, 1.2)
    _case(s, w, d, h)
    y = -d / 2 - 0.01
    door = s.second(WOODEN, "white", "grey", "brown")
    s.box((w - 0.02, 0.02, h - 0.08), (0, y, 0.06), door, swings=True)
    s.box((0.02, 0.03, 0.1), (w / 2 - 0.06, y - 0.02, 0.5 * h), STEEL, swings=True)
    s.hinge((-w / 2 + 0.01, -d / 2, 0), (0, 0, 1), -1.9)


def dresser(s: Sketch) -> None:
    """A chest of drawers."""
    s.name = "chest of drawers"
    s.use(*PAINTS, "blue", "green", "pink")
    w = s.draw(0.7, 1.1)
    d = s.draw(0.4, 0.5)
    h = s.draw(0.7, 1.0)
    _case(s, w, d, h)
    front = s.second(WOODEN, "white", "grey")
    step = (h - 0.1) / 4
    for number in range(4):
        z = 0.08 + number * step
        s.box((w - 0.06, 0.015, step - 0.03), (0, -d / 2 - 0.007, z), front)
        for x in (-0.22 * w, 0.22 * w):
            s.blob((0.03, 0.03, 0.03), (x, -d / 2 - 0.025, z + 0.4 * step), DARK)


def tv_stand(s: Sketch) -> None:
    """A long low case with a screen on it."""
    s.name = "television"
    s.noun = "television"
    s.use("black", "grey", "white")
    w = s.draw(0.9, 1.2)
    h = s.draw(0.36, 0.48)
    board = s.second(WOODEN, "white", "black")
    s.box((w + 0.15, 0.38, h), colour=board)
    s.box((0.3, 0.18, 0.02), (0, 0, h))
    s.box((0.08, 0.04, 0.08), (0, 0.02, h))
    s.box((w, 0.04, 0.57 * w), (0, 0, h + 0.06))
    s.box((w - 0.03, 0.006, 0.57 * w - 0.03), (0, -0.021, h + 0.075), (0.05, 0.06, 0.1))


def _shade(s: Sketch, r: float, h: float, z: float) -> None:
    """Adds a lampshade: a cone without its tip."""
    narrow = s.draw(0.55, 1.0) * r
    s.revolve([(0, z), (r, z), (narrow, z + h), (0, z + h)])


def floor_lamp(s: Sketch) -> None:
    """A foot, a pole and a shade."""
    s.use(*FABRIC)
    h = s.draw(1.2, 1.45)
    r = s.draw(0.16, 0.24)
    metal = s.second("grey", "black", WOODEN, "white")
    s.post(s.draw(0.13, 0.17), 0.03, colour=metal)
    s.post(0.014, h, (0, 0, 0.02), metal)
    _shade(s, r, s.draw(0.2, 0.32), h - 0.1)


def table_lamp(s: Sketch) -> None:
    """A body, a neck and a shade."""
    s.use(*FABRIC)
    h = s.draw(0.14, 0.24)
    r = s.draw(0.1, 0.15)
    body = s.second(*FABRIC)
    s.revolve([(0, 0), (0.06, 0), (s.draw(0.04, 0.09), 0.5 * h), (0.02, h), (0, h)], colour=body)
    s.post(0.01, 0.08, (0, 0, h), STEEL)
    _shade(s, r, s.draw(0.14, 0.2), h + 0.04)


def desk_lamp(s: Sketch) -> None:
    """A foot, two arms at an angle and a head."""
    colour = s.use(*FABRIC)
    s.post(0.08, 0.02)
    elbow = (0, s.draw(0.02, 0.08), s.draw(0.22, 0.3))
    head = (0, -s.draw(0.08, 0.16), elbow[2] + s.draw(0.08, 0.16))
    s.rod((0, 0, 0.02), elbow, 0.01, STEEL)
    s.rod(elbow, head, 0.01, STEEL)
    z = head[2] - 0.09
    s.revolve([(0, z), (0.07, z), (0.025, z + 0.1), (0, z + 0.1)], (0, head[1], 0), colour)


def wall_shelf(s: Sketch) -> None:
    """A board on two brackets at the wall."""
    s.use(*PAINTS)
    w = s.draw(0.5, 0.9)
    d = 0.05
    s.box((w, d, 0.025), (0, 0, 0.1))
    for x in (-0.35 * w, 0.35 * w):
        s.box((0.02, d - 0.01, 0.1), (x, 0, 0), STEEL)
