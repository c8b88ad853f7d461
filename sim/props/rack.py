"""A dish rack: a tray with a low wall, rows of upright tines in one half and free floor in the other."""

import numpy as np

from stringline.datasets.embodiments.mjcf_parts import PROP, SCENERY
from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour

STEEL, WHITE = (0.48, 0.52, 0.58, 1.0), (0.95, 0.95, 0.93, 1.0)
WALL_M = 0.005
# Arms' links meet scenery but no props; a rack is in their way like the table.
SOLID = {**CONTACT, "contype": PROP | SCENERY}


class Rack(Prop):
    """Stands on its origin, with z up: depth along x, length along y; tines where y < 0, a bay for bowls and glasses above.

    Its outline is that of aloha_sim's (GSO Rubbermaid drainer, 345 x 448 x 126 mm, 2.3 kg), its inside is ours: rows of tines
    along x, a plate's width apart along y.

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
        self.half, self.height, self.floor, self.wall = np.array(size[:2]) / 2, size[2], floor, wall
        self.row_distance, self.tine_radius = row_distance, tine_radius
        self.rows = -0.016 - row_distance * np.arange(4, -1, -1.0)
        self.bay = np.array([[WALL_M - self.half[0], self.rows[-1] + 0.01], self.half - WALL_M])
        x, y = self.half
        self._box((0, 0, floor / 2), (x, y, floor / 2), mass, colour)
        middle, tall = (floor + wall) / 2, (wall - floor) / 2
        for sign in (-1, 1):
            self._box((sign * (x - WALL_M / 2), 0, middle), (WALL_M / 2, y, tall), 0, tine_colour)
            self._box((0, sign * (y - WALL_M / 2), middle), (x, WALL_M / 2, tall), 0, tine_colour)
        for row in self.rows:
            for along in tines:
                ends = (along, row, floor, along, row, self.height - tine_radius)
                self.body.add("geom", type="capsule", fromto=ends, size=(tine_radius,), mass=0, rgba=tine_colour, **SOLID)

    @property
    def slots(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The middles (R - 1,) between neighbouring rows along y, metres."""
        return (self.rows[:-1] + self.rows[1:]) / 2

    def _box(self, centre: tuple[float, float, float], half: tuple[float, float, float], mass: float, colour: Colour) -> None:
        self.body.add("geom", type="box", pos=centre, size=half, mass=mass, rgba=colour, **SOLID)
