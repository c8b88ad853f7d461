"""A bowl: a flat floor and a ring of slanted wall segments."""

import numpy as np

from stringline.datasets.embodiments.aloha_mjcf import DRAWN, HIDDEN
from stringline.datasets.embodiments.rigid import quaternion
from stringline.sim.props.prop import CONTACT, Prop

BLUE = (0.10, 0.40, 0.85, 1.0)


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
    ) -> None:
        """Builds it.

        Args:
            name: Of the model.
            diameter: Across the rim, outside, metres.
            height: Of the rim.
            floor_diameter: Of the flat floor.
            thickness: Of floor and walls.
            mass: Of the whole, kg; two thirds of it in the floor, so that it stands firmly.
            segments: Number of wall pieces.
        """
        self._begin(name, diameter / 2)
        self.height, self.thickness = height, thickness
        self.rim_radius, floor_radius = diameter / 2 - thickness, floor_diameter / 2
        disc = {"pos": (0, 0, thickness / 2), "rgba": BLUE}
        drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
        self.body.add("geom", type="cylinder", size=(floor_radius, thickness / 2), **disc, **drawn)
        # A box is met at the same points in every step; on a cylinder the contacts alternate and things never come to rest.
        half = (0.95 * floor_radius, 0.95 * floor_radius, thickness / 2)
        self.body.add("geom", type="box", size=half, mass=mass * 2 / 3, group=HIDDEN, **disc, **CONTACT)
        outwards, upwards = diameter / 2 - floor_radius, height - thickness
        slant = np.hypot(outwards, upwards)
        for angle in np.arange(segments) * 2 * np.pi / segments:
            radial = np.array([np.cos(angle), np.sin(angle), 0.0])
            along = (outwards * radial + upwards * np.array([0.0, 0.0, 1.0])) / slant
            sideways = np.array([-np.sin(angle), np.cos(angle), 0.0])
            middle = (floor_radius + outwards / 2) * radial + np.array([0.0, 0.0, (height + thickness) / 2])
            normal = np.cross(along, sideways)  # Inwards and up.
            half_width = np.tan(np.pi / segments) * (diameter / 2)
            self.body.add(
                "geom",
                type="box",
                pos=middle - normal * thickness / 2,
                quat=quaternion(np.stack([along, sideways, normal], axis=1)),
                size=(slant / 2, half_width, thickness / 2),
                mass=mass / 3 / segments,
                rgba=BLUE,
                **CONTACT,
            )
