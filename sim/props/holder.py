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
            floor_boxes: See `add_round_floor`; one is enough where nothing thin is put in, and costs less.
            colour: RGBA.
        """
        self._begin(name, float(np.hypot(diameter / 2, height)))
        self.radius, self.height, self.thickness = diameter / 2, height, thickness
        self.inner_radius = float(self.radius * np.cos(np.pi / segments) - thickness)
        add_round_floor(self.body, radius=self.radius, thickness=thickness, mass=mass / 2, colour=colour, boxes=floor_boxes)
        add_ring(
            self.body,
            radii=(self.inner_radius, self.inner_radius),
            heights=(thickness / 2, height),
            thickness=thickness,
            mass=mass / 2,
            colour=colour,
            segments=segments,
        )
