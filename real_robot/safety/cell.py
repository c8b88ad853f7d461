"""The cell: what the arms carry, and the obstacles around them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from stringline.datasets.embodiments.embodiment import CapsuleMount, Embodiment
from stringline.datasets.embodiments.transforms import Matrix

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
