"""A picture of a robot: surfaces of its links, capsules, joints and gripper frames, at home."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from stringline.datasets.embodiments.capsule_fitting import surface_of
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.embodiment_file import EmbodimentFile, moving_joints
from stringline.datasets.embodiments.model_file import RobotModel
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose

VIEWS = ((20.0, -60.0), (20.0, 30.0), (90.0, -90.0))
"""Elevation and azimuth of the views, degrees."""
AXIS_M = 0.1
_MOST_POINTS = 6000
_AROUND = 24
_COLOURS = ("tab:red", "tab:green", "tab:blue")


def draw_robot(robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment, path: Path) -> None:
    """Writes a PNG of a robot at home, seen from three sides.

    Surfaces are grey points, capsules orange rings, links black, gripper frames red (x), green (y)
    and blue (z), the base frame as well.
    """
    figure = Figure(figsize=(15, 5), layout="constrained")
    surface = _surface(robot, file, embodiment)
    chains = _joints(embodiment)
    here = embodiment.forward_kinematics(embodiment.home)
    everything = np.concatenate([surface, *chains, *(T[None, :3, 3] for T in here.values())])
    middle = (everything.min(axis=0) + everything.max(axis=0)) / 2
    half = max(float(np.ptp(everything, axis=0).max()) / 2, AXIS_M)
    for number, (elevation, azimuth) in enumerate(VIEWS, 1):
        axes = figure.add_subplot(1, len(VIEWS), number, projection="3d")
        axes.view_init(elevation, azimuth)
        axes.scatter(*surface.T, s=0.4, c="0.6", depthshade=False)
        for capsule in embodiment.capsules(embodiment.home):
            for ring in _rings(capsule.start, capsule.end, capsule.radius):
                axes.plot(*ring.T, c="tab:orange", lw=0.6)
        for places in chains:
            axes.plot(*places.T, c="black", marker="o", ms=3, lw=1)
        for T in (np.eye(4), *here.values()):
            for column, colour in enumerate(_COLOURS):
                ends = np.stack([T[:3, 3], T[:3, 3] + AXIS_M * T[:3, column]])
                axes.plot(*ends.T, c=colour, lw=2)
        for name, centre in zip(("xlim", "ylim", "zlim"), middle, strict=True):
            axes.set(**{name: (centre - half, centre + half)})
        axes.set(xlabel="x, m", ylabel="y, m", zlabel="z, m", box_aspect=(1, 1, 1))
    figure.suptitle(f"{embodiment.name} at home: links, capsules, gripper frames")
    figure.savefig(path, dpi=100)


def _surface(robot: RobotModel, file: EmbodimentFile, embodiment: Embodiment) -> Vector:
    """Returns points (N, 3) of the surfaces of all arms at home, in the base frame."""
    found = [np.zeros((0, 3))]
    random = np.random.default_rng(0)
    for arm, part in file.arms.items():
        angles = embodiment.home[embodiment.revolute_joints[arm]]
        names = [robot.model.joint(number).name for number in moving_joints(robot, file, arm)]
        positions = {**file.fixed, **dict(zip(names, angles.tolist(), strict=True))}
        grip = part.gripper
        if grip is not None and grip.joint is not None:
            positions[grip.joint] = grip.open
        data = robot.positions(positions)
        base, T_body_base = robot.frame(part.base, "base frame")
        T_world_base = _pose(data.xpos[base], data.xmat[base]) @ T_body_base
        T_base_world = part.pose.matrix @ inverse(T_world_base)
        for body in range(1, robot.model.nbody):
            points = surface_of(robot, body)
            if len(points) > (most := _MOST_POINTS // robot.model.nbody):
                points = points[random.choice(len(points), most, replace=False)]
            T = T_base_world @ _pose(data.xpos[body], data.xmat[body])
            found.append(points @ T[:3, :3].T + T[:3, 3])
    return np.concatenate(found)


def _pose(position: Vector, rotation: Vector) -> Matrix:
    return pose(position, rotation.reshape(3, 3))


def _joints(embodiment: Embodiment) -> list[Vector]:
    """Returns the places (L, 3) of the root, the joints and the gripper of each arm."""
    found = []
    for chain in embodiment.chains:
        poses = embodiment.link_poses(chain, embodiment.home)
        ends = [*poses, poses[-1] @ chain.T_last_gripper]
        found.append(np.stack([T[:3, 3] for T in ends]))
    return found


def _rings(start: Vector, end: Vector, radius: float) -> list[Vector]:
    """Returns circles (N, 3) around both ends of a capsule, and its outline along two planes."""
    axis = end - start
    length = float(np.linalg.norm(axis))
    along = axis / length if length > 0 else np.array([0.0, 0.0, 1.0])
    across = np.linalg.svd(along[None])[2][1:]
    angle = np.linspace(0, 2 * np.pi, _AROUND)
    circle = radius * (np.cos(angle)[:, None] * across[0] + np.sin(angle)[:, None] * across[1])
    half = np.linspace(-np.pi / 2, np.pi / 2, _AROUND // 2)
    outlines = []
    for side in across:
        cap = np.cos(half)[:, None] * along + np.sin(half)[:, None] * side
        loop = np.concatenate([end + radius * cap, start - radius * cap])
        outlines.append(np.concatenate([loop, loop[:1]]))
    return [start + circle, end + circle, *outlines]
