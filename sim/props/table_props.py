"""Props of tables: dishes and containers, and objects that fit into a gripper.

Each stands on its origin, with z up. All lengths are in metres.

All lengths are in metres.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.mjcf_parts import PROP, SCENERY
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.prop import (
    CONTACT,
    SEGMENTS,
    VISUAL,
    Colour,
    Prop,
    add_floor,
    add_ring,
    add_round_floor,
)

BLUE: Colour = (0.10, 0.40, 0.85, 1.0)
GREEN: Colour = (0.15, 0.72, 0.42, 1.0)
RED: Colour = (0.85, 0.16, 0.14, 1.0)
WHITE: Colour = (0.92, 0.92, 0.88, 1.0)


class Bowl(Prop):
    """A bowl with a flat floor and a slanted wall.

    Attributes:
        rim_radius: Inner radius of the rim, less the thickness of the wall, metres.
    """

    def _build(
        self,
        *,
        diameter: float = 0.244,
        height: float = 0.066,
        floor_diameter: float = 0.16,
        thickness: float = 0.006,
        mass: float = 0.3,
    ) -> None:
        """Builds the model.

        Diameters are those inside the rim and of the flat floor. For stability two thirds of the
        mass, in kg, are in the floor.
        """
        self._begin("bowl", diameter / 2)
        self.height = height
        self.thickness = thickness
        self.rim_radius = diameter / 2 - thickness
        self.floor_radius = radius = floor_diameter / 2
        look: dict[str, Any] = {"thickness": thickness, "colour": BLUE}
        add_floor(self.body, radius=radius, mass=mass * 2 / 3, **look)
        heights = (thickness, height)
        add_ring(self.body, radii=(radius, diameter / 2), heights=heights, mass=mass / 3, **look)

    def contains(self, points: Matrix) -> bool:
        """Returns whether points (N, 3) in the bowl's frame are inside the bowl."""
        rise = (points[:, 2] - self.thickness) / (self.height - self.thickness)
        radius = self.floor_radius + rise * (self.rim_radius + self.thickness - self.floor_radius)
        within = np.hypot(points[:, 0], points[:, 1]) < radius - self.thickness
        return bool(((rise > 0) & (rise < 1) & within).all())


class Glass(Prop):
    """A tumbler with a heavy floor, drawn opaque, so that images and depth agree on its shape.

    Its outer diameter is more than the gripper opens, so that it is grasped by its wall.
    """

    diameter = 0.068
    height = 0.1
    thickness = 0.005
    floor_radius = 0.028

    def _build(self) -> None:
        mass = 0.1
        self._begin("glass", self.height)
        look: dict[str, Any] = {"thickness": self.thickness, "colour": GREEN}
        # The hidden box of a floor is wider across its corners than the floor. A glass that lies on
        # its side must not rest on them.
        add_floor(self.body, radius=0.72 * self.floor_radius, mass=mass * 2 / 3, **look)
        size = (self.floor_radius - self.thickness / 2, self.thickness / 2)
        disc = {"size": size, "pos": (0, 0, self.thickness / 2), "rgba": GREEN}
        self.body.add("geom", type="cylinder", **disc, **VISUAL)
        radii = (self.floor_radius - self.thickness, self.diameter / 2 - self.thickness)
        # The wall hangs off the floor; otherwise each of its boxes would touch the ground.
        add_ring(self.body, radii=radii, heights=(0.001, self.height), mass=mass / 3, **look)


class Mug(Prop):
    """A mug with a handle towards +x, 118 x 94 x 83 mm (YCB 025).

    Attributes:
        radius: Outer radius without the handle, metres.
        handle: Distance by which the handle sticks out, metres.
    """

    radius = 0.047
    height = 0.083
    handle = 0.024
    thickness = 0.005

    def _build(self) -> None:
        mass = 0.118
        self._begin("mug", float(np.hypot(self.radius + self.handle, self.height)))
        look: dict[str, Any] = {"thickness": self.thickness, "colour": WHITE}
        add_round_floor(self.body, radius=self.radius, mass=0.3 * mass, **look)
        # The boxes of the wall meet on a circle that is wider than their middles; they extend
        # outwards from the ring.
        inner = float(self.radius * np.cos(np.pi / SEGMENTS) - self.thickness)
        heights = (self.thickness / 2, self.height)
        add_ring(self.body, radii=(inner, inner), heights=heights, mass=0.6 * mass, **look)
        self._add_handle(0.1 * mass)

    def _add_handle(self, mass: float) -> None:
        size = 0.005
        inside = self.radius - self.thickness / 2
        outside = self.radius + self.handle - size
        high = 0.78 * self.height
        low = 0.26 * self.height
        corners = [(inside, high), (outside, 0.93 * high), (outside, 1.2 * low), (inside, low)]
        bar = {"size": (size,), "mass": mass / 3, "rgba": WHITE}
        for (x, z), (x_next, z_next) in pairwise(corners):
            ends = (x, 0.0, z, x_next, 0.0, z_next)
            self.body.add("geom", type="capsule", fromto=ends, **bar, **CONTACT)


class Plate(Prop):
    """A plate that stands on its floor and not on the edges of its rim.

    Its default size is that of aloha_sim's plate (YCB 029, scaled by 0.8).

    Attributes:
        diameter: Diameter of the rim without its thickness, metres.
    """

    height = 0.025

    def _build(
        self,
        *,
        diameter: float = 0.21,
        floor_diameter: float = 0.13,
        thickness: float = 0.006,
        mass: float = 0.2,
    ) -> None:
        """Builds the model; `diameter` is that of the rim without its thickness, mass is in kg."""
        self._begin("plate", diameter / 2)
        self.diameter = diameter
        self.thickness = thickness
        self.floor_radius = radius = floor_diameter / 2
        look: dict[str, Any] = {"thickness": thickness, "mass": mass / 2, "colour": RED}
        add_floor(self.body, radius=radius, **look)
        heights = (thickness, self.height)
        add_ring(self.body, radii=(radius, diameter / 2), heights=heights, **look)


VIOLET: Colour = (0.55, 0.30, 0.80, 1.0)
STEEL: Colour = (0.48, 0.52, 0.58, 1.0)
RACK_WHITE: Colour = (0.95, 0.95, 0.93, 1.0)
GREY: Colour = (0.62, 0.66, 0.70, 1.0)
DARK_GREY: Colour = (0.42, 0.46, 0.50, 1.0)
TRAY_RIM: Colour = (0.93, 0.93, 0.95, 1.0)
TRAY_FLOOR: Colour = (0.30, 0.33, 0.38, 1.0)
# The links of arms collide with scenery and not with props; the rack stops them as the table does.
RACK_CONTACT = {**CONTACT, "contype": PROP | SCENERY}
RACK_WALL_M = 0.005
CONTACT_SLACK_M = 0.001  # Depth by which objects in contact sink into each other.


class Holder(Prop):
    """A pen holder, as large as aloha_sim's (a utensil holder, scaled by 0.6)."""

    radius = 0.045
    height = 0.107
    thickness = 0.005
    inner_radius = float(radius * np.cos(np.pi / SEGMENTS) - thickness)

    def _build(self, *, floor_boxes: int = 2) -> None:
        """Builds the model; one floor box is enough where nothing thin is put in, and cheaper."""
        mass = 0.17 / 2  # Of the floor, for stability, and of the wall.
        self._begin("holder", float(np.hypot(self.radius, self.height)))
        add_round_floor(
            self.body,
            radius=self.radius,
            thickness=self.thickness,
            mass=mass,
            colour=VIOLET,
            boxes=floor_boxes,
        )
        add_ring(
            self.body,
            radii=(self.inner_radius, self.inner_radius),
            heights=(self.thickness / 2, self.height),
            thickness=self.thickness,
            mass=mass,
            colour=VIOLET,
        )


class Rack(Prop):
    """A dish rack with depth along x and length along y: tines at y < 0, a free bay beside them.

    Its outline is that of aloha_sim's (GSO Rubbermaid drainer, 345 x 448 x 126 mm, 2.3 kg). Its
    inside is ours: rows of tines along x, as far apart along y as a plate needs.

    Attributes:
        half: (2,), half the outline along x and y, metres.
        height: Height of the tines' tips, metres.
        floor: Height of the floor's upper face, metres.
        wall: Height of the wall's upper edge, metres.
        rows: (R,), y of the rows of tines, ascending, metres.
        slots: (R - 1,), y of the middles between neighbouring rows, metres.
        bay: ((x, y) low, (x, y) high) of the free floor, metres.
    """

    half = np.array((0.345, 0.448)) / 2
    height = 0.126
    floor = 0.022
    wall = 0.055
    tine_radius = 0.0035
    tines = (-0.075, 0.0, 0.075)  # Along x in each row.
    rows = -0.016 - 0.048 * np.arange(4, -1, -1.0)
    slots = (rows[:-1] + rows[1:]) / 2
    bay = np.array([[RACK_WALL_M - half[0], rows[-1] + 0.01], half - RACK_WALL_M])

    def _build(self) -> None:
        self._begin("rack", float(np.linalg.norm((0.345, 0.448, self.height))) / 2)
        x, y = self.half
        wall = RACK_WALL_M / 2
        # The floor has all of the mass.
        self._add_box((0, 0, self.floor / 2), (x, y, self.floor / 2), 2.3, STEEL, RACK_CONTACT)
        middle = (self.floor + self.wall) / 2
        tall = (self.wall - self.floor) / 2
        for sign in (-1, 1):
            self._add_box(
                (sign * (x - wall), 0, middle), (wall, y, tall), 0, RACK_WHITE, RACK_CONTACT
            )
            self._add_box(
                (0, sign * (y - wall), middle), (x, wall, tall), 0, RACK_WHITE, RACK_CONTACT
            )
        tine = {"type": "capsule", "size": (self.tine_radius,), "mass": 0, "rgba": RACK_WHITE}
        for row in self.rows:
            for along in self.tines:
                ends = (along, row, self.floor, along, row, self.height - self.tine_radius)
                self.body.add("geom", fromto=ends, **tine, **RACK_CONTACT)


class Bin(Prop):
    """A rectangular bin.

    Attributes:
        inner: (2,), half of its inner lengths along x and y, metres.
        outline: (N, 3), points on the outer foot of its walls, at most 3 cm apart, metres.
    """

    thickness = 0.005

    def _build(self, *, inner: tuple[float, float] = (0.16, 0.29), height: float = 0.1) -> None:
        """Builds the model; `inner` holds the inner lengths along x and y."""
        mass = 0.8
        self.inner = np.array(inner) / 2
        self.height = height
        x, y = self.inner
        wall = self.thickness / 2
        self._begin("bin", float(np.hypot(x, y)) + self.thickness)
        outer = self.inner + self.thickness
        middle = (height + self.thickness) / 2
        tall = middle - self.thickness
        self._add_box((0, 0, wall), (*outer, wall), mass / 2, DARK_GREY)
        for sign in (-1, 1):
            self._add_box((sign * (x + wall), 0, middle), (wall, outer[1], tall), mass / 8, GREY)
            self._add_box((0, sign * (y + wall), middle), (x, wall, tall), mass / 8, GREY)
        grid = [(u, v) for u in np.linspace(-1, 1, 9) for v in np.linspace(-1, 1, 11)]
        around = np.array([(u, v) for u, v in grid if max(abs(u), abs(v)) == 1])
        self.outline = np.column_stack([around * outer, np.zeros(len(around))])

    def contains(self, points: Matrix) -> bool:
        """Returns whether points (N, 3) in the bin's frame are inside the bin."""
        within = (np.abs(points[:, :2]) < self.inner + CONTACT_SLACK_M).all()
        above = (points[:, 2] > self.thickness - CONTACT_SLACK_M).all()
        return bool(within and above and (points[:, 2] < self.height).all())


class Tray(Prop):
    """A square tray; `inner` and `outer` are half of its inner and outer length."""

    inner = 0.1
    thickness = 0.006
    outer = inner + thickness

    def _build(self) -> None:
        mass = 1.0
        self._begin("tray", float(np.hypot(self.outer, self.outer)))
        half = self.thickness / 2
        tall = (0.016 - self.thickness) / 2  # The rim is 16 mm high.
        floor = (self.outer, self.outer, half)
        self._add_box((0, 0, half), floor, 0.8 * mass, TRAY_FLOOR)
        middle = self.inner + half
        height = self.thickness + tall
        for sign in (-1, 1):
            for centre, size in (
                ((sign * middle, 0, height), (half, self.outer, tall)),
                ((0, sign * middle, height), (self.inner, half, tall)),
            ):
                self._add_box(centre, size, 0.05 * mass, TRAY_RIM)

    def holds(self, points: Matrix, radii: Vector) -> bool:
        """Returns whether an object lies on the tray's floor, within its rim.

        Balls with centres (N, 3), in the tray's frame, and radii (N,) cover the object.
        """
        within = (np.abs(points[:, :2]) + radii[:, None] < self.inner + CONTACT_SLACK_M).all()
        bottom = float((points[:, 2] - radii).min()) - self.thickness
        return bool(within and -CONTACT_SLACK_M < bottom < 0.004)


YELLOW: Colour = (0.98, 0.83, 0.08, 1.0)
BROWN: Colour = (0.35, 0.22, 0.08, 1.0)
PEN_GREEN: Colour = (0.15, 0.72, 0.30, 1.0)
INK: Colour = (0.08, 0.09, 0.10, 1.0)
APPLE_RED: Colour = (0.82, 0.10, 0.10, 1.0)
PEAR_GREEN: Colour = (0.45, 0.72, 0.15, 1.0)
LABEL_WHITE: Colour = (0.95, 0.95, 0.92, 1.0)
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
        self.body.add("geom", type="box", size=band, rgba=LABEL_WHITE, **VISUAL)
