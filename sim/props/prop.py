"""The base class of props: free-standing entities built from primitive shapes.

Hollow round props have floors, and walls of segments that a gripper can pinch.
"""

import numpy as np
from dm_control import composer, mjcf
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN, PROP, SCENERY
from stringline.datasets.embodiments.transforms import quaternion

Colour = tuple[float, float, float, float]
"""Red, green, blue and opacity, 0 to 1."""

# Friction of a dry plastic or peel: sliding, torsional (m), rolling (m). Rolling friction lets
# round objects come to rest.
FRICTION = (0.7, 0.02, 0.005)
# Contacts with a time constant of five time steps and twice the critical damping: with stiffer
# contacts, less damping or more sliding friction, an object that is wedged between walls rattles
# without end.
CONTACT: dict[str, object] = {
    "contype": PROP,
    "conaffinity": SCENERY | PROP,
    "condim": 6,
    "friction": FRICTION,
    "solref": (0.01, 2),
    "solimp": (0.95, 0.99, 0.001),
}
"""Contact parameters of shapes that may roll (MJCF attributes of a geom)."""
FLAT_CONTACT: dict[str, object] = {**CONTACT, "condim": 4}
"""Contact parameters of shapes with flat faces only, without rolling friction, at half the cost."""
VISUAL: dict[str, object] = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
"""Attributes of geoms that are drawn and neither collide nor weigh anything."""


class Prop(composer.Entity):
    """An object that a task places on the table; subclasses add shapes to `body` in `_build`.

    Attributes:
        reach: Distance of the farthest point from the origin, metres.
        body: The body of all shapes.
    """

    reach: float

    def _begin(self, name: str, reach: float) -> None:
        """Makes the model, without shapes."""
        self._root = mjcf.RootElement(model=name)
        self.reach = reach
        self.body = self._root.worldbody.add("body", name="body")

    def _add_box(
        self,
        centre: ArrayLike,
        half: ArrayLike,
        mass: float,
        colour: ArrayLike,
        contact: dict[str, object] = FLAT_CONTACT,
    ) -> None:
        """Adds a box by its centre (3,) and half its lengths (3,), metres."""
        self.body.add("geom", type="box", pos=centre, size=half, mass=mass, rgba=colour, **contact)

    @property
    def name(self) -> str:
        """Name of the model, of its segment, and of its shapes as a group in contacts."""
        return str(self._root.model)

    @property
    def mjcf_model(self) -> mjcf.RootElement:
        """The model to attach."""
        return self._root

    @property
    def shapes(self) -> list[mjcf.Element]:
        """All geoms of the prop."""
        return list(self.body.find_all("geom"))


SEGMENTS = 20  # Boxes of a wall: enough that it can be pinched anywhere.


def add_floor(
    body: mjcf.Element, *, radius: float, thickness: float, mass: float, colour: Colour
) -> None:
    """Adds a disc (metres, kg) whose underside is the plane z = 0 of the body."""
    disc = {"pos": (0, 0, thickness / 2), "rgba": colour}
    body.add("geom", type="cylinder", size=(radius, thickness / 2), **disc, **VISUAL)
    # A box has the same contact points in every step. Those of a cylinder alternate, and what
    # stands on it never comes to rest.
    half = (0.95 * radius, 0.95 * radius, thickness / 2)
    body.add("geom", type="box", size=half, mass=mass, group=HIDDEN, **disc, **CONTACT)


def add_round_floor(
    body: mjcf.Element,
    *,
    radius: float,
    thickness: float,
    mass: float,
    colour: Colour,
    boxes: int = 1,
) -> None:
    """Adds a disc as `add_floor` does, for vessels whose wall stands on its edge.

    No corner of the hidden boxes, which collide in place of the disc, reaches beyond it. They are
    turned against each other: the more, the less of the disc's edge lies outside of them.
    """
    disc = {"pos": (0, 0, thickness / 2), "rgba": colour}
    body.add("geom", type="cylinder", size=(radius, thickness / 2), **disc, **VISUAL)
    square = {"size": (radius / np.sqrt(2), radius / np.sqrt(2), thickness / 2), "group": HIDDEN}
    for angle in np.arange(boxes) * np.pi / 2 / boxes:
        turn = (np.cos(angle / 2), 0, 0, np.sin(angle / 2))
        body.add("geom", type="box", quat=turn, mass=mass / boxes, **square, **disc, **CONTACT)


def add_ring(
    body: mjcf.Element,
    *,
    radii: tuple[float, float],
    heights: tuple[float, float],
    thickness: float,
    mass: float,
    colour: Colour,
) -> None:
    """Adds a wall around the z axis: straight or slanted boxes that adjoin each other.

    `radii` are the inner ones at the bottom and at the top, metres; the thickness lies outside of
    them. `heights` are the ends of the wall along z, metres; the mass, in kg, is that of the whole
    wall.
    """
    outwards = radii[1] - radii[0]
    upwards = heights[1] - heights[0]
    slant = np.hypot(outwards, upwards)
    size = (slant / 2, np.tan(np.pi / SEGMENTS) * max(radii), thickness / 2)
    for angle in np.arange(SEGMENTS) * 2 * np.pi / SEGMENTS:
        radial = np.array([np.cos(angle), np.sin(angle), 0.0])
        along = (outwards * radial + upwards * np.array([0.0, 0.0, 1.0])) / slant
        sideways = np.array([-np.sin(angle), np.cos(angle), 0.0])
        middle_height = np.array([0.0, 0.0, (heights[0] + heights[1]) / 2])
        middle = (radii[0] + outwards / 2) * radial + middle_height
        # The normal points inwards, and up where the wall leans outwards.
        normal = np.cross(along, sideways)
        turn = quaternion(np.stack([along, sideways, normal], axis=1))
        place = {"pos": middle - normal * thickness / 2, "quat": turn, "size": size}
        body.add("geom", type="box", mass=mass / SEGMENTS, rgba=colour, **place, **CONTACT)
