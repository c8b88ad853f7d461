"""Forms of household things: dishes, vessels and fruit, devices, decoration and small things."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stringline.sim.scenes.assets import BRIGHT, DARK, FABRIC, STEEL, WOODEN, Colour, Sketch

Profile = list[tuple[float, float]]


def hollow(outside: Sequence[tuple[float, float]], wall: float, floor: float) -> Profile:
    """Returns the closed profile of a vessel, given its outside from the foot to the rim."""
    inside = [(max(r - wall, 0.001), max(z, floor)) for r, z in reversed(outside)]
    return [(0.0, outside[0][1]), *outside, *inside, (0.0, floor)]


def _handle(s: Sketch, r: float, low: float, high: float, colour: Colour | None = None) -> None:
    """Adds a handle of three rods at a radius."""
    out = r + 0.45 * (high - low)
    s.rod((r - 0.003, 0, high), (out, 0, high), 0.005, colour)
    s.rod((out, 0, high), (out, 0, low), 0.005, colour)
    s.rod((out, 0, low), (r - 0.003, 0, low), 0.005, colour)


def cup(s: Sketch) -> None:
    """A vessel that widens, with a handle, on a saucer."""
    s.use(*FABRIC, texture="glaze")
    r = s.draw(0.034, 0.046)
    h = s.draw(0.055, 0.075)
    s.revolve([(0, 0), (0.045, 0), (1.7 * r, 0.014), (0, 0.008)])
    s.revolve(hollow([(0.6 * r, 0), (0.9 * r, 0.5 * h), (r, h)], 0.003, 0.008), (0, 0, 0.008))
    _handle(s, 0.9 * r, 0.4 * h, 0.8 * h)


def mug(s: Sketch) -> None:
    """A straight vessel with a handle."""
    s.use(*FABRIC, texture="glaze")
    r = s.draw(0.036, 0.046)
    h = s.draw(0.085, 0.115)
    s.revolve(hollow([(r, 0), (r * s.draw(0.94, 1.05), h)], 0.004, 0.008))
    _handle(s, 0.97 * r, 0.25 * h, 0.75 * h)


def bowl(s: Sketch) -> None:
    """A round vessel that is wider than high."""
    s.use(*FABRIC, WOODEN, texture="glaze")
    r = s.draw(0.06, 0.12)
    h = s.draw(0.045, 0.085)
    s.revolve(hollow([(0.45 * r, 0), (0.8 * r, 0.4 * h), (r, h)], 0.005, 0.01))


def plate(s: Sketch) -> None:
    """A flat round dish."""
    s.use(*FABRIC, texture="glaze")
    r = s.draw(0.09, 0.135)
    h = s.draw(0.014, 0.024)
    s.revolve(hollow([(0.65 * r, 0), (r, h)], 0.006, 0.007))


def glass(s: Sketch) -> None:
    """A straight glass, or one with a stem."""
    s.use("blue", "green", "white", "yellow", "pink")
    r = s.draw(0.028, 0.04)
    if s.chance(0.4):
        s.name = "wine glass"
        h = s.draw(0.15, 0.19)
        rim = [(0.007, 0.45 * h), (1.1 * r, 0.6 * h), (0.95 * r, h)]
        s.revolve(hollow([(0.9 * r, 0), (0.006, 0.02), *rim], 0.002, 0.5 * h))
    else:
        s.revolve(hollow([(0.85 * r, 0), (r, s.draw(0.09, 0.14))], 0.002, 0.008))


def bottle(s: Sketch) -> None:
    """A body, shoulders and a neck with a cap."""
    s.use("green", "brown", "blue", "white", "red", "black", "yellow")
    r = s.draw(0.03, 0.042)
    h = s.draw(0.2, 0.3)
    neck = s.draw(0.011, 0.016)
    body = [(0, 0), (r, 0), (r, 0.6 * h), (neck, 0.78 * h), (neck, h), (0, h)]
    s.revolve(body)
    s.post(neck + 0.003, 0.025, (0, 0, h), s.second(*BRIGHT))
    if s.chance(0.6):
        s.post(r + 0.001, 0.25 * h, (0, 0, 0.2 * h), s.second(*BRIGHT))


def jar(s: Sketch) -> None:
    """A wide vessel with a lid."""
    s.use(*FABRIC, texture="glaze")
    r = s.draw(0.04, 0.06)
    h = s.draw(0.09, 0.15)
    s.revolve([(0, 0), (0.9 * r, 0), (r, 0.1 * h), (r, 0.85 * h), (0.75 * r, h), (0, h)])
    s.post(0.8 * r, 0.02, (0, 0, h), s.second(*FABRIC))


def can(s: Sketch) -> None:
    """A tin with rims."""
    s.use(*BRIGHT)
    r = s.draw(0.03, 0.042)
    h = s.draw(0.08, 0.125)
    s.post(r, h - 0.01, (0, 0, 0.005))
    for z in (0, h - 0.005):
        s.post(0.95 * r, 0.005, (0, 0, z), STEEL)


def vase(s: Sketch) -> None:
    """A vessel of varied outline, sometimes with twigs."""
    s.use(*FABRIC, texture="glaze")
    h = s.draw(0.16, 0.32)
    r = s.draw(0.045, 0.08)
    outline = [(0.6 * r, 0.0), (r, h * s.draw(0.3, 0.55)), (0.4 * r, 0.82 * h), (0.55 * r, h)]
    s.revolve(hollow(outline, 0.006, 0.02))
    if s.chance(0.5):
        for angle in s.rng.uniform(0, 2 * np.pi, 4):
            tip = (0.08 * np.cos(angle), 0.08 * np.sin(angle), h + s.draw(0.08, 0.16))
            s.rod((0, 0, 0.7 * h), tip, 0.003, (0.2, 0.35, 0.15))
            s.blob((0.04, 0.04, 0.04), (*tip[:2], tip[2] - 0.02), s.second(*BRIGHT))


def teapot(s: Sketch) -> None:
    """A belly with spout, handle and lid."""
    colour = s.use(*FABRIC, texture="glaze")
    w = s.draw(0.13, 0.17)
    h = s.draw(0.1, 0.13)
    s.blob((w, w, h))
    s.post(0.28 * w, 0.01, (0, 0, 0))
    s.post(0.25 * w, 0.012, (0, 0, h - 0.006), s.second(*FABRIC))
    s.blob((0.024, 0.024, 0.024), (0, 0, h), colour)
    s.rod((-0.4 * w, 0, 0.4 * h), (-0.85 * w, 0, 0.95 * h), 0.012, colour)
    _handle(s, 0.44 * w, 0.3 * h, 0.75 * h)


def pan(s: Sketch) -> None:
    """A flat vessel with a long handle."""
    s.use("black", "grey", "red", "blue")
    r = s.draw(0.1, 0.14)
    h = s.draw(0.04, 0.06)
    s.revolve(hollow([(0.88 * r, 0), (r, h)], 0.005, 0.008))
    s.rod((0.96 * r, 0, 0.8 * h), (r + s.draw(0.14, 0.2), 0, 0.95 * h), 0.01, DARK)


def pot(s: Sketch) -> None:
    """A high vessel with two handles and a lid."""
    s.use("grey", "red", "blue", "black", "white", "orange")
    r = s.draw(0.09, 0.12)
    h = s.draw(0.1, 0.16)
    s.post(r, h)
    s.post(1.03 * r, 0.012, (0, 0, h), STEEL)
    s.blob((0.035, 0.035, 0.03), (0, 0, h + 0.01), DARK)
    for x in (-1, 1):
        s.box((0.04, 0.06, 0.012), (x * (r + 0.015), 0, 0.75 * h), DARK)


def tray(s: Sketch) -> None:
    """A flat rectangle with a rim."""
    s.use(WOODEN, WOODEN, *FABRIC)
    w = s.draw(0.38, 0.5)
    d = s.draw(0.28, 0.36)
    rim = s.draw(0.02, 0.035)
    s.box((w, d, 0.01))
    for x in (-1, 1):
        s.box((0.01, d, rim), (x * (w / 2 - 0.005), 0, 0))
    for y in (-1, 1):
        s.box((w, 0.01, rim), (0, y * (d / 2 - 0.005), 0))
    s.top((w - 0.024, d - 0.024), 0.01)


def apple(s: Sketch) -> None:
    """A fruit with a stalk."""
    s.use("red", "green", "yellow", texture="skin")
    w = s.draw(0.065, 0.085)
    s.blob((w, w, 0.9 * w))
    s.rod((0, 0, 0.85 * w), (0.004, 0, 1.08 * w), 0.003, (0.3, 0.2, 0.1))


def orange(s: Sketch) -> None:
    """A round fruit."""
    s.use("orange", texture="skin")
    w = s.draw(0.065, 0.085)
    s.blob((w, w, 0.95 * w))


def pear(s: Sketch) -> None:
    """A fruit with a neck and a stalk."""
    s.use("green", "yellow", texture="skin")
    w = s.draw(0.06, 0.075)
    h = s.draw(0.08, 0.1)
    s.blob((w, w, 0.95 * w))
    s.revolve([(0, 0.6 * w), (0.48 * w, 0.6 * w), (0.22 * w, h), (0, h)])
    s.rod((0, 0, h - 0.005), (0.003, 0, h + 0.015), 0.002, (0.3, 0.2, 0.1))


def banana(s: Sketch) -> None:
    """A bent fruit of five pieces, lying."""
    s.use("yellow", "green", texture="skin")
    radius = s.draw(0.09, 0.12)
    r = s.draw(0.014, 0.018)
    angles = np.linspace(-0.75, 0.75, 6)
    points = [(radius * np.sin(a), radius * (1 - np.cos(a)), r) for a in angles]
    for a, b in pairwise(points):
        s.rod(a, b, r, None)
    s.rod(points[-1], (1.15 * points[-1][0], 1.3 * points[-1][1], r), 0.005, (0.35, 0.25, 0.1))


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
