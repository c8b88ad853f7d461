"""Capsules around the shapes of a robot model: each link gets up to three that contain it.

The surface of a link is sampled. A capsule is found for given directions of its axis: the smallest
circle around the samples, seen along the axis, gives its place and radius (Badoiu and Clarkson,
2003), and the ends move inwards until the outermost samples touch. A link whose volume shrinks by
that is divided in two at the middle of its longest extent.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.model_file import RobotModel
from stringline.datasets.embodiments.transforms import Matrix, rotation_of

SAMPLE_M = 0.005
"""Largest distance of samples on a surface, metres."""
_SMALLEST_M = 1e-4  # A smaller shape stands for a mesh that cannot be read.
_MOST_SAMPLES = 20_000
_LARGEST_M = 3.0  # A larger shape is scenery.
_GAIN = 0.7  # A division must leave at most this share of the volume.
_MOST_DIVISIONS = 2
_CIRCLE_STEPS = 100
_DIRECTIONS = 400


@dataclass(frozen=True, eq=False)
class Fitted:
    """A capsule around samples: ends (3,) of its axis, and radius in metres."""

    start: Vector
    end: Vector
    radius: float

    @property
    def volume(self) -> float:
        """Volume in cubic metres."""
        length = float(np.linalg.norm(self.end - self.start))
        return np.pi * self.radius**2 * (length + 4 / 3 * self.radius)


def fit_capsules(points: Vector) -> list[Fitted]:
    """Returns up to four capsules that contain samples (N, 3) of a surface, N at least 1."""
    found = [(_capsule(points), points)]
    for _ in range(_MOST_DIVISIONS):
        divided = []
        for whole, samples in found:
            halves = _halves(samples)
            parts = [(_capsule(half), half) for half in halves if len(half)]
            smaller = sum(part.volume for part, _ in parts) < _GAIN * whole.volume
            divided += parts if len(parts) == 2 and smaller else [(whole, samples)]
        found = divided
    return [capsule for capsule, _ in found]


def surface_of(robot: RobotModel, body: int) -> Vector:
    """Returns samples (N, 3) of the surface of a body in its frame; N is 0 without a shape.

    The surface is that of the visible shapes; without any, that of the colliding ones.
    """
    model = robot.model
    first = int(model.body_geomadr[body])
    geoms = range(first, first + int(model.body_geomnum[body])) if first >= 0 else range(0)
    seen = [g for g in geoms if not (model.geom_contype[g] or model.geom_conaffinity[g])]
    for chosen in (seen, geoms):
        found = [points for g in chosen for points in _samples(model, g)]
        if found:
            return np.concatenate(found)
    return np.zeros((0, 3))


def _samples(model: mujoco.MjModel, geom: int) -> Iterator[Vector]:
    """Yields samples (N, 3) of a geom in the frame of its body; nothing for planes and terrain."""
    kind = int(model.geom_type[geom])
    size = model.geom_size[geom]
    types = mujoco.mjtGeom
    if kind in (types.mjGEOM_PLANE, types.mjGEOM_HFIELD):
        return
    if kind in (types.mjGEOM_MESH, types.mjGEOM_SDF):
        points = _on_mesh(model, int(model.geom_dataid[geom]))
    elif kind == types.mjGEOM_BOX:
        points = _on_triangles(*_box(size))
    elif kind == types.mjGEOM_CAPSULE:
        ball = _ball(np.full(3, size[0]))
        points = np.concatenate([ball + size[1] * sign * np.eye(3)[2] for sign in (-1, 1)])
    elif kind == types.mjGEOM_CYLINDER:
        points = _cylinder(size[0], size[1])
    else:
        points = _ball(size if kind == types.mjGEOM_ELLIPSOID else np.full(3, size[0]))
    extent = float(np.ptp(points, axis=0).max())
    if _SMALLEST_M < extent < _LARGEST_M:
        yield points @ rotation_of(model.geom_quat[geom]).T + model.geom_pos[geom]


def _on_mesh(model: mujoco.MjModel, mesh: int) -> Vector:
    vertex = int(model.mesh_vertadr[mesh])
    face = int(model.mesh_faceadr[mesh])
    vertices = model.mesh_vert[vertex : vertex + int(model.mesh_vertnum[mesh])]
    faces = model.mesh_face[face : face + int(model.mesh_facenum[mesh])]
    return _on_triangles(vertices.astype(np.float64), faces)


def _on_triangles(vertices: Vector, faces: NDArray[np.int32]) -> Vector:
    """Returns vertices, and samples on large triangles."""
    corners = vertices[faces]
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=-1).max(axis=1)
    found = [vertices]
    for step in range(2, int(np.ceil(sides.max(initial=0.0) / SAMPLE_M)) + 1):
        # Triangles with the same number of steps along their longest side.
        mine = corners[np.ceil(sides / SAMPLE_M) == step]
        if len(mine):
            steps = min(step, 64)
            first, second = np.meshgrid(np.arange(steps + 1), np.arange(steps + 1))
            inside = first + second <= steps
            shares = np.stack([first[inside], second[inside]], axis=1) / steps
            weights = np.concatenate([1 - shares.sum(axis=1, keepdims=True), shares], axis=1)
            found.append((weights @ mine).reshape(-1, 3))
    points = np.concatenate(found)
    stride = -(-len(points) // _MOST_SAMPLES)
    return points if stride == 1 else np.concatenate([vertices, points[::stride]])


def _box(half: Vector) -> tuple[Vector, NDArray[np.int32]]:
    signs = np.array(np.meshgrid(*[(-1.0, 1.0)] * 3, indexing="ij")).reshape(3, -1).T
    faces = [
        (0, 1, 3), (0, 3, 2), (4, 6, 7), (4, 7, 5), (0, 4, 5), (0, 5, 1),
        (2, 3, 7), (2, 7, 6), (0, 2, 6), (0, 6, 4), (1, 5, 7), (1, 7, 3),
    ]  # fmt: skip
    return signs * half, np.array(faces, np.int32)


def _ball(radii: Vector) -> Vector:
    along = np.linspace(-1, 1, 17)
    around = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    height, angle = (grid.ravel() for grid in np.meshgrid(along, around))
    wide = np.sqrt(1 - height**2)
    return np.stack([wide * np.cos(angle), wide * np.sin(angle), height], axis=1) * radii


def _cylinder(radius: float, half: float) -> Vector:
    around = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    along = np.linspace(-half, half, max(2, int(np.ceil(2 * half / SAMPLE_M))))
    angle, height = (grid.ravel() for grid in np.meshgrid(around, along))
    # Outside of the circle by the height of an arc between two samples.
    wide = radius / np.cos(np.pi / len(around))
    return np.stack([wide * np.cos(angle), wide * np.sin(angle), height], axis=1)


def _halves(points: Vector) -> tuple[Vector, Vector]:
    """Divides samples at the middle of their extent along the first principal axis."""
    along = (points - points.mean(axis=0)) @ _principal(points)[0]
    low = along < (along.min() + along.max()) / 2
    return points[low], points[~low]


def _principal(points: Vector) -> Matrix:
    """Returns the principal axes (3, 3) of samples as rows, the longest first."""
    centred = points - points.mean(axis=0)
    return np.asarray(np.linalg.eigh(centred.T @ centred)[1].T[::-1])


def _capsule(points: Vector) -> Fitted:
    """Returns the smallest capsule around samples among principal axes and those of the frame."""
    outermost = _outermost(points)
    axes = np.concatenate([_principal(points), np.eye(3)])
    axis = min(axes, key=lambda each: _along(outermost, outermost, each).volume)
    return _along(points, outermost, axis)


def _outermost(points: Vector) -> Vector:
    """Returns the farthest samples in many directions, which decide the shape of a capsule."""
    if len(points) <= _DIRECTIONS:
        return points
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(_DIRECTIONS)  # The points of a Fibonacci lattice.
    height = np.linspace(-1, 1, _DIRECTIONS)
    wide = np.sqrt(1 - height**2)
    directions = np.stack([wide * np.cos(turn), wide * np.sin(turn), height], axis=1)
    columns = np.ascontiguousarray(points.T)
    found = [np.argmax(block @ columns, axis=1) for block in np.array_split(directions, 16)]
    return np.asarray(points[np.unique(np.concatenate(found))])


def _along(points: Vector, outermost: Vector, axis: Vector) -> Fitted:
    """Returns the capsule around samples (N, 3) whose axis has a direction (3,)."""
    across = np.linalg.svd(axis[None])[2][1:]
    flat = outermost @ across.T
    centre = (flat.min(axis=0) + flat.max(axis=0)) / 2
    for step in range(1, _CIRCLE_STEPS):
        farthest = flat[np.argmax(((flat - centre) ** 2).sum(axis=1))]
        centre = centre + (farthest - centre) / (step + 1) * 0.5
    away = np.sqrt(((points @ across.T - centre) ** 2).sum(axis=1))
    radius = float(away.max()) + 1e-6
    height = points @ axis
    cap = np.sqrt(radius**2 - away**2)
    low = float((height + cap).min())
    high = float((height - cap).max())
    if low > high:  # Between these, any point is the centre of a sphere around all samples.
        low = high = (low + high) / 2
    place = centre @ across
    return Fitted(place + low * axis, place + high * axis, radius)
