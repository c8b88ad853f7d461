"""Forms of dishes, vessels and fruit."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stringline.sim.scenes.assets import DARK, STEEL, Sketch
from stringline.sim.scenes.palette import BRIGHT, FABRIC, WOODEN
from stringline.sim.scenes.solids import Colour

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
