"""The world in a viser scene: the shapes of every body, at the poses of the physics.

The shapes of a MuJoCo model are drawn as triangles, body by body.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector

LAST_DRAWN_GROUP = 2  # MuJoCo's own images omit later groups as well.
AROUND = 24  # Pieces of a circle.
ALONG = 8  # Pieces from the equator of a sphere to its pole.
ENDLESS_M = 2.0  # Drawn half width of infinite planes.
PLAIN = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's colour for geoms without a colour of their own.

Vertices = NDArray[np.float64]
Faces = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Triangles:
    """A surface.

    Attributes:
        vertices: (V, 3), metres.
        faces: (F, 3), indices of vertices, counter-clockwise as seen from outside.
    """

    vertices: Vertices
    faces: Faces

    def moved(self, position: Vector, rotation: Vector) -> "Triangles":
        """Returns the surface rotated by a matrix (3, 3) and then moved by (3,), metres."""
        return Triangles(self.vertices @ rotation.T + position, self.faces)


@dataclass(frozen=True, eq=False)
class DrawnBody:
    """The visible surfaces of one body.

    Attributes:
        number: Number of the body in the model.
        surfaces: Surfaces in the body's frame by colour: red, green, blue and opacity, 0 to 1.
    """

    number: int
    surfaces: Mapping[tuple[float, ...], Triangles]


def drawn_bodies(model: mujoco.MjModel) -> Iterator[DrawnBody]:
    """Yields the bodies of a model that have visible shapes."""
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
    """Returns a value that changes with the model's appearance, but not with poses of bodies."""
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
    """Returns the surface of a shape in its own frame, by MuJoCo's kind `mjtGeom` and size (3,)."""
    if kind not in _SHAPES:
        raise ValueError(
            f"Shapes of MuJoCo's kind {mujoco.mjtGeom(kind).name} cannot be drawn on the page."
        )
    return _SHAPES[kind](np.asarray(size, dtype=np.float64))


def _placed(model: mujoco.MjModel, geom: int) -> Triangles:
    kind = int(model.geom_type[geom])
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
    if kind == _MESH:
        shape = _mesh(model, int(model.geom_dataid[geom]))
    else:
        shape = triangles(kind, model.geom_size[geom])
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
    faces = model.mesh_face[face : face + int(model.mesh_facenum[mesh])]
    return Triangles(vertices.astype(np.float64), faces.astype(np.int64))


def _box(size: Vector) -> Triangles:
    """Returns a box whose faces share no corners, since viewers smooth over shared ones."""
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
    """Returns an ellipsoid of radii (3,), its halves moved by `stretch` along z, with a wall."""
    latitudes = np.linspace(-np.pi / 2, np.pi / 2, 2 * ALONG + 1)
    latitudes = np.insert(latitudes, ALONG, 0.0) if stretch else latitudes
    rings = len(latitudes)
    turn = 2 * np.pi * np.arange(AROUND) / AROUND
    x = np.outer(np.cos(latitudes), np.cos(turn))
    y = np.outer(np.cos(latitudes), np.sin(turn))
    z = np.repeat(np.sin(latitudes)[:, None], AROUND, axis=1)
    vertices = np.stack([x, y, z], -1) * radii
    if stretch:
        signs = np.where(np.arange(rings) < rings / 2, -1.0, 1.0)
        vertices[..., 2] += (stretch * signs)[:, None]
    return Triangles(vertices.reshape(-1, 3), _wall(rings))


def _cylinder(size: Vector) -> Triangles:
    radius = size[0]
    half = size[1]
    turn = 2 * np.pi * np.arange(AROUND) / AROUND
    circle = np.stack([radius * np.cos(turn), radius * np.sin(turn), np.zeros(AROUND)], -1)
    up = np.array([0.0, 0.0, half])
    wall = Triangles(np.concatenate([circle - up, circle + up]), _wall(2))
    first = np.zeros(AROUND - 2, np.int64)
    fan = np.stack([first, np.arange(1, AROUND - 1), np.arange(2, AROUND)], -1)
    return _joined([wall, Triangles(circle + up, fan), Triangles(circle - up, fan[:, ::-1])])


def _wall(rings: int) -> Faces:
    """Returns the triangles between successive circles of `AROUND` vertices."""
    here = (np.arange(rings - 1)[:, None] * AROUND + np.arange(AROUND)).ravel()
    beside = (np.arange(rings - 1)[:, None] * AROUND + np.roll(np.arange(AROUND), -1)).ravel()
    lower = np.stack([here, beside, beside + AROUND], -1)
    upper = np.stack([here, beside + AROUND, here + AROUND], -1)
    return np.concatenate([lower, upper])


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


MOVED = 1e-5  # Smallest change, in metres or parts of a quaternion, that is sent.


@dataclass
class SceneView:
    """Draws a model with a server of viser, and follows its data."""

    server: Any
    model: mujoco.MjModel
    _frames: dict[int, Any] = field(init=False, default_factory=dict)
    _surfaces: list[Any] = field(init=False, default_factory=list)
    _appearance: bytes = field(init=False, default=b"")

    def update(self, data: mujoco.MjData) -> None:
        """Updates all poses; draws the model anew if its appearance has changed."""
        now = appearance(self.model)
        if now != self._appearance:
            self._appearance = now
            self._draw()
        with self.server.atomic():
            for body in self._moved(data):
                frame = self._frames[body]
                frame.position = data.xpos[body]
                frame.wxyz = data.xquat[body]
                self._position[body] = data.xpos[body]
                self._turn[body] = data.xquat[body]

    def _moved(self, data: mujoco.MjData) -> list[int]:
        away = np.abs(data.xpos - self._position).max(axis=1) > MOVED
        turned = np.abs(data.xquat - self._turn).max(axis=1) > MOVED
        return [body for body in np.flatnonzero(away | turned).tolist() if body in self._frames]

    def _draw(self) -> None:
        for node in [*self._surfaces, *self._frames.values()]:
            node.remove()
        self._surfaces.clear()
        # Poses of new frames.
        self._position = np.zeros((self.model.nbody, 3))
        self._turn = np.tile([1.0, 0.0, 0.0, 0.0], (self.model.nbody, 1))
        self._frames = {body.number: self._draw_body(body) for body in drawn_bodies(self.model)}

    def _draw_body(self, body: DrawnBody) -> Any:
        frame = self.server.scene.add_frame(f"/world/{body.number}", show_axes=False)
        for number, (colour, surface) in enumerate(body.surfaces.items()):
            self._draw_surface(f"/world/{body.number}/{number}", colour, surface)
        return frame

    def _draw_surface(self, name: str, colour: tuple[float, ...], surface: Triangles) -> None:
        node = self.server.scene.add_mesh_simple(
            name,
            surface.vertices.astype(np.float32),
            surface.faces.astype(np.uint32),
            color=tuple(round(255 * value) for value in colour[:3]),
            opacity=None if colour[3] >= 1.0 else colour[3],
            cast_shadow=False,
            receive_shadow=False,
        )
        self._surfaces.append(node)
