"""A socket: a straight square tube, open at both ends."""

from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour

BLUE: Colour = (0.10, 0.33, 0.85, 1.0)


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
        across, flat = (bore / 2 + wall), (length / 2, width / 2, wall)
        upright = (length / 2, wall, bore / 2)
        for sign in (-1.0, 1.0):
            for place, half in (((0.0, 0.0, sign * across), flat), ((0.0, sign * across, 0.0), upright)):
                self.body.add("geom", type="box", pos=place, size=half, mass=mass / 4, rgba=colour, **CONTACT)
