"""A block: a straight square bar."""

from stringline.sim.props.prop import FLAT_CONTACT, Prop
from stringline.sim.props.vessel import Colour

RED: Colour = (0.86, 0.16, 0.13, 1.0)


class Block(Prop):
    """Lies along its x axis; the origin is its middle."""

    def _build(
        self,
        name: str = "block",
        *,
        length: float = 0.12,
        width: float = 0.03,
        mass: float = 0.06,
        colour: Colour = RED,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            length: Along x, metres.
            width: Width and height.
            mass: In kg.
            colour: RGBA.
        """
        self._begin(name, length / 2)
        self.length, self.width = length, width
        self.body.add("geom", type="box", size=(length / 2, width / 2, width / 2), mass=mass, rgba=colour, **FLAT_CONTACT)
