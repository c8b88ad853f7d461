"""A plate: a flat floor and a low, wide rim."""

from stringline.sim.props.prop import Prop
from stringline.sim.props.vessel import Colour, add_floor, add_ring

RED: Colour = (0.85, 0.16, 0.14, 1.0)


class Plate(Prop):
    """Stands on its origin, with z up. Its default size is that of aloha_sim's (YCB 029, times 0.8)."""

    def _build(
        self,
        name: str = "plate",
        *,
        diameter: float = 0.21,
        height: float = 0.025,
        floor_diameter: float = 0.13,
        thickness: float = 0.006,
        rim_from: float | None = None,
        mass: float = 0.2,
        segments: int = 20,
        colour: Colour = RED,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            diameter: Across the rim without its thickness, metres.
            height: Of the rim.
            floor_diameter: Of the flat floor.
            thickness: Of floor and rim.
            rim_from: Height at which the inside of the rim begins, by default half the thickness. From the whole thickness on,
                the plate stands on its floor and not on the edges of its rim.
            mass: Of the whole, kg.
            segments: Number of pieces of the rim.
            colour: RGBA.
        """
        self._begin(name, diameter / 2)
        self.diameter, self.height, self.thickness = diameter, height, thickness
        self.floor_radius = floor_diameter / 2
        add_floor(self.body, radius=self.floor_radius, thickness=thickness, mass=mass / 2, colour=colour)
        add_ring(
            self.body,
            radii=(self.floor_radius, diameter / 2),
            heights=(thickness / 2 if rim_from is None else rim_from, height),
            thickness=thickness,
            mass=mass / 2,
            colour=colour,
            segments=segments,
        )
