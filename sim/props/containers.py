"""Containers: pen holder, dish rack, storage bin and tray."""

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.mjcf_parts import PROP, SCENERY
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.handheld import FLAT
from stringline.sim.props.prop import CONTACT, FLAT_CONTACT, Prop
from stringline.sim.props.vessel import Colour, add_ring, add_round_floor

VIOLET: Colour = (0.55, 0.30, 0.80, 1.0)


class Holder(Prop):
    """Stands on its origin, with z up.

    By default as large as aloha_sim's (a utensil holder, times 0.6).
    """

    def _build(
        self,
        name: str = "holder",
        *,
        diameter: float = 0.09,
        height: float = 0.107,
        thickness: float = 0.005,
        mass: float = 0.17,
        segments: int = 20,
        floor_boxes: int = 2,
        colour: Colour = VIOLET,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            diameter: Outside, metres.
            height: Of the rim.
            thickness: Of floor and wall.
            mass: Of the whole, kg; half of it in the floor, so that it stands firmly.
            segments: Number of wall pieces.
            floor_boxes: See `add_round_floor`; one is enough where nothing thin is put in, and
                costs less.
            colour: RGBA.
        """
        self._begin(name, float(np.hypot(diameter / 2, height)))
        self.radius = diameter / 2
        self.height = height
        self.thickness = thickness
        self.inner_radius = float(self.radius * np.cos(np.pi / segments) - thickness)
        add_round_floor(
            self.body,
            radius=self.radius,
            thickness=thickness,
            mass=mass / 2,
            colour=colour,
            boxes=floor_boxes,
        )
        add_ring(
            self.body,
            radii=(self.inner_radius, self.inner_radius),
            heights=(thickness / 2, height),
            thickness=thickness,
            mass=mass / 2,
            colour=colour,
            segments=segments,
        )


STEEL = (0.48, 0.52, 0.58, 1.0)
WHITE = (0.95, 0.95, 0.93, 1.0)
WALL_M = 0.005
# Arms' links meet scenery but no props; a rack is in their way like the table.
SOLID = {**CONTACT, "contype": PROP | SCENERY}


class Rack(Prop):
    """Stands on its origin, with z up: depth along x, length along y; tines where y < 0, a bay for bowls and glasses above.

    Its outline is that of aloha_sim's (GSO Rubbermaid drainer, 345 x 448 x 126 mm, 2.3 kg), its
    inside is ours: rows of tines along x, a plate's width apart along y.

    Attributes:
        half: (2,), half the outline along x and y, metres.
        height: Of the tines' tips.
        floor: Height of the floor's upper face.
        wall: Height of the wall's upper edge.
        rows: (R,), y of the rows of tines, ascending.
        bay: ((x, y) low, (x, y) high) of the free floor.
    """

    def _build(
        self,
        name: str = "rack",
        *,
        size: tuple[float, float, float] = (0.345, 0.448, 0.126),
        floor: float = 0.022,
        wall: float = 0.055,
        row_distance: float = 0.048,
        tines: tuple[float, ...] = (-0.075, 0.0, 0.075),
        tine_radius: float = 0.0035,
        mass: float = 2.3,
        colour: Colour = STEEL,
        tine_colour: Colour = WHITE,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            size: Along x, y and z, metres.
            floor: Height of the floor's upper face.
            wall: Height of the wall.
            row_distance: Between two rows of tines.
            tines: Where along x they stand in each row.
            tine_radius: Of one tine.
            mass: Of the whole, kg; it is in the floor.
            colour: RGBA of the tray.
            tine_colour: RGBA of the tines.
        """
        self._begin(name, float(np.linalg.norm(size)) / 2)
        self.half = np.array(size[:2]) / 2
        self.height = size[2]
        self.floor = floor
        self.wall = wall
        self.row_distance = row_distance
        self.tine_radius = tine_radius
        self.rows = -0.016 - row_distance * np.arange(4, -1, -1.0)
        self.bay = np.array([[WALL_M - self.half[0], self.rows[-1] + 0.01], self.half - WALL_M])
        x, y = self.half
        self._box((0, 0, floor / 2), (x, y, floor / 2), mass, colour)
        middle = (floor + wall) / 2
        tall = (wall - floor) / 2
        for sign in (-1, 1):
            self._box((sign * (x - WALL_M / 2), 0, middle), (WALL_M / 2, y, tall), 0, tine_colour)
            self._box((0, sign * (y - WALL_M / 2), middle), (x, WALL_M / 2, tall), 0, tine_colour)
        for row in self.rows:
            for along in tines:
                ends = (along, row, floor, along, row, self.height - tine_radius)
                self.body.add(
                    "geom",
                    type="capsule",
                    fromto=ends,
                    size=(tine_radius,),
                    mass=0,
                    rgba=tine_colour,
                    **SOLID,
                )

    @property
    def slots(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The middles (R - 1,) between neighbouring rows along y, metres."""
        return (self.rows[:-1] + self.rows[1:]) / 2

    def _box(
        self,
        centre: tuple[float, float, float],
        half: tuple[float, float, float],
        mass: float,
        colour: Colour,
    ) -> None:
        self.body.add("geom", type="box", pos=centre, size=half, mass=mass, rgba=colour, **SOLID)


GREY: Colour = (0.62, 0.66, 0.70, 1.0)
INSIDE: Colour = (0.42, 0.46, 0.50, 1.0)


class Bin(Prop):
    """Stands on its origin, with z up.

    Attributes:
        inner: (2,), half of its lengths inside along x and y, metres.
        height: Of the rim, metres.
        thickness: Of floor and walls, metres.
        outline: (N, 3), points on the foot of its walls outside, at most 3 cm apart, metres.
    """

    def _build(
        self,
        name: str = "bin",
        *,
        inner: tuple[float, float] = (0.16, 0.29),
        height: float = 0.1,
        thickness: float = 0.005,
        mass: float = 0.8,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            inner: Lengths inside along x and y, metres.
            height: Of the rim, metres.
            thickness: Of floor and walls, metres.
            mass: Of the whole, kg; half of it in the floor.
        """
        self.inner = np.array(inner) / 2
        self.height = height
        self.thickness = thickness
        x, y = self.inner
        wall = thickness / 2
        self._begin(name, float(np.hypot(x, y)) + thickness)
        outer = self.inner + thickness
        middle = (height + thickness) / 2
        self._add((0, 0, wall), (*outer, wall), mass / 2, INSIDE)
        for sign in (-1, 1):
            self._add(
                (sign * (x + wall), 0, middle), (wall, outer[1], middle - thickness), mass / 8, GREY
            )
            self._add((0, sign * (y + wall), middle), (x, wall, middle - thickness), mass / 8, GREY)
        around = np.array(
            [
                (u, v)
                for u in np.linspace(-1, 1, 9)
                for v in np.linspace(-1, 1, 11)
                if max(abs(u), abs(v)) == 1
            ]
        )
        self.outline = np.column_stack([around * outer, np.zeros(len(around))])

    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in its frame, metres, are between its walls, above its floor and below its rim."""
        slack = 0.001  # What contacts give way.
        within = (np.abs(points[:, :2]) < self.inner + slack).all()
        return bool(
            within
            and (points[:, 2] > self.thickness - slack).all()
            and (points[:, 2] < self.height).all()
        )

    def _add(
        self,
        centre: tuple[float, float, float] | Vector,
        half: tuple[float, ...],
        mass: float,
        colour: Colour,
    ) -> None:
        self.body.add("geom", type="box", pos=centre, size=half, mass=mass, rgba=colour, **FLAT)


RIM: Colour = (0.93, 0.93, 0.95, 1.0)
FLOOR: Colour = (0.30, 0.33, 0.38, 1.0)


class Tray(Prop):
    """A square that stands on its origin, with z up.

    Attributes:
        inner: Half of its length inside, metres.
        outer: The same outside.
        height: Of the rim, metres.
        thickness: Of floor and rim, metres.
    """

    def _build(
        self,
        name: str = "tray",
        *,
        length: float = 0.2,
        height: float = 0.016,
        thickness: float = 0.006,
        mass: float = 1.0,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: Inside, metres.
            height: Of the rim, metres.
            thickness: Of floor and rim, metres.
            mass: Of the whole, kg; four fifths of it in the floor.
        """
        self.inner = length / 2
        self.outer = length / 2 + thickness
        self.height = height
        self.thickness = thickness
        self._begin(name, float(np.hypot(self.outer, self.outer)))
        half = thickness / 2
        wall = (height - thickness) / 2
        floor = {"pos": (0, 0, half), "size": (self.outer, self.outer, half)}
        self.body.add("geom", type="box", mass=0.8 * mass, rgba=FLOOR, **floor, **FLAT_CONTACT)
        middle = self.inner + half
        for sign in (-1, 1):
            for centre, size in (
                ((sign * middle, 0), (half, self.outer)),
                ((0, sign * middle), (self.inner, half)),
            ):
                side = {"pos": (*centre, thickness + wall), "size": (*size, wall)}
                self.body.add(
                    "geom", type="box", mass=0.05 * mass, rgba=RIM, **side, **FLAT_CONTACT
                )

    def holds(self, points: Matrix, radii: Matrix) -> bool:
        """Says whether balls at points (N, 3) in its frame, of radii (N,), metres, lie on its floor within its rim."""
        slack = 0.001  # What contacts give way.
        within = (np.abs(points[:, :2]) + radii[:, None] < self.inner + slack).all()
        bottom = float((points[:, 2] - radii).min()) - self.thickness
        return bool(within and -slack < bottom < 0.004)
