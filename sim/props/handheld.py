"""Objects that fit into a gripper: banana, pen, fruits and snack boxes.

All lengths are in metres.
"""

import numpy as np
from numpy.typing import NDArray

from stringline.sim.props.prop import CONTACT, VISUAL, Colour, Prop

YELLOW: Colour = (0.98, 0.83, 0.08, 1.0)
BROWN: Colour = (0.35, 0.22, 0.08, 1.0)
PEN_GREEN: Colour = (0.15, 0.72, 0.30, 1.0)
INK: Colour = (0.08, 0.09, 0.10, 1.0)
APPLE_RED: Colour = (0.82, 0.10, 0.10, 1.0)
PEAR_GREEN: Colour = (0.45, 0.72, 0.15, 1.0)
WHITE: Colour = (0.95, 0.95, 0.92, 1.0)
BANANA_CAPSULES = 5
PEN_LENGTH_M = 0.185
SPACING_M = 0.03  # Largest distance between points on the edges of a box.


class Banana(Prop):
    """A banana along the y axis, bent in the xy plane with both ends towards +x.

    The origin is the middle of its axis.

    Attributes:
        radius: Radius at the middle, metres; the ends have nine tenths of it.
        bend_radius: Radius of the arc that the axis follows, metres.
        half_arc: Arc length of the axis from its middle to an end, metres.
        points: (N, 3), points of the axis, metres.
    """

    radius = 0.018
    bend_radius = 0.22

    def _build(self, *, length: float = 0.18) -> None:
        """Builds the model; `length` is from end to end along y."""
        self._begin("banana", length / 2)
        radii = self.radius * (1.0 - 0.1 * np.linspace(-1, 1, BANANA_CAPSULES) ** 2)
        arc = np.arcsin((length / 2 - radii[0]) / self.bend_radius)
        self.half_arc = float(self.bend_radius * arc)
        ends = np.linspace(-self.half_arc, self.half_arc, BANANA_CAPSULES + 1)
        self.points = self.axis_point(ends)
        look = {"type": "capsule", "mass": 0.08 / BANANA_CAPSULES, "rgba": YELLOW}
        for start, end, size in zip(self.points[:-1], self.points[1:], radii, strict=True):
            self.body.add("geom", fromto=(*start, *end), size=(size,), **look, **CONTACT)
        tip = self.axis_point(np.array([self.half_arc + 0.006, self.half_arc + 0.014])).ravel()
        self.body.add("geom", type="capsule", fromto=tip, size=(0.007,), rgba=BROWN, **VISUAL)

    def axis_point(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns points (..., 3) of the axis at arc lengths (...) from its middle, metres."""
        angle = np.asarray(along) / self.bend_radius
        x = self.bend_radius * (1 - np.cos(angle))
        return np.stack([x, self.bend_radius * np.sin(angle), np.zeros_like(angle)], axis=-1)

    def axis_direction(self, along: float) -> NDArray[np.float64]:
        """Returns the unit tangent (3,), towards +y, at an arc length from the axis' middle."""
        angle = along / self.bend_radius
        return np.array([np.sin(angle), np.cos(angle), 0.0])


class Pen(Prop):
    """A hexagonal pen along the y axis that lies on a flat, with its tip at +y.

    As large as aloha_sim's, 18 x 185 x 15.5 mm: a regular hexagon of 15.5 mm across its flats has
    17.9 mm across its corners.

    Attributes:
        radius: Half the width across the flats, metres.
        points: (7, 3), points of its axis, metres.
    """

    length = PEN_LENGTH_M
    radius = 0.00775
    points = np.linspace(-1, 1, 7)[:, None] * (0.0, PEN_LENGTH_M / 2, 0.0)

    def _build(self) -> None:
        half_length = self.length / 2
        self._begin("pen", half_length)
        # A little narrower than the flats; otherwise the other two boxes would touch the table too.
        half = (0.97 * self.radius / np.sqrt(3), half_length, self.radius)
        look = {"type": "box", "size": half, "mass": 0.02 / 3, "rgba": PEN_GREEN}
        for angle in np.radians((0, 60, 120)):
            turn = (np.cos(angle / 2), 0, np.sin(angle / 2), 0)
            self.body.add("geom", quat=turn, **look, **CONTACT)
        ends = (0, half_length - 0.03, 0, 0, half_length - 0.0005, 0)
        tip = {"type": "cylinder", "fromto": ends, "size": (1.05 * self.radius,)}
        self.body.add("geom", rgba=INK, **tip, **VISUAL)


class Apple(Prop):
    """A ball around the origin, with a stalk along z: one point (1, 3) and one radius (1,)."""

    points = np.zeros((1, 3))
    radii = np.array([0.025])

    def _build(self) -> None:
        radius = float(self.radii[0])
        self._begin("apple", radius)
        self.body.add("geom", type="sphere", size=(radius,), mass=0.08, rgba=APPLE_RED, **CONTACT)
        stalk = (0, 0, 0.9 * radius, 0.004, 0, 1.35 * radius)
        self.body.add("geom", type="capsule", fromto=stalk, size=(0.0025,), rgba=BROWN, **VISUAL)


class Pear(Prop):
    """Three balls along y: the thickest around the origin, the neck towards +y.

    Attributes:
        points: (3, 3), centres of the balls, metres.
        radii: (3,), radii of the balls, metres.
        tilt: Angle by which the axis points down while the pear lies on a table, rad.
    """

    points = np.array([(0.0, along, 0.0) for along in (0.0, 0.017, 0.033)])
    radii = np.array([0.025, 0.0195, 0.016])
    tilt = float(np.arcsin((radii[0] - radii[-1]) / (points[-1, 1] - points[0, 1])))

    def _build(self) -> None:
        top = float(self.points[-1, 1] + self.radii[-1])
        self._begin("pear", top)
        shares = self.radii**3 / (self.radii**3).sum()
        look = {"type": "sphere", "rgba": PEAR_GREEN}
        for point, radius, share in zip(self.points, self.radii, shares, strict=True):
            self.body.add("geom", pos=point, size=(radius,), mass=0.08 * share, **look, **CONTACT)
        stalk = (0, top, 0, 0, top + 0.01, 0)
        self.body.add("geom", type="capsule", fromto=stalk, size=(0.0025,), rgba=BROWN, **VISUAL)


class SnackBox(Prop):
    """A cuboid around the origin, with a white band that shows its orientation.

    Attributes:
        half: (3,), half of its lengths along its axes, metres.
        points: (N, 3), its corners, and points at most 3 cm apart on its edges along x, metres.
    """

    def _build(self, name: str, *, size: tuple[float, float, float], colour: Colour) -> None:
        """Builds the model; `size` holds the lengths along the axes."""
        self.half = np.array(size) / 2
        self._begin(name, float(np.linalg.norm(self.half)))
        along = np.linspace(-1, 1, int(np.ceil(size[0] / SPACING_M)) + 1)
        edges = [(x, y, z) for x in along for y in (-1, 1) for z in (-1, 1)]
        self.points = np.array(edges) * self.half
        self._add_box((0, 0, 0), self.half, 0.08, colour)
        band = self.half * (0.25, 1.0, 1.0) + (0.0, 0.0004, 0.0004)
        self.body.add("geom", type="box", size=band, rgba=WHITE, **VISUAL)
