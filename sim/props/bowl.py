"""A bowl: a flat floor and a ring of slanted wall segments."""

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.prop import Prop
from stringline.sim.props.vessel import Colour, add_floor, add_ring

BLUE: Colour = (0.10, 0.40, 0.85, 1.0)


class Bowl(Prop):
    """Stands on its origin, with z up."""

    def _build(
        self,
        name: str = "bowl",
        *,
        diameter: float = 0.244,
        height: float = 0.066,
        floor_diameter: float = 0.16,
        thickness: float = 0.006,
        mass: float = 0.3,
        segments: int = 20,
        colour: Colour = BLUE,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            diameter: Across the rim, inside its wall, metres.
            height: Of the rim.
            floor_diameter: Of the flat floor.
            thickness: Of floor and walls.
            mass: Of the whole, kg; two thirds of it in the floor, so that it stands firmly.
            segments: Number of wall pieces.
            colour: RGBA.
        """
        self._begin(name, diameter / 2)
        self.height, self.thickness = height, thickness
        self.rim_radius, floor_radius = diameter / 2 - thickness, floor_diameter / 2
        self.floor_radius = floor_radius
        add_floor(self.body, radius=floor_radius, thickness=thickness, mass=mass * 2 / 3, colour=colour)
        add_ring(
            self.body,
            radii=(floor_radius, diameter / 2),
            heights=(thickness, height),
            thickness=thickness,
            mass=mass / 3,
            colour=colour,
            segments=segments,
        )

    def contains(self, points: Matrix) -> bool:
        """Says whether points (N, 3) in its frame, metres, are within its slanted wall, above its floor and below its rim."""
        rise = (points[:, 2] - self.thickness) / (self.height - self.thickness)
        radius = self.floor_radius + rise * (self.rim_radius + self.thickness - self.floor_radius)
        within = np.hypot(points[:, 0], points[:, 1]) < radius - self.thickness
        return bool(((rise > 0) & (rise < 1) & within).all())
