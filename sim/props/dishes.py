"""Dishes: bowl, glass, mug and plate. Each stands on its origin, with z up.

All lengths are in metres.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.prop import CONTACT, VISUAL, Colour, Prop
from stringline.sim.props.vessel import SEGMENTS, add_floor, add_ring, add_round_floor

BLUE: Colour = (0.10, 0.40, 0.85, 1.0)
GREEN: Colour = (0.15, 0.72, 0.42, 1.0)
RED: Colour = (0.85, 0.16, 0.14, 1.0)
WHITE: Colour = (0.92, 0.92, 0.88, 1.0)


class Bowl(Prop):
    """A bowl with a flat floor and a slanted wall.

    Attributes:
        rim_radius: Inner radius of the rim, less the thickness of the wall, metres.
    """

    def _build(
        self,
        *,
        diameter: float = 0.244,
        height: float = 0.066,
        floor_diameter: float = 0.16,
        thickness: float = 0.006,
        mass: float = 0.3,
    ) -> None:
        """Builds the model.

        Diameters are those inside the rim and of the flat floor. For stability two thirds of the
        mass, in kg, are in the floor.
        """
        self._begin("bowl", diameter / 2)
        self.height = height
        self.thickness = thickness
        self.rim_radius = diameter / 2 - thickness
        self.floor_radius = radius = floor_diameter / 2
        look: dict[str, Any] = {"thickness": thickness, "colour": BLUE}
        add_floor(self.body, radius=radius, mass=mass * 2 / 3, **look)
        heights = (thickness, height)
        add_ring(self.body, radii=(radius, diameter / 2), heights=heights, mass=mass / 3, **look)

    def contains(self, points: Matrix) -> bool:
        """Returns whether points (N, 3) in the bowl's frame are inside the bowl."""
        rise = (points[:, 2] - self.thickness) / (self.height - self.thickness)
        radius = self.floor_radius + rise * (self.rim_radius + self.thickness - self.floor_radius)
        within = np.hypot(points[:, 0], points[:, 1]) < radius - self.thickness
        return bool(((rise > 0) & (rise < 1) & within).all())


class Glass(Prop):
    """A tumbler with a heavy floor, drawn opaque, so that images and depth agree on its shape.

    Its outer diameter is more than the gripper opens, so that it is grasped by its wall.
    """

    diameter = 0.068
    height = 0.1
    thickness = 0.005
    floor_radius = 0.028

    def _build(self) -> None:
        mass = 0.1
        self._begin("glass", self.height)
        look: dict[str, Any] = {"thickness": self.thickness, "colour": GREEN}
        # The hidden box of a floor is wider across its corners than the floor. A glass that lies on
        # its side must not rest on them.
        add_floor(self.body, radius=0.72 * self.floor_radius, mass=mass * 2 / 3, **look)
        size = (self.floor_radius - self.thickness / 2, self.thickness / 2)
        disc = {"size": size, "pos": (0, 0, self.thickness / 2), "rgba": GREEN}
        self.body.add("geom", type="cylinder", **disc, **VISUAL)
        radii = (self.floor_radius - self.thickness, self.diameter / 2 - self.thickness)
        # The wall hangs off the floor; otherwise each of its boxes would touch the ground.
        add_ring(self.body, radii=radii, heights=(0.001, self.height), mass=mass / 3, **look)


class Mug(Prop):
    """A mug with a handle towards +x, 118 x 94 x 83 mm (YCB 025).

    Attributes:
        radius: Outer radius without the handle, metres.
        handle: Distance by which the handle sticks out, metres.
    """

    radius = 0.047
    height = 0.083
    handle = 0.024
    thickness = 0.005

    def _build(self) -> None:
        mass = 0.118
        self._begin("mug", float(np.hypot(self.radius + self.handle, self.height)))
        look: dict[str, Any] = {"thickness": self.thickness, "colour": WHITE}
        add_round_floor(self.body, radius=self.radius, mass=0.3 * mass, **look)
        # The boxes of the wall meet on a circle that is wider than their middles; they extend
        # outwards from the ring.
        inner = float(self.radius * np.cos(np.pi / SEGMENTS) - self.thickness)
        heights = (self.thickness / 2, self.height)
        add_ring(self.body, radii=(inner, inner), heights=heights, mass=0.6 * mass, **look)
        self._add_handle(0.1 * mass)

    def _add_handle(self, mass: float) -> None:
        size = 0.005
        inside = self.radius - self.thickness / 2
        outside = self.radius + self.handle - size
        high = 0.78 * self.height
        low = 0.26 * self.height
        corners = [(inside, high), (outside, 0.93 * high), (outside, 1.2 * low), (inside, low)]
        bar = {"size": (size,), "mass": mass / 3, "rgba": WHITE}
        for (x, z), (x_next, z_next) in pairwise(corners):
            ends = (x, 0.0, z, x_next, 0.0, z_next)
            self.body.add("geom", type="capsule", fromto=ends, **bar, **CONTACT)


class Plate(Prop):
    """A plate that stands on its floor and not on the edges of its rim.

    Its default size is that of aloha_sim's plate (YCB 029, scaled by 0.8).

    Attributes:
        diameter: Diameter of the rim without its thickness, metres.
    """

    height = 0.025

    def _build(
        self,
        *,
        diameter: float = 0.21,
        floor_diameter: float = 0.13,
        thickness: float = 0.006,
        mass: float = 0.2,
    ) -> None:
        """Builds the model; `diameter` is that of the rim without its thickness, mass is in kg."""
        self._begin("plate", diameter / 2)
        self.diameter = diameter
        self.thickness = thickness
        self.floor_radius = radius = floor_diameter / 2
        look: dict[str, Any] = {"thickness": thickness, "mass": mass / 2, "colour": RED}
        add_floor(self.body, radius=radius, **look)
        heights = (thickness, self.height)
        add_ring(self.body, radii=(radius, diameter / 2), heights=heights, **look)
