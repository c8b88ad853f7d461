"""A holder for pens: a straight, tall wall around a floor."""

import numpy as np

from stringline.sim.props.prop import Prop
from stringline.sim.props.vessel import Colour, add_ring, add_round_floor

VIOLET: Colour = (0.55, 0.30, 0.80, 1.0)


class Holder(Prop):
    """Stands on its origin, with z up. By default as large as aloha_sim's (a utensil holder, times 0.6)."""

    def _build(
        self,
        name: str = "holder",
        *,
        diameter: float = 0.09,
        height: float = 0.107,
        thickness: float = 0.005,
        mass: float = 0.17,
        segments: int = 20,
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
            colour: RGBA.
        """
        self._begin(name, float(np.hypot(diameter / 2, height)))
        self.radius, self.height, self.thickness = diameter / 2, height, thickness
        apothem = self.radius * np.cos(np.pi / segments)
        self.inner_radius = float(apothem - thickness)
        add_round_floor(self.body, radius=self.radius, thickness=thickness, mass=mass / 2, colour=colour)
        add_ring(
            self.body,
            radii=(apothem, apothem),
            heights=(thickness / 2, height),
            thickness=thickness,
            mass=mass / 2,
            colour=colour,
            segments=segments,
        )
