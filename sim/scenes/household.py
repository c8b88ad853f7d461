"""Forms of devices, decoration and small things."""

import numpy as np

from stringline.sim.scenes.assets import DARK, STEEL, Sketch
from stringline.sim.scenes.palette import BRIGHT, FABRIC, WOODEN
from stringline.sim.scenes.tableware import hollow

SCREEN = (0.08, 0.1, 0.16)
LEAVES = (0.16, 0.38, 0.16)


def book(s: Sketch) -> None:
    """Pages between covers, lying or standing."""
    s.use(*FABRIC)
    w = s.draw(0.13, 0.2)
    h = s.draw(0.2, 0.28)
    thick = s.draw(0.02, 0.05)
    pages = (0.93, 0.91, 0.84)
    if s.chance(0.5):
        s.box((w - 0.006, h - 0.012, thick), (0.003, 0, 0), pages)
        s.box((w, h, 0.003))
        s.box((w, h, 0.003), (0, 0, thick - 0.003))
        s.box((0.004, h, thick), (-w / 2 + 0.002, 0, 0))
    else:
        s.box((thick - 0.006, w - 0.006, h - 0.006), (0, 0.003, 0.003), pages)
        for x in (-1, 1):
            s.box((0.003, w, h), (x * (thick - 0.003) / 2, 0, 0))
        s.box((thick, 0.004, h), (0, -w / 2 + 0.002, 0))


def laptop(s: Sketch) -> None:
    """A flat base with keys, and a lid that swings."""
    s.use("grey", "black", "white", "blue", "pink")
    w = s.draw(0.3, 0.37)
    d = s.draw(0.21, 0.26)
    s.box((w, d, 0.016))
    s.box((0.88 * w, 0.5 * d, 0.001), (0, 0.1 * d, 0.016), DARK)
    lid = 0.95 * d
    angle = s.draw(-0.45, -0.15)
    top = (0, d / 2 - 0.005, 0.018)
    s.box((w, 0.006, lid), top, tilt=angle, swings=True)
    cos = np.cos(angle)
    sin = np.sin(angle)
    inner = (0, top[1] - 0.0035 * cos - 0.01 * sin, top[2] - 0.0035 * sin + 0.01 * cos)
    s.box((0.93 * w, 0.001, 0.9 * lid), inner, SCREEN, tilt=angle, swings=True)
    s.hinge((0, d / 2, 0.02), (1, 0, 0), 0.0, 1.5 - angle)


def monitor(s: Sketch) -> None:
    """A screen on a stand."""
    s.use("black", "grey", "white")
    w = s.draw(0.45, 0.62)
    h = s.draw(0.28, 0.36)
    z = s.draw(0.1, 0.15)
    s.box((0.5 * w, 0.18, 0.015))
    s.box((0.06, 0.03, z + 0.05), (0, 0.03, 0))
    s.box((w, 0.03, h), (0, 0, z))
    s.box((w - 0.02, 0.004, h - 0.02), (0, -0.016, z + 0.01), SCREEN)


def keyboard(s: Sketch) -> None:
    """A flat base with rows of keys."""
    s.use("black", "white", "grey")
    w = s.draw(0.36, 0.45)
    d = s.draw(0.12, 0.15)
    s.box((w, d, 0.018))
    keys = s.second("white", "black", "grey")
    for y in np.linspace(-0.36, 0.36, 4):
        s.box((0.94 * w, 0.17 * d, 0.006), (0, y * d, 0.018), keys)


def phone(s: Sketch) -> None:
    """A flat telephone, lying."""
    s.use(*FABRIC)
    s.box((0.072, 0.148, 0.008))
    s.box((0.066, 0.14, 0.001), (0, 0, 0.008), SCREEN)


def speaker(s: Sketch) -> None:
    """A case with two round membranes."""
    s.use("black", "white", WOODEN, "red", "blue")
    w = s.draw(0.12, 0.17)
    d = s.draw(0.12, 0.17)
    h = s.draw(0.2, 0.3)
    s.box((w, d, h))
    for z, r in ((0.3 * h, 0.38 * w), (0.75 * h, 0.22 * w)):
        s.rod((0, -d / 2 + 0.001, z), (0, -d / 2 - 0.006, z), r, (0.25, 0.25, 0.27))


def box(s: Sketch) -> None:
    """A carton with a lid that swings."""
    s.use(*BRIGHT, "brown", WOODEN)
    w = s.draw(0.16, 0.34)
    d = s.draw(0.14, 0.26)
    h = s.draw(0.1, 0.24)
    s.box((w, d, h))
    s.box((w + 0.01, d + 0.01, 0.02), (0, 0, h), s.second(*FABRIC), swings=True)
    s.hinge((0, d / 2, h), (1, 0, 0), -1.9)


def basket(s: Sketch) -> None:
    """A round vessel of wicker, open above."""
    s.use("brown", "white", "grey", WOODEN, texture="wicker")
    s.texture = "wicker"
    r = s.draw(0.14, 0.2)
    h = s.draw(0.2, 0.32)
    s.revolve(hollow([(0.8 * r, 0), (r, h)], 0.012, 0.015))


def ball(s: Sketch) -> None:
    """A ball."""
    s.use(*BRIGHT)
    w = s.draw(0.12, 0.24)
    s.blob((w, w, w))


def block(s: Sketch) -> None:
    """A toy block."""
    s.name = "toy block"
    s.use(*BRIGHT, WOODEN)
    w = s.draw(0.04, 0.07)
    s.box((w, w * s.draw(0.8, 2.0), w))


def car(s: Sketch) -> None:
    """A toy car with four wheels."""
    s.name = "toy car"
    s.use(*BRIGHT)
    w = s.draw(0.14, 0.2)
    d = s.draw(0.07, 0.09)
    s.box((w, d, 0.03), (0, 0, 0.015))
    s.box((0.5 * w, 0.9 * d, 0.028), (-0.05 * w, 0, 0.045), SCREEN)
    s.box((0.46 * w, 0.92 * d, 0.006), (-0.05 * w, 0, 0.07))
    for x in (-0.3 * w, 0.3 * w):
        for y in (-1, 1):
            s.rod((x, y * (d / 2 - 0.012), 0.02), (x, y * (d / 2 + 0.003), 0.02), 0.02, DARK)


def candle(s: Sketch) -> None:
    """A candle on a foot."""
    s.use(*BRIGHT)
    r = s.draw(0.015, 0.035)
    h = s.draw(0.08, 0.18)
    s.post(1.8 * r, 0.012, colour=STEEL)
    s.post(r, h, (0, 0, 0.012))
    s.post(0.002, 0.012, (0, 0, 0.012 + h), DARK)


def clock(s: Sketch) -> None:
    """A round clock for the wall, with two hands."""
    s.use(*FABRIC, WOODEN)
    r = s.draw(0.12, 0.18)
    s.rod((0, 0.02, r), (0, -0.018, r), r, None)
    s.rod((0, -0.017, r), (0, -0.02, r), 0.88 * r, (0.95, 0.95, 0.93))
    for length in (0.5, 0.75):
        angle = s.draw(0, 2 * np.pi)
        tip = (length * r * np.sin(angle), -0.022, r + length * r * np.cos(angle))
        s.rod((0, -0.022, r), tip, 0.006, DARK)


def alarm_clock(s: Sketch) -> None:
    """A small round clock on two feet."""
    s.use(*BRIGHT, "black")
    r = s.draw(0.045, 0.065)
    z = r + 0.01
    s.rod((0, 0.025, z), (0, -0.025, z), r, None)
    s.rod((0, -0.024, z), (0, -0.028, z), 0.85 * r, (0.95, 0.95, 0.93))
    for x in (-0.5 * r, 0.5 * r):
        s.rod((1.3 * x, 0, 0.003), (x, 0, 0.3 * r), 0.006, STEEL)
        s.blob((0.03, 0.03, 0.025), (x, 0, 1.8 * r), STEEL)


def picture(s: Sketch) -> None:
    """A frame with three fields of colour."""
    s.use("black", "white", WOODEN, "brown")
    w = s.draw(0.35, 0.7)
    h = s.draw(0.3, 0.55)
    s.box((w, 0.03, h))
    for number, x in enumerate(np.linspace(-0.29, 0.29, 3) * (w - 0.06)):
        field = 0.9 * (h - 0.06) * (0.7 + 0.15 * number)
        s.box((0.27 * w, 0.004, field), (x, -0.016, 0.03), s.second(*BRIGHT))


def mirror(s: Sketch) -> None:
    """A pale pane in a frame."""
    s.use(WOODEN, "black", "white", "grey", "yellow")
    w = s.draw(0.3, 0.5)
    h = s.draw(0.4, 0.7)
    s.box((w, 0.025, h))
    s.box((w - 0.06, 0.004, h - 0.06), (0, -0.014, 0.03), (0.78, 0.85, 0.9))


def plant(s: Sketch) -> None:
    """Leaves above a pot that stands on the floor."""
    s.name = "potted plant"
    _plant(s, 1.0)


def small_plant(s: Sketch) -> None:
    """The same in small; cacti have no leaves."""
    if s.chance(0.4):
        s.name = "cactus"
        s.use(*FABRIC, texture="glaze")
        s.revolve([(0, 0), (0.04, 0), (0.05, 0.08), (0, 0.08)])
        s.blob((0.06, 0.06, s.draw(0.1, 0.18)), (0, 0, 0.06), LEAVES)
        s.blob((0.03, 0.03, 0.06), (0.04, 0, 0.11), LEAVES)
    else:
        s.name = "potted plant"
        _plant(s, 0.3)


def _plant(s: Sketch, size: float) -> None:
    """Adds a pot and leaves as ellipsoids along stalks."""
    s.use(*FABRIC, texture="glaze")
    r = size * s.draw(0.13, 0.18)
    h = size * s.draw(0.2, 0.32)
    s.revolve([(0, 0), (0.75 * r, 0), (r, h), (0, h)])
    for angle in np.arange(7) * 2.4 + s.draw(0, 6):
        reach = size * s.draw(0.1, 0.24)
        high = h + size * s.draw(0.15, 0.6)
        tip = (reach * np.cos(angle), reach * np.sin(angle), high)
        s.rod((0, 0, 0.9 * h), tip, 0.008 * size, LEAVES)
        leaf = (size * s.draw(0.18, 0.28), size * 0.1, size * 0.05)
        s.blob(leaf, (tip[0], tip[1], tip[2] - 0.02 * size), LEAVES, yaw=angle)
