"""A thick pen with a hexagonal body."""

import numpy as np

from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour

GREEN: Colour = (0.15, 0.72, 0.30, 1.0)
INK: Colour = (0.08, 0.09, 0.10, 1.0)


class Pen(Prop):
    """Lies along its y axis on one of its flats, with the tip at +y; the origin is its middle.

    By default 18 x 185 x 15.5 mm as aloha_sim's: a regular hexagon of 15.5 mm across its flats has 17.9 mm across its corners.
    """

    def _build(
        self,
        name: str = "pen",
        *,
        length: float = 0.185,
        width: float = 0.0155,
        mass: float = 0.02,
        colour: Colour = GREEN,
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
        self.length, self.radius = length, width / 2
        self.points = np.linspace(-1, 1, 7)[:, None] * (0.0, length / 2, 0.0)
        # A little narrower than the flats: else the other two boxes touch what it lies on as well.
        half = (0.97 * width / 2 / np.sqrt(3), length / 2, width / 2)
        for angle in np.radians((0, 60, 120)):
            turn = (np.cos(angle / 2), 0, np.sin(angle / 2), 0)
            self.body.add("geom", type="box", size=half, quat=turn, mass=mass / 3, rgba=colour, **CONTACT)
        drawn = {"mass": 0, "contype": 0, "conaffinity": 0, "rgba": INK}
        ends = (0, length / 2 - 0.03, 0, 0, length / 2 - 0.0005, 0)
        self.body.add("geom", type="cylinder", fromto=ends, size=(1.05 * self.radius,), **drawn)
