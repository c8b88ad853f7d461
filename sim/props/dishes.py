"""Dishes: bowl, glass, mug and plate."""

from itertools import pairwise

import numpy as np

from stringline.datasets.embodiments.mjcf_parts import DRAWN
from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.prop import CONTACT, Prop
from stringline.sim.props.vessel import Colour, add_floor, add_ring, add_round_floor

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
        self.height = height
        self.thickness = thickness
        self.rim_radius = diameter / 2 - thickness
        floor_radius = floor_diameter / 2
        self.floor_radius = floor_radius
        add_floor(
            self.body, radius=floor_radius, thickness=thickness, mass=mass * 2 / 3, colour=colour
        )
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


GREEN: Colour = (0.15, 0.72, 0.42, 1.0)


class Glass(Prop):
    """Stands on its origin, with z up.

    Drawn opaque, so that images and depth agree on where it is.
    """

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
            diameter: Across the rim, outside, metres; wider than the gripper opens, so that it is
                taken by its wall.
            height: Of the rim.
            floor_diameter: Of the floor.
            thickness: Of floor and wall.
            mass: Of the whole, kg; two thirds of it in the floor, as in a tumbler's thick base.
            segments: Number of wall pieces.
            colour: RGBA.
        """
        self._begin(name, height)
        self.diameter = diameter
        self.height = height
        self.thickness = thickness
        self.floor_radius = floor_diameter / 2
        # The box under a floor is wider across its corners than the floor; a glass that lies must
        # not lie on those.
        add_floor(
            self.body,
            radius=0.72 * self.floor_radius,
            thickness=thickness,
            mass=mass * 2 / 3,
            colour=colour,
        )
        disc = {
            "size": (self.floor_radius - thickness / 2, thickness / 2),
            "pos": (0, 0, thickness / 2),
            "rgba": colour,
        }
        self.body.add(
            "geom", type="cylinder", mass=0, contype=0, conaffinity=0, group=DRAWN, **disc
        )
        add_ring(
            self.body,
            radii=(self.floor_radius - thickness, diameter / 2 - thickness),
            heights=(
                0.001,
                height,
            ),  # The wall hangs off the floor, or all its pieces would touch what it stands on.
            thickness=thickness,
            mass=mass / 3,
            colour=colour,
            segments=segments,
        )


WHITE: Colour = (0.92, 0.92, 0.88, 1.0)


class Mug(Prop):
    """Stands on its origin, with z up and the handle towards +x.

    By default 118 x 94 x 83 mm (YCB 025).
    """

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
        self.radius = diameter / 2
        self.height = height
        self.handle = handle
        self.thickness = thickness
        # Pieces of the wall meet on a circle that is wider than their middles; they grow outwards
        # from the ring.
        inner = float(self.radius * np.cos(np.pi / segments) - thickness)
        add_round_floor(
            self.body, radius=self.radius, thickness=thickness, mass=0.3 * mass, colour=colour
        )
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
        size = 0.005
        inside = self.radius - self.thickness / 2
        outside = self.radius + self.handle - size
        high = 0.78 * self.height
        low = 0.26 * self.height
        corners = [(inside, high), (outside, 0.93 * high), (outside, 1.2 * low), (inside, low)]
        for (x, z), (x_next, z_next) in pairwise(corners):
            ends = (x, 0.0, z, x_next, 0.0, z_next)
            self.body.add(
                "geom",
                type="capsule",
                fromto=ends,
                size=(size,),
                mass=mass / 3,
                rgba=colour,
                **CONTACT,
            )


RED: Colour = (0.85, 0.16, 0.14, 1.0)


class Plate(Prop):
    """Stands on its origin, with z up.

    Its default size is that of aloha_sim's (YCB 029, times 0.8).
    """

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
            rim_from: Height at which the inside of the rim begins, by default half the thickness.
                From the whole thickness on, the plate stands on its floor and not on the edges of
                its rim.
            mass: Of the whole, kg.
            segments: Number of pieces of the rim.
            colour: RGBA.
        """
        self._begin(name, diameter / 2)
        self.diameter = diameter
        self.height = height
        self.thickness = thickness
        self.floor_radius = floor_diameter / 2
        add_floor(
            self.body, radius=self.floor_radius, thickness=thickness, mass=mass / 2, colour=colour
        )
        add_ring(
            self.body,
            radii=(self.floor_radius, diameter / 2),
            heights=(thickness / 2 if rim_from is None else rim_from, height),
            thickness=thickness,
            mass=mass / 2,
            colour=colour,
            segments=segments,
        )
