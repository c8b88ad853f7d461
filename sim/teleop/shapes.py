"""The shapes of a MuJoCo model as triangles, body by body, for drawing them elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector

LAST_DRAWN_GROUP = 2  # MuJoCo's own images leave the groups behind it out as well.
# Pieces of a circle, and from the equator of a sphere to its pole.
AROUND = 24
ALONG = 8
ENDLESS_M = 2.0  # Half the width of planes that have none.
PLAIN = (0.5, 0.5, 0.5, 1.0)  # The colour that MuJoCo gives shapes which have none of their own.

Vertices = NDArray[np.float64]
Faces = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Triangles:
    """A surface.

    Attributes:
        vertices: (V, 3), metres.
        faces: (F, 3), places of vertices, counter-clockwise as seen from outside.
    """

    vertices: Vertices
    faces: Faces

    def moved(self, position: Vector, rotation: Vector) -> "Triangles":
        """Returns it turned by a matrix (3, 3) and then moved by (3,)."""
        return Triangles(self.vertices @ rotation.T + position, self.faces)


@dataclass(frozen=True, eq=False)
class DrawnBody:
    """What is drawn of one body.

    Attributes:
        number: Of the body in the model.
        surfaces: In the body's frame, by colour: red, green, blue and opacity, 0 to 1.
    """

    number: int
    surfaces: Mapping[tuple[float, ...], Triangles]


def drawn_bodies(model: mujoco.MjModel) -> Iterator[DrawnBody]:
    """Yields the bodies of a model that have something to draw."""
    by_body: dict[int, dict[tuple[float, ...], list[Triangles]]] = {}
    for geom in range(model.ngeom):
        colour = _colour(model, geom)
        if model.geom_group[geom] > LAST_DRAWN_GROUP or colour[3] <= 0.0:
            continue
        surfaces = by_body.setdefault(int(model.geom_bodyid[geom]), {})
        surfaces.setdefault(colour, []).append(_placed(model, geom))
    for number, surfaces in by_body.items():
        yield DrawnBody(number, {colour: _joined(parts) for colour, parts in surfaces.items()})


def appearance(model: mujoco.MjModel) -> bytes:
    """Returns what differs as soon as something must be drawn in another way, bodies' poses apart."""
    arrays = (
        model.geom_rgba,
        model.mat_rgba,
        model.geom_size,
        model.geom_pos,
        model.geom_quat,
        model.geom_group,
    )
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def triangles(kind: int, size: Vector) -> Triangles:
    """Returns the surface of a shape in its own frame.

    Args:
        kind: MuJoCo's `mjtGeom`, of a shape that is no mesh.
        size: (3,), as MuJoCo means it for that kind.

    Raises:
        ValueError: There is no drawing of that kind.
    """
    if kind not in _SHAPES:
        raise ValueError(
            f"Shapes of MuJoCo's kind {mujoco.mjtGeom(kind).name} cannot be drawn on the page."
        )
    return _SHAPES[kind](np.asarray(size, dtype=np.float64))


def _placed(model: mujoco.MjModel, geom: int) -> Triangles:
    kind = int(model.geom_type[geom])
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
    shape = (
        _mesh(model, int(model.geom_dataid[geom]))
        if kind == _MESH
        else triangles(kind, model.geom_size[geom])
    )
    return shape.moved(model.geom_pos[geom], rotation.reshape(3, 3))


def _colour(model: mujoco.MjModel, geom: int) -> tuple[float, ...]:
    own = tuple(float(value) for value in model.geom_rgba[geom])
    material = int(model.geom_matid[geom])
    plain = material >= 0 and np.allclose(own, PLAIN)
    return tuple(float(value) for value in model.mat_rgba[material]) if plain else own


def _joined(parts: list[Triangles]) -> Triangles:
    before = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
    faces = [part.faces + offset for part, offset in zip(parts, before, strict=True)]
    return Triangles(np.concatenate([part.vertices for part in parts]), np.concatenate(faces))


def _mesh(model: mujoco.MjModel, mesh: int) -> Triangles:
    vertex = int(model.mesh_vertadr[mesh])
    face = int(model.mesh_faceadr[mesh])
    vertices = model.mesh_vert[vertex : vertex + int(model.mesh_vertnum[mesh])]
    return Triangles(
        vertices.astype(np.float64),
        model.mesh_face[face : face + int(model.mesh_facenum[mesh])].astype(np.int64),
    )


def _box(size: Vector) -> Triangles:
    """Each face has its own corners, so that edges stay sharp where a viewer smooths over shared ones."""
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=np.float64)
    sides = []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            corners = np.empty((4, 3))
            corners[:, axis] = sign
            corners[:, (axis + 1) % 3] = square[:, 0]
            corners[:, (axis + 2) % 3] = square[:, 1]
            faces = np.array([[0, 1, 2], [0, 2, 3]])
            sides.append(Triangles(corners * size, faces if sign > 0 else faces[:, ::-1]))
    return _joined(sides)


def _plane(size: Vector) -> Triangles:
    half = np.where(size[:2] > 0, size[:2], ENDLESS_M)
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]) * (*half, 0.0)
    return Triangles(corners, np.array([[0, 1, 2], [0, 2, 3]]))


def _rounded(radii: Vector, stretch: float) -> Triangles:
    """A sphere of these radii (3,), its halves `stretch` away from the middle along z, with a wall between them."""
    latitudes = np.linspace(-np.pi / 2, np.pi / 2, 2 * ALONG + 1)
    latitudes = np.insert(latitudes, ALONG, 0.0) if stretch else latitudes
    rings = len(latitudes)
    away = (
        stretch * np.where(np.arange(rings) < rings / 2, -1.0, 1.0) if stretch else np.zeros(rings)
    )
    turn = 2 * np.pi * np.arange(AROUND) / AROUND
    unit = np.stack(
        [
            np.outer(np.cos(latitudes), np.cos(turn)),
            np.outer(np.cos(latitudes), np.sin(turn)),
            _rows(np.sin(latitudes)),
        ],
        -1,
    )
    vertices = unit * radii
    vertices[..., 2] += away[:, None]
    return Triangles(vertices.reshape(-1, 3), _wall(rings))


def _cylinder(size: Vector) -> Triangles:
    radius = size[0]
    half = size[1]
    turn = 2 * np.pi * np.arange(AROUND) / AROUND
    circle = np.stack([radius * np.cos(turn), radius * np.sin(turn), np.zeros(AROUND)], -1)
    up = np.array([0.0, 0.0, half])
    wall = Triangles(np.concatenate([circle - up, circle + up]), _wall(2))
    fan = np.stack(
        [np.zeros(AROUND - 2, np.int64), np.arange(1, AROUND - 1), np.arange(2, AROUND)], -1
    )
    return _joined([wall, Triangles(circle + up, fan), Triangles(circle - up, fan[:, ::-1])])


def _wall(rings: int) -> Faces:
    """Returns the triangles between circles of `AROUND` vertices, from the lowest to the highest."""
    here = (np.arange(rings - 1)[:, None] * AROUND + np.arange(AROUND)).ravel()
    beside = (np.arange(rings - 1)[:, None] * AROUND + np.roll(np.arange(AROUND), -1)).ravel()
    return np.concatenate(
        [
            np.stack([here, beside, beside + AROUND], -1),
            np.stack([here, beside + AROUND, here + AROUND], -1),
        ]
    )


def _rows(values: Vector) -> Vector:
    return np.repeat(values[:, None], AROUND, axis=1)


_MESH = int(mujoco.mjtGeom.mjGEOM_MESH)
_SHAPES: Mapping[int, Callable[[Vector], Triangles]] = {
    int(mujoco.mjtGeom.mjGEOM_PLANE): _plane,
    int(mujoco.mjtGeom.mjGEOM_SPHERE): lambda size: _rounded(np.repeat(size[0], 3), 0.0),
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): lambda size: _rounded(
        np.repeat(size[0], 3), float(size[1])
    ),
    int(mujoco.mjtGeom.mjGEOM_ELLIPSOID): lambda size: _rounded(size, 0.0),
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): _cylinder,
    int(mujoco.mjtGeom.mjGEOM_BOX): _box,
}
