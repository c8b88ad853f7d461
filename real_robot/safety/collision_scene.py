"""MuJoCo's model of the capsules of arms and of the obstacles around them."""

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from mujoco import mjtGeom, mjtJoint
from numpy.typing import NDArray

from stringline.datasets.embodiments.embodiment import CapsuleMount, Chain, Embodiment
from stringline.datasets.embodiments.transforms import Matrix, quaternion
from stringline.real_robot.safety.cell import Obstacle

Vector = NDArray[np.float64]

ENDS = ("-", "+")
"""After the number of a capsule in the names of the sites at the ends of its axis."""
FINGERS = "fingers:"
"""Before the number of the capsule in the name of a joint that the gripper moves."""
SHORTEST_M = 1e-6
"""Length of an axis; a capsule with a shorter one is a sphere."""
_TYPES: Mapping[str, mjtGeom] = {
    "box": mjtGeom.mjGEOM_BOX,
    "capsule": mjtGeom.mjGEOM_CAPSULE,
    "sphere": mjtGeom.mjGEOM_SPHERE,
    "mesh": mjtGeom.mjGEOM_MESH,
}


def named(name: str, copy: int) -> str:
    """Returns the name of a part of a copy of the arms."""
    return f"{name}#{copy}"


def add_arms(
    spec: mujoco.MjSpec,
    embodiment: Embodiment,
    mounts: Sequence[Sequence[CapsuleMount]],
    points: Sequence[Sequence[tuple[int, Vector]]],
    copy: int,
) -> None:
    """Adds a copy of the kinematic trees of all arms, with their capsules.

    `points` are those of each arm, with their links; they and the ends of axes become sites.
    """
    for chain, of_arm, fixed in zip(embodiment.chains, mounts, points, strict=True):
        bodies = _bodies(spec, chain, copy)
        for number, (link, place) in enumerate(fixed):
            bodies[link + 1].add_site(name=named(f"{chain.arm}/{number}", copy), pos=place)
        for number, mount in enumerate(of_arm):
            body = bodies[mount.link + 1]
            if number in fingers(of_arm):
                body = _moving(body.add_body())
                body.add_joint(
                    name=named(f"{chain.arm}/{FINGERS}{number}", copy),
                    type=mjtJoint.mjJNT_SLIDE,
                    axis=mount.per_opening,
                )
            _add_capsule(body, named(f"{chain.arm}/{number}", copy), mount)
            for side, end in enumerate((mount.start, mount.end)):
                body.add_site(name=named(f"{chain.arm}/{number}{ENDS[side]}", copy), pos=end)


def fingers(mounts: Sequence[CapsuleMount]) -> list[int]:
    """Returns the capsules that the gripper moves."""
    return [number for number, mount in enumerate(mounts) if mount.per_opening.any()]


def _bodies(spec: mujoco.MjSpec, chain: Chain, copy: int) -> list[mujoco.MjsBody]:
    """Adds the root and the links of an arm, and returns them."""
    bodies = [_at(spec.worldbody.add_body(), chain.T_base_root)]
    for link in chain.links:
        body = _moving(_at(bodies[-1].add_body(), link.T_parent_link))
        body.add_joint(
            name=named(f"{chain.arm}/{link.name}", copy), type=mjtJoint.mjJNT_HINGE, axis=link.axis
        )
        bodies.append(body)
    return bodies


def _at(body: mujoco.MjsBody, T_parent_body: Matrix) -> mujoco.MjsBody:
    body.pos = T_parent_body[:3, 3]
    body.quat = quaternion(T_parent_body[:3, :3])
    return body


def _moving(body: mujoco.MjsBody) -> mujoco.MjsBody:
    """Gives a body an inertia, which MuJoCo demands of moving bodies and nothing uses."""
    body.mass = 1.0
    body.inertia = (1.0, 1.0, 1.0)
    body.explicitinertial = True
    return body


def _add_capsule(body: mujoco.MjsBody, name: str, mount: CapsuleMount) -> None:
    short = bool(np.linalg.norm(mount.end - mount.start) < SHORTEST_M)
    shape = {"pos": mount.start} if short else {"fromto": [*mount.start, *mount.end]}
    body.add_geom(
        name=name,
        type=mjtGeom.mjGEOM_SPHERE if short else mjtGeom.mjGEOM_CAPSULE,
        size=(mount.radius, 0, 0),
        contype=0,
        conaffinity=0,
        **shape,
    )


def add_obstacle(spec: mujoco.MjSpec, obstacle: Obstacle) -> None:
    """Adds an obstacle, whose geom has its name."""
    T_base_obstacle = obstacle.T_base_obstacle
    mesh = {}
    if obstacle.file is not None:
        spec.add_mesh(name=obstacle.name, file=str(obstacle.file), scale=[obstacle.scale] * 3)
        mesh = {"meshname": obstacle.name}
    spec.worldbody.add_geom(
        name=obstacle.name,
        type=_TYPES[obstacle.shape],
        size=obstacle.size,
        pos=T_base_obstacle[:3, 3],
        quat=quaternion(T_base_obstacle[:3, :3]),
        contype=0,
        conaffinity=0,
        **mesh,
    )
