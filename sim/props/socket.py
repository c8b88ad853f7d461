"""A socket: a straight square tube, open at both ends."""

import numpy as np

from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.sim.props.prop import FLAT_CONTACT, Prop
from stringline.sim.props.vessel import Colour

BLUE: Colour = (0.10, 0.33, 0.85, 1.0)
LIGHT, DARK = (0.55, 0.78, 1.0, 1.0), (0.02, 0.05, 0.16, 1.0)
RIM, FILM = 0.01, 0.0003  # Length of the light rims, and how far they and the dark lining stand out, metres.


class Socket(Prop):
    """Lies along its x axis; the origin is its middle. Its default size is that of gym-aloha's socket."""

    def _build(
        self,
        name: str = "socket",
        *,
        length: float = 0.12,
        bore: float = 0.036,
        width: float = 0.044,
        mass: float = 0.07,
        colour: Colour = BLUE,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: Along x, metres.
            bore: Width and height of the hole.
            width: Width and height outside.
            mass: Of the whole, kg.
            colour: RGBA.

        Raises:
            ValueError: There is nothing left for the walls.
        """
        if not 0 < bore < width:
            raise ValueError(f"bore is {bore} m; allowed: above 0 and below the width of {width} m.")
        self._begin(name, length / 2)
        self.length, self.bore, self.width = length, bore, width
        wall = (width - bore) / 4  # Half of its thickness.
        for sign in (-1.0, 1.0):
            for turned in (False, True):
                self._add_wall(sign * (bore / 2 + wall), wall, turned=turned, colour=colour, mass=mass / 4)

    def _add_wall(self, across: float, wall: float, *, turned: bool, colour: Colour, mass: float) -> None:
        """Adds the wall whose middle is that far from the axis, along z or along y, with what shows that it is a tube."""

        def add(along: float, out: float, half: tuple[float, float, float], rgba: Colour, **more: object) -> None:
            place, size = ((along, out, 0.0), (half[0], half[2], half[1])) if turned else ((along, 0.0, out), half)
            self.body.add("geom", type="box", pos=place, size=size, rgba=rgba, **more)

        drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
        side, end = (self.bore if turned else self.width) / 2, self.length / 2
        add(0.0, across, (end, side, wall), colour, mass=mass, **FLAT_CONTACT)
        add(0.0, across - wall * np.sign(across), (end - RIM, self.bore / 2, FILM), DARK, **drawn)
        for along in (RIM / 2 - end, end - RIM / 2):
            add(along, across, (RIM / 2 + FILM, side + FILM, wall + FILM), LIGHT, **drawn)
