"""The cell: what the arms carry, and the obstacles around them.

A limits file describes the cell with its tools, wrist cameras and obstacles. `cell_of` reads it and
checks the units: numbers are in metres, kilograms and degrees, and larger ones are refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import mujoco
import numpy as np

from stringline.datasets.contract.argument_checks import Range, unknown_name
from stringline.datasets.embodiments.embodiment import CapsuleMount, Embodiment
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about

ObstacleShape = Literal["box", "capsule", "sphere", "mesh"]
SHAPES: tuple[ObstacleShape, ...] = get_args(ObstacleShape)
# Radius of a sphere around a RealSense D405 (42 x 42 x 23 mm), and the distance of its middle from
# the front glass, where the frame of the camera is.
_CAMERA_RADIUS_M = 0.032
_CAMERA_MIDDLE_M = -0.0115


@dataclass(frozen=True, eq=False)
class Segment:
    """A capsule in the frame of the gripper: axis from `start` (3,) to `end` (3,), metres."""

    start: tuple[float, float, float]
    end: tuple[float, float, float]
    radius: float


@dataclass(frozen=True, eq=False)
class Tool:
    """A tool on an arm, beside the gripper of the embodiment.

    Attributes:
        mass_kg: Mass.
        capsules: Capsules that contain it, in the frame of the gripper.
    """

    mass_kg: float
    capsules: tuple[Segment, ...]


@dataclass(frozen=True, eq=False)
class Obstacle:
    """An obstacle that stands still.

    Attributes:
        name: Name in messages.
        shape: Shape; a mesh stands for its convex hull.
        size: Half the edges of a box; radius and half the length of the axis of a capsule, along z;
            radius of a sphere. Unused entries are 0. Metres.
        T_base_obstacle: Pose (4, 4) in the base frame.
        file: File of a mesh: STL or OBJ.
        scale: Metres per unit of this file.
    """

    name: str
    shape: ObstacleShape
    size: tuple[float, float, float]
    T_base_obstacle: Matrix
    file: Path | None = None
    scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Cell:
    """Tools, wrist cameras and obstacles.

    Attributes:
        tools: Tool of each arm that has one.
        cameras: Capsule around a wrist camera, by its name; others have the nominal place.
        obstacles: Obstacles.
    """

    tools: Mapping[str, Tool] = field(default_factory=dict)
    cameras: Mapping[str, Segment] = field(default_factory=dict)
    obstacles: tuple[Obstacle, ...] = ()

    def __str__(self) -> str:
        """Returns the tools, measured cameras and obstacles in words, for the operator."""
        tools = [f"tool of {arm} {tool.mass_kg:g} kg" for arm, tool in self.tools.items()]
        cameras = [f"camera {name}" for name in self.cameras]
        obstacles = [f"{one.shape} {one.name}" for one in self.obstacles]
        return ", ".join([*tools, *cameras, *obstacles]) or "no tools and no obstacles"

    def carried(self, embodiment: Embodiment) -> dict[str, list[CapsuleMount]]:
        """Returns the capsules of the tool and the wrist cameras of each arm."""
        found: dict[str, list[CapsuleMount]] = {arm: [] for arm in embodiment.arms}
        for mount in embodiment.cameras:
            if mount.parent in found:
                nominal = _around_camera(mount.T_parent_camera)
                capsule = self.cameras.get(mount.name, nominal)
                found[mount.parent].append(_mounted(capsule, embodiment, mount.parent))
        for arm, tool in self.tools.items():
            found[arm] += [_mounted(capsule, embodiment, arm) for capsule in tool.capsules]
        return found


def _around_camera(T_gripper_camera: Matrix) -> Segment:
    x, y, z = (T_gripper_camera @ (0.0, 0.0, _CAMERA_MIDDLE_M, 1.0))[:3].tolist()
    return Segment((x, y, z), (x, y, z), _CAMERA_RADIUS_M)


def _mounted(capsule: Segment, embodiment: Embodiment, arm: str) -> CapsuleMount:
    chain = embodiment.chains[embodiment.arms.index(arm)]
    start, end = ((chain.T_last_gripper @ (*end, 1.0))[:3] for end in (capsule.start, capsule.end))
    return CapsuleMount.of(len(chain.links) - 1, start, end, capsule.radius)


NO_OBSTACLES = Cell()
"""A cell with the nominal wrist cameras, and nothing around the arms but table and walls."""


# Larger numbers are millimetres, grams or degrees in a file that forgot its units.
_PLACE_M = Range(least=-10, most=10)
_SIZE_M = Range(above=0, most=10)
_RADIUS_M = Range(above=0, most=1)
_MASS_KG = Range(above=0, most=30)
_ANGLE_DEG = Range(least=-360, most=360)
_SCALE = Range(above=0, most=1000)
# Entries of an obstacle beside shape, position and rpy_deg.
_NEEDED: Mapping[ObstacleShape, tuple[str, ...]] = {
    "box": ("size",),
    "capsule": ("radius", "length"),
    "sphere": ("radius",),
    "mesh": ("file",),
}
_OPTIONAL: Mapping[ObstacleShape, tuple[str, ...]] = {"mesh": ("scale",)}
_CAPSULE = ("start", "end", "radius")


def cell_of(embodiment: Embodiment, plain: object) -> Cell:
    """Reads the cell of an embodiment from plain values.

    Args:
        embodiment: Names its arms and wrist cameras.
        plain: A mapping with `tools`, `cameras` and `obstacles`, each optional; docs/robots.md
            describes them.

    Raises:
        ValueError: A name is unknown, an entry is missing, a number is out of range, or a mesh
            cannot be read.
    """
    parts = _entries("cell", plain, optional=("tools", "cameras", "obstacles"))
    wrists = [mount.name for mount in embodiment.cameras if mount.parent in embodiment.arms]
    tools = _named("cell.tools", parts.get("tools"), "arm", embodiment.arms)
    cameras = _named("cell.cameras", parts.get("cameras"), "wrist camera", wrists)
    obstacles = _named("cell.obstacles", parts.get("obstacles"))
    return Cell(
        {arm: _tool(f"cell.tools.{arm}", tool) for arm, tool in tools.items()},
        {name: _segment(f"cell.cameras.{name}", each) for name, each in cameras.items()},
        tuple(_obstacle(name, each) for name, each in obstacles.items()),
    )


def _named(
    where: str, plain: object, kind: str = "", allowed: Sequence[str] = ()
) -> dict[str, object]:
    """Returns a mapping from names; empty without one."""
    found = {} if plain is None else plain
    if not isinstance(found, Mapping):
        raise ValueError(f"{where} is {plain!r}; allowed: entries by name.")
    for name in found:
        if kind and name not in allowed:
            raise unknown_name(f"{kind} in {where}", str(name), allowed)
    return {str(name): each for name, each in found.items()}


def _entries(
    where: str, plain: object, needed: Sequence[str] = (), optional: Sequence[str] = ()
) -> dict[str, Any]:
    names = [*needed, *optional]
    if not isinstance(plain, Mapping):
        raise ValueError(f"{where} is {plain!r}; allowed: {', '.join(names)}.")
    for name in plain:
        if name not in names:
            raise unknown_name(f"entry of {where}", str(name), names)
    _check_complete(where, plain, needed)
    return {str(name): value for name, value in plain.items()}


def _check_complete(where: str, plain: Mapping[str, Any], needed: Sequence[str]) -> None:
    for name in needed:
        if plain.get(name) is None:
            raise ValueError(f"{where} lacks {name}; needed: {', '.join(needed)}.")


def _three(where: str, plain: object, allowed: Range) -> tuple[float, float, float]:
    if not isinstance(plain, Sequence) or isinstance(plain, str) or len(plain) != 3:
        raise ValueError(f"{where} is {plain!r}; allowed: three numbers.")
    for number in plain:
        allowed.check(**{where: number})
    return (float(plain[0]), float(plain[1]), float(plain[2]))


def _segment(where: str, plain: object) -> Segment:
    found = _entries(where, plain, needed=_CAPSULE)
    _RADIUS_M.check(**{f"{where}.radius": found["radius"]})
    start, end = (_three(f"{where}.{name}", found[name], _PLACE_M) for name in ("start", "end"))
    return Segment(start, end, float(found["radius"]))


def _tool(where: str, plain: object) -> Tool:
    found = _entries(where, plain, needed=("mass_kg", "capsules"))
    _MASS_KG.check(**{f"{where}.mass_kg": found["mass_kg"]})
    capsules = found["capsules"]
    if not isinstance(capsules, Sequence) or isinstance(capsules, str) or not capsules:
        raise ValueError(
            f"{where}.capsules is {capsules!r}; allowed: a list of one or more capsules with "
            f"{', '.join(_CAPSULE)}."
        )
    return Tool(
        float(found["mass_kg"]),
        tuple(_segment(f"{where}.capsules[{i}]", each) for i, each in enumerate(capsules)),
    )


def _obstacle(name: str, plain: object) -> Obstacle:
    where = f"cell.obstacles.{name}"
    if "/" in name or not name:
        raise ValueError(f"The obstacle {name!r} of the cell needs a name without slashes.")
    shape = plain.get("shape") if isinstance(plain, Mapping) else None
    if shape not in SHAPES:
        raise unknown_name(f"{where}.shape", str(shape), SHAPES)
    found = _entries(
        where,
        plain,
        needed=("shape", "position", *_NEEDED[shape]),
        optional=("rpy_deg", *_OPTIONAL.get(shape, ())),
    )
    for entry, allowed in (("radius", _RADIUS_M), ("length", _SIZE_M), ("scale", _SCALE)):
        if entry in found:
            allowed.check(**{f"{where}.{entry}": found[entry]})
    position = _three(f"{where}.position", found["position"], _PLACE_M)
    angles = _three(f"{where}.rpy_deg", found.get("rpy_deg", (0, 0, 0)), _ANGLE_DEG)
    obstacle = Obstacle(
        name,
        shape,
        _size(where, shape, found),
        pose(position, _turned(angles)),
        Path(found["file"]) if "file" in found else None,
        float(found.get("scale", 1.0)),
    )
    if obstacle.file is not None:
        _check_mesh(where, obstacle.file, obstacle.scale)
    return obstacle


def _size(where: str, shape: ObstacleShape, found: Mapping[str, Any]) -> tuple[float, float, float]:
    match shape:
        case "box":
            x, y, z = _three(f"{where}.size", found["size"], _SIZE_M)
            return x / 2, y / 2, z / 2
        case "capsule":
            return float(found["radius"]), float(found["length"]) / 2, 0.0
        case "sphere":
            return float(found["radius"]), 0.0, 0.0
        case "mesh":
            return 0.0, 0.0, 0.0


def _turned(rpy_deg: Sequence[float]) -> Matrix:
    """Returns the rotation (3, 3) about the fixed axes x, then y, then z."""
    x, y, z = (
        rotation_about(axis, np.radians(angle))
        for axis, angle in zip(np.eye(3), rpy_deg, strict=True)
    )
    return np.asarray(z @ y @ x)


def _check_mesh(where: str, file: Path, scale: float) -> None:
    """Checks that MuJoCo reads a mesh whose extent is that of an obstacle in metres."""
    spec = mujoco.MjSpec()
    try:
        spec.add_mesh(name="mesh", file=str(file), scale=[scale] * 3)
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="mesh")
        extent = float(2 * spec.compile().geom_aabb[0, 3:].max())
    except (ValueError, mujoco.FatalError) as error:
        raise ValueError(
            f"{where}.file {file} cannot be read: {str(error).split(chr(10))[0]}."
        ) from error
    if extent not in _SIZE_M:
        raise ValueError(
            f"{where}: the mesh is {extent:g} m large; allowed: {_SIZE_M}. `scale` is the number "
            f"of metres per unit of the file."
        )
