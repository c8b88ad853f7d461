"""Objects to hold: banana, pen, fruits and snack boxes."""

import numpy as np
from numpy.typing import NDArray

from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour

YELLOW = (0.98, 0.83, 0.08, 1.0)
BANANA_BROWN = (0.35, 0.22, 0.08, 1.0)


class Banana(Prop):
    """Lies along its y axis, bent in the xy plane with both ends towards +x; the origin is the middle of its axis."""

    def _build(
        self,
        name: str = "banana",
        *,
        length: float = 0.18,
        radius: float = 0.018,
        bend_radius: float = 0.22,
        mass: float = 0.08,
        segments: int = 5,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: End to end along y, metres.
            radius: At the middle; the ends have nine tenths of it.
            bend_radius: Of the arc that the axis follows.
            mass: Of the whole, kg.
            segments: Number of capsules.
        """
        self._begin(name, length / 2)
        self.radius = radius
        self.bend_radius = bend_radius
        radii = radius * (1.0 - 0.1 * np.linspace(-1, 1, segments) ** 2)
        self.half_arc = float(bend_radius * np.arcsin((length / 2 - radii[0]) / bend_radius))
        self.points = self.axis_point(np.linspace(-self.half_arc, self.half_arc, segments + 1))
        for start, end, size in zip(self.points[:-1], self.points[1:], radii, strict=True):
            self.body.add(
                "geom",
                type="capsule",
                fromto=(*start, *end),
                size=(size,),
                mass=mass / segments,
                rgba=YELLOW,
                **CONTACT,
            )
        tip = self.axis_point(np.array([self.half_arc + 0.006, self.half_arc + 0.014]))
        self.body.add(
            "geom",
            type="capsule",
            fromto=tip.ravel(),
            size=(0.007,),
            mass=0,
            rgba=BANANA_BROWN,
            contype=0,
            conaffinity=0,
        )

    def axis_point(self, along: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns points (..., 3) of the axis in the banana's frame at arc lengths (...) from the middle, in metres."""
        angle = np.asarray(along) / self.bend_radius
        return np.stack(
            [
                self.bend_radius * (1 - np.cos(angle)),
                self.bend_radius * np.sin(angle),
                np.zeros_like(angle),
            ],
            axis=-1,
        )

    def axis_direction(self, along: float) -> NDArray[np.float64]:
        """Returns the unit tangent (3,) of the axis in the banana's frame, towards +y, at an arc length from the middle."""
        angle = along / self.bend_radius
        return np.array([np.sin(angle), np.cos(angle), 0.0])


PEN_GREEN: Colour = (0.15, 0.72, 0.30, 1.0)
INK: Colour = (0.08, 0.09, 0.10, 1.0)


class Pen(Prop):
    """Lies along its y axis on one of its flats, with the tip at +y; the origin is its middle.

    By default 18 x 185 x 15.5 mm as aloha_sim's: a regular hexagon of 15.5 mm across its flats has
    17.9 mm across its corners.
    """

    def _build(
        self,
        name: str = "pen",
        *,
        length: float = 0.185,
        width: float = 0.0155,
        mass: float = 0.02,
        colour: Colour = PEN_GREEN,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: Along y, metres.
            width: Across the flats; it lies half of that above the table.
            mass: Of the whole, kg.
            colour: RGBA.
        """
        self._begin(name, length / 2)
        self.length = length
        self.radius = width / 2
        self.points = np.linspace(-1, 1, 7)[:, None] * (0.0, length / 2, 0.0)
        # A little narrower than the flats: else the other two boxes touch what it lies on as well.
        half = (0.97 * width / 2 / np.sqrt(3), length / 2, width / 2)
        for angle in np.radians((0, 60, 120)):
            turn = (np.cos(angle / 2), 0, np.sin(angle / 2), 0)
            self.body.add(
                "geom", type="box", size=half, quat=turn, mass=mass / 3, rgba=colour, **CONTACT
            )
        drawn = {"mass": 0, "contype": 0, "conaffinity": 0, "rgba": INK}
        ends = (0, length / 2 - 0.03, 0, 0, length / 2 - 0.0005, 0)
        self.body.add("geom", type="cylinder", fromto=ends, size=(1.05 * self.radius,), **drawn)


FRUIT_RED = (0.82, 0.10, 0.10, 1.0)
FRUIT_GREEN = (0.45, 0.72, 0.15, 1.0)
FRUIT_BROWN = (0.35, 0.22, 0.08, 1.0)
_DRAWN: dict[str, object] = {"contype": 0, "conaffinity": 0, "mass": 0}


class Apple(Prop):
    """A ball around its origin, with a stalk along z.

    Attributes:
        points: (1, 3), the ball's centre, metres.
        radii: (1,), metres.
    """

    def _build(self, name: str = "apple", *, radius: float = 0.025, mass: float = 0.08) -> None:
        """Builds it.

        Args:
            name: Of the model.
            radius: Metres.
            mass: In kg.
        """
        self._begin(name, radius)
        self.points = np.zeros((1, 3))
        self.radii = np.array([radius])
        self.body.add("geom", type="sphere", size=(radius,), mass=mass, rgba=FRUIT_RED, **CONTACT)
        stalk = (0, 0, 0.9 * radius, 0.004, 0, 1.35 * radius)
        self.body.add(
            "geom", type="capsule", fromto=stalk, size=(0.0025,), rgba=FRUIT_BROWN, **_DRAWN
        )


class Pear(Prop):
    """Balls that get smaller along y: the thick one around its origin, the neck towards +y.

    Attributes:
        points: (3, 3), the balls' centres, metres.
        radii: (3,), metres.
        tilt: How far its axis points down where it lies on a table, on its belly and its neck, rad.
    """

    def _build(
        self,
        name: str = "pear",
        *,
        along: tuple[float, float, float] = (0.0, 0.017, 0.033),
        radii: tuple[float, float, float] = (0.025, 0.0195, 0.016),
        mass: float = 0.08,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            along: Where on the y axis the balls are, metres.
            radii: Of the balls, metres; the thickest first.
            mass: Of the whole, kg.
        """
        self._begin(name, along[-1] + radii[-1])
        self.points = np.zeros((len(along), 3))
        self.radii = np.array(radii)
        self.points[:, 1] = along
        self.tilt = float(np.arcsin((radii[0] - radii[-1]) / (along[-1] - along[0])))
        shares = self.radii**3 / (self.radii**3).sum()
        for point, radius, share in zip(self.points, radii, shares, strict=True):
            self.body.add(
                "geom",
                type="sphere",
                pos=point,
                size=(radius,),
                mass=mass * share,
                rgba=FRUIT_GREEN,
                **CONTACT,
            )
        top = along[-1] + radii[-1]
        self.body.add(
            "geom",
            type="capsule",
            fromto=(0, top, 0, 0, top + 0.01, 0),
            size=(0.0025,),
            rgba=FRUIT_BROWN,
            **_DRAWN,
        )


WHITE: Colour = (0.95, 0.95, 0.92, 1.0)
SPACING_M = 0.03
FLAT = CONTACT | {
    "condim": 4
}  # What is flat does not roll, and its many contacts cost half as much without it.


class SnackBox(Prop):
    """A cuboid around its origin, with a white band around it so that its turn can be seen.

    Attributes:
        half: (3,), half of its lengths along its axes, metres.
        points: (N, 3), its corners, and points at most 3 cm apart on its edges along x, metres.
    """

    def _build(
        self, name: str, *, size: tuple[float, float, float], colour: Colour, mass: float = 0.08
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            size: Its lengths along its axes, metres.
            colour: RGBA.
            mass: In kg.
        """
        self.half = np.array(size) / 2
        self._begin(name, float(np.linalg.norm(self.half)))
        along = np.linspace(-1, 1, int(np.ceil(size[0] / SPACING_M)) + 1)
        self.points = (
            np.array([(x, y, z) for x in along for y in (-1, 1) for z in (-1, 1)]) * self.half
        )
        self.body.add("geom", type="box", size=self.half, mass=mass, rgba=colour, **FLAT)
        band = self.half * (0.25, 1.0, 1.0) + (0.0, 0.0004, 0.0004)
        self.body.add("geom", type="box", size=band, mass=0, rgba=WHITE, contype=0, conaffinity=0)
