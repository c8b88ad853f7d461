"""Forms of seats, beds and soft things."""

import numpy as np

from stringline.sim.scenes.assets import DARK, STEEL, Sketch
from stringline.sim.scenes.palette import FABRIC, WOODEN


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
