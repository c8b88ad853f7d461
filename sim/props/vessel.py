"""Hollow round things: a floor and rings of wall segments, which a gripper can reach into and pinch."""

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN
from stringline.datasets.embodiments.transforms import quaternion
from stringline.sim.props.prop import CONTACT

Colour = tuple[float, float, float, float]


def add_floor(
    body: mjcf.Element, *, radius: float, thickness: float, mass: float, colour: Colour
) -> None:
    """Adds a disc whose underside is the plane z = 0 of the body.

    Args:
        body: What to add it to.
        radius: Of the disc, metres.
        thickness: Along z, metres.
        mass: In kg.
        colour: RGBA.
    """
    disc = {"pos": (0, 0, thickness / 2), "rgba": colour}
    drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
    body.add("geom", type="cylinder", size=(radius, thickness / 2), **disc, **drawn)
    # A box is met at the same points in every step; on a cylinder the contacts alternate and things
    # never come to rest.
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
    """Adds a disc as `add_floor` does, for vessels whose wall stands on its edge: no hidden corner reaches beyond the disc.

    Args:
        body: What to add it to.
        radius: Of the disc, metres.
        thickness: Along z, metres.
        mass: In kg.
        colour: RGBA.
        boxes: Of how many turned squares what is met consists: more of them leave less of the
            disc's edge uncovered.
    """
    disc = {"pos": (0, 0, thickness / 2), "rgba": colour}
    drawn = {"contype": 0, "conaffinity": 0, "group": DRAWN, "mass": 0}
    body.add("geom", type="cylinder", size=(radius, thickness / 2), **disc, **drawn)
    half = (radius / np.sqrt(2), radius / np.sqrt(2), thickness / 2)
    for angle in np.arange(boxes) * np.pi / 2 / boxes:
        turn = (np.cos(angle / 2), 0, 0, np.sin(angle / 2))
        body.add(
            "geom",
            type="box",
            size=half,
            quat=turn,
            mass=mass / boxes,
            group=HIDDEN,
            **disc,
            **CONTACT,
        )


def add_ring(
    body: mjcf.Element,
    *,
    radii: tuple[float, float],
    heights: tuple[float, float],
    thickness: float,
    mass: float,
    colour: Colour,
    segments: int = 20,
) -> None:
    """Adds a wall around the z axis: straight or slanted segments that meet each other.

    Args:
        body: What to add it to.
        radii: Inner radius at the bottom and at the top, metres.
        heights: Where the wall begins and ends along z, metres.
        thickness: Of the wall, which stands outside these radii.
        mass: Of the whole wall, kg.
        colour: RGBA.
        segments: At least 16, so that it is round enough to pinch anywhere.

    Raises:
        ValueError: There are too few segments.
    """
    if segments < 16:
        raise ValueError(f"segments is {segments}; allowed: 16 and above.")
    outwards = radii[1] - radii[0]
    upwards = heights[1] - heights[0]
    slant = np.hypot(outwards, upwards)
    for angle in np.arange(segments) * 2 * np.pi / segments:
        radial = np.array([np.cos(angle), np.sin(angle), 0.0])
        along = (outwards * radial + upwards * np.array([0.0, 0.0, 1.0])) / slant
        sideways = np.array([-np.sin(angle), np.cos(angle), 0.0])
        middle = (radii[0] + outwards / 2) * radial + np.array(
            [0.0, 0.0, (heights[0] + heights[1]) / 2]
        )
        normal = np.cross(along, sideways)  # Inwards, and up where the wall leans outwards.
        body.add(
            "geom",
            type="box",
            pos=middle - normal * thickness / 2,
            quat=quaternion(np.stack([along, sideways, normal], axis=1)),
            size=(slant / 2, np.tan(np.pi / segments) * max(radii), thickness / 2),
            mass=mass / segments,
            rgba=colour,
            **CONTACT,
        )
