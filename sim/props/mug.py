"""A mug: a straight wall around a floor, and a handle."""

from itertools import pairwise

import numpy as np

from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour, add_ring, add_round_floor

WHITE: Colour = (0.92, 0.92, 0.88, 1.0)


class Mug(Prop):
    """Stands on its origin, with z up and the handle towards +x. By default 118 x 94 x 83 mm (YCB 025)."""

    def _build(
        self,
        name: str = "mug",
        *,
        diameter: float = 0.094,
        height: float = 0.083,
        handle: float = 0.024,
        thickness: float = 0.005,
        mass: float = 0.118,
        segments: int = 20,
        colour: Colour = WHITE,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            diameter: Outside, without the handle, metres.
            height: Of the rim.
            handle: How far the handle sticks out.
            thickness: Of floor and wall.
            mass: Of the whole, kg.
            segments: Number of wall pieces.
            colour: RGBA.
        """
        self._begin(name, float(np.hypot(diameter / 2 + handle, height)))
        self.radius, self.height, self.handle, self.thickness = diameter / 2, height, handle, thickness
        # Pieces of the wall meet on a circle that is wider than their middles; they grow outwards from the ring.
        inner = float(self.radius * np.cos(np.pi / segments) - thickness)
        add_round_floor(self.body, radius=self.radius, thickness=thickness, mass=0.3 * mass, colour=colour)
        add_ring(
            self.body,
            radii=(inner, inner),
            heights=(thickness / 2, height),
            thickness=thickness,
            mass=0.6 * mass,
            colour=colour,
            segments=segments,
        )
        self._add_handle(0.1 * mass, colour)

    def _add_handle(self, mass: float, colour: Colour) -> None:
        size, inside = 0.005, self.radius - self.thickness / 2
        outside = self.radius + self.handle - size
        high, low = 0.78 * self.height, 0.26 * self.height
        corners = [(inside, high), (outside, 0.93 * high), (outside, 1.2 * low), (inside, low)]
        for (x, z), (x_next, z_next) in pairwise(corners):
            ends = (x, 0.0, z, x_next, 0.0, z_next)
            self.body.add("geom", type="capsule", fromto=ends, size=(size,), mass=mass / 3, rgba=colour, **CONTACT)
