"""The solids of which assets consist, and the boxes around them.

The frame of an asset: x right, y back, z up, metres; it stands on z = 0 and faces -y.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]
Colour = tuple[float, float, float]
Form = Literal["box", "cylinder", "ellipsoid", "mesh"]

SIDES = 16  # Corners of a solid of revolution.


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh.

    Attributes:
        vertices: (V, 3) in metres.
        faces: (F, 3) indices of vertices, counterclockwise seen from outside.
        places: (V, 2) texture coordinates of the vertices; None without texture.
        image: (H, W, 3) uint8 texture; None without.
    """

    vertices: Vectors
    faces: NDArray[np.int32]
    places: Vectors | None = None
    image: NDArray[np.uint8] | None = None


@dataclass(frozen=True, eq=False)
class Solid:
    """A solid of one colour.

    Attributes:
        form: A cylinder has its axis along z.
        half: (3,) half lengths along its axes; of a mesh, a scale of its vertices.
        centre: (3,) in the frame of the asset.
        rotation: (3, 3); its columns are the axes of the solid.
        colour: Red, green and blue, 0 to 1.
        texture: Name of a pattern that multiplies the colour; "" for none.
        mesh: The mesh, if the form is one.
        swings: Whether it moves with the hinge of the asset.
    """

    form: Form
    half: Vectors
    centre: Vectors
    rotation: Vectors
    colour: Colour
    texture: str = ""
    mesh: Mesh | None = None
    swings: bool = False

    def extent(self) -> tuple[Vectors, Vectors]:
        """Returns the lowest and the highest coordinates (3,) in the frame of the asset."""
        if self.mesh is not None:
            points = self.centre + (self.mesh.vertices * self.half) @ self.rotation.T
            return points.min(0), points.max(0)
        spread = self.rotation * self.half
        if self.form == "box":
            reach = np.abs(spread).sum(1)
        elif self.form == "ellipsoid":
            reach = np.linalg.norm(spread, axis=1)
        else:
            reach = np.linalg.norm(spread[:, :2], axis=1) + np.abs(spread[:, 2])
        return self.centre - reach, self.centre + reach


def revolved(profile: Vectors) -> Mesh:
    """Returns the solid of revolution about z of a closed profile (P, 2) of radii and heights.

    The profile runs from its lowest point on the outside up, and on the inside down; its first and
    last points lie on the axis.
    """
    angle = np.arange(SIDES) * (2 * np.pi / SIDES)
    radius = np.repeat(profile[:, 0], SIDES)
    turns = np.tile(angle, len(profile))
    heights = np.repeat(profile[:, 1], SIDES)
    vertices = np.stack([radius * np.cos(turns), radius * np.sin(turns), heights], axis=1)
    ring = np.arange(SIDES)
    after = (ring + 1) % SIDES
    faces = []
    for low in range(len(profile) - 1):
        a = low * SIDES + ring
        b = low * SIDES + after
        c = b + SIDES
        d = a + SIDES
        if profile[low, 0] > 0:
            faces.append(np.stack([a, b, c], axis=1))
        if profile[low + 1, 0] > 0:
            faces.append(np.stack([a, c, d], axis=1))
    return Mesh(vertices, np.concatenate(faces).astype(np.int32))


def turned(yaw: float) -> Vectors:
    """Returns the rotation (3, 3) by an angle about z, rad."""
    cos = np.cos(yaw)
    sin = np.sin(yaw)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


def along(direction: Vectors) -> Vectors:
    """Returns a rotation (3, 3) whose third column is along a direction (3,)."""
    third = direction / np.linalg.norm(direction)
    other = np.eye(3)[int(np.argmin(np.abs(third)))]
    first = np.cross(other, third)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(third, first), third], axis=1)
