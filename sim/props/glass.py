"""A drinking glass: a flat floor and a straight wall, flaring a little."""

from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.sim.props.prop import Prop
from stringline.sim.props.vessel import Colour, add_floor, add_ring

GREEN: Colour = (0.15, 0.72, 0.42, 1.0)


class Glass(Prop):
    """Stands on its origin, with z up. Drawn opaque, so that pictures and depth agree on where it is."""

    def _build(
        self,
        name: str = "glass",
        *,
        diameter: float = 0.068,
        height: float = 0.1,
        floor_diameter: float = 0.056,
        thickness: float = 0.005,
        mass: float = 0.1,
        segments: int = 20,
        colour: Colour = GREEN,
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            diameter: Across the rim, outside, metres; wider than the gripper opens, so that it is taken by its wall.
            height: Of the rim.
            floor_diameter: Of the floor.
            thickness: Of floor and wall.
            mass: Of the whole, kg; two thirds of it in the floor, as in a tumbler's thick base.
            segments: Number of wall pieces.
            colour: RGBA.
        """
        self._begin(name, height)
        self.diameter, self.height, self.thickness = diameter, height, thickness
        self.floor_radius = floor_diameter / 2
        # The box under a floor is wider across its corners than the floor; a glass that lies must not lie on those.
        add_floor(self.body, radius=0.72 * self.floor_radius, thickness=thickness, mass=mass * 2 / 3, colour=colour)
        disc = {"size": (self.floor_radius - thickness / 2, thickness / 2), "pos": (0, 0, thickness / 2), "rgba": colour}
        self.body.add("geom", type="cylinder", mass=0, contype=0, conaffinity=0, group=DRAWN, **disc)
        add_ring(
            self.body,
            radii=(self.floor_radius - thickness, diameter / 2 - thickness),
            heights=(0.001, height),  # The wall hangs off the floor, or all its pieces would touch what it stands on.
            thickness=thickness,
            mass=mass / 3,
            colour=colour,
            segments=segments,
        )
