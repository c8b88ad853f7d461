"""Forms of furniture: seats, beds and soft things, tables, shelves, cases and lamps."""

import numpy as np

from stringline.sim.scenes.assets import DARK, FABRIC, STEEL, WOODEN, Sketch


def chair(s: Sketch) -> None:
    """Four legs, a seat, and a back of boards or of one panel."""
    colour = s.use(WOODEN, WOODEN, *FABRIC)
    w = s.draw(0.4, 0.48)
    d = s.draw(0.4, 0.48)
    h = s.draw(0.42, 0.48)
    back = s.draw(0.36, 0.52)
    s.legs(w, d, h, s.draw(0.015, 0.025), colour)
    s.box((w, d, 0.04), (0, 0, h))
    y = d / 2 - 0.015
    if s.chance(0.5):
        s.box((w, 0.03, back), (0, y, h + 0.04))
    else:
        for x in np.linspace(-w / 2 + 0.02, w / 2 - 0.02, 4):
            s.box((0.03, 0.025, back), (x, y, h + 0.04))
        s.box((w, 0.03, 0.07), (0, y, h + 0.04 + back - 0.07))
    s.top((w - 0.04, d - 0.08), h + 0.04, (0, -0.02))


def office_chair(s: Sketch) -> None:
    """A star foot, a column, a padded seat and back, and sometimes arms."""
    s.use("black", "grey", "blue", "red", "green", texture="cloth")
    h = s.draw(0.42, 0.5)
    for angle in np.arange(5) * 2 * np.pi / 5:
        tip = (0.28 * np.cos(angle), 0.28 * np.sin(angle), 0.03)
        s.rod((0, 0, 0.06), tip, 0.02, DARK)
        s.blob((0.06, 0.06, 0.06), (tip[0], tip[1], 0), DARK)
    s.post(0.03, h, (0, 0, 0.05), STEEL)
    s.box((0.48, 0.46, 0.08), (0, 0, h))
    s.box((0.44, 0.06, s.draw(0.4, 0.6)), (0, 0.22, h + 0.1))
    s.box((0.06, 0.03, 0.12), (0, 0.22, h + 0.02), DARK)
    if s.chance(0.6):
        for x in (-0.27, 0.27):
            s.box((0.04, 0.26, 0.03), (x, 0, h + 0.26), DARK)
            s.box((0.03, 0.03, 0.26), (x, 0, h), DARK)


def stool(s: Sketch) -> None:
    """A round seat on three or four legs, low or of the height of a bar."""
    colour = s.use(WOODEN, *FABRIC)
    high = s.chance(0.35)
    s.name = "bar stool" if high else "stool"
    h = s.draw(0.62, 0.75) if high else s.draw(0.4, 0.48)
    r = s.draw(0.15, 0.2)
    count = 3 if s.chance(0.4) else 4
    for angle in np.arange(count) * 2 * np.pi / count + 0.4:
        x = np.cos(angle)
        y = np.sin(angle)
        s.rod((r * x, r * y, 0.01), (0.6 * r * x, 0.6 * r * y, h), 0.016, s.second())
    s.post(r, 0.04, (0, 0, h), colour)
    s.top((1.3 * r, 1.3 * r), h + 0.04)


def _upholstered(s: Sketch, width: float, seats: int) -> None:
    """Adds base, seat cushions, back and arms."""
    depth = s.draw(0.75, 0.92)
    h = s.draw(0.36, 0.44)
    arm = s.draw(0.12, 0.2)
    back = s.draw(0.36, 0.48)
    thick = s.draw(0.14, 0.2)
    s.legs(width - 0.08, depth - 0.08, 0.1, 0.02, s.second())
    s.box((width, depth, h - 0.24), (0, 0, 0.1))
    inner = width - 2 * arm
    for number in range(seats):
        x = inner * ((number + 0.5) / seats - 0.5)
        s.box((inner / seats - 0.01, depth - thick, 0.14), (x, -thick / 2, h - 0.14))
    s.box((width, thick, back + h - 0.1), (0, (depth - thick) / 2, 0.1))
    for x in (-1, 1):
        s.box((arm, depth, h + s.draw(0.12, 0.2) - 0.1), (x * (width - arm) / 2, 0, 0.1))
    s.top((inner - 0.06, depth - thick - 0.06), h, (0, -thick / 2))


def armchair(s: Sketch) -> None:
    """An upholstered seat for one."""
    s.use(texture="cloth")
    _upholstered(s, s.draw(0.8, 0.98), 1)


def sofa(s: Sketch) -> None:
    """An upholstered seat for two or three."""
    s.use(texture="cloth")
    seats = 3 if s.chance(0.6) else 2
    _upholstered(s, 0.35 + seats * s.draw(0.52, 0.62), seats)


def bench(s: Sketch) -> None:
    """A long board on two trestles."""
    s.use(WOODEN, WOODEN, "white", "black", "green")
    w = s.draw(0.9, 1.3)
    d = s.draw(0.3, 0.38)
    h = s.draw(0.42, 0.46)
    s.box((w, d, 0.04), (0, 0, h))
    for x in (-1, 1):
        s.box((0.04, d - 0.06, h), (x * (w / 2 - 0.12), 0, 0))
    s.top((w - 0.06, d - 0.04), h + 0.04)


def ottoman(s: Sketch) -> None:
    """An upholstered block or drum without a back."""
    s.use(texture="cloth")
    w = s.draw(0.42, 0.6)
    h = s.draw(0.34, 0.44)
    if s.chance(0.5):
        s.post(w / 2, h)
    else:
        s.box((w, s.draw(0.8, 1.0) * w, h))
    s.top((0.6 * w, 0.6 * w), h)


def bed(s: Sketch) -> None:
    """A frame with mattress, blanket, pillows and headboard."""
    w = s.draw(0.95, 1.4)
    d = s.draw(1.9, 2.0)
    wood = s.second(WOODEN, WOODEN, "white", "black")
    s.box((w, d, 0.2), (0, 0, 0.12), wood)
    s.legs(w, d, 0.12, 0.03, wood)
    s.box((w + 0.04, 0.05, s.draw(0.7, 1.0)), (0, d / 2 + 0.025, 0), wood)
    s.box((w - 0.04, d - 0.02, 0.16), (0, 0, 0.32), (0.93, 0.93, 0.92))
    s.use(texture="cloth")
    s.box((w, 0.68 * d, 0.05), (0, -0.15 * d, 0.46))
    for x in (-1, 1) if w > 1.15 else (0,):
        s.blob((0.5, 0.34, 0.14), (x * w / 4, 0.38 * d, 0.46), (0.95, 0.95, 0.95))
    s.top((w - 0.2, 0.5 * d), 0.51, (0, -0.15 * d))


def cushion(s: Sketch) -> None:
    """A flat soft pillow."""
    s.use(texture="cloth")
    w = s.draw(0.3, 0.42)
    s.blob((w, w, s.draw(0.12, 0.16)))
    s.box((0.78 * w, 0.78 * w, 0.05), (0, 0, 0.04))


def rug(s: Sketch) -> None:
    """A thin rectangle with a border."""
    s.use(texture="cloth")
    w = s.draw(1.5, 2.2)
    d = s.draw(1.1, 1.6)
    s.box((w, d, 0.008), colour=s.second(*FABRIC))
    s.box((w - 0.16, d - 0.16, 0.01))
    s.top((w, d), 0.01)


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
