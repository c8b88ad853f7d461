"""The appearance of the arms: our primitives or published meshes. Both move in the same way.

The meshes are those of MuJoCo Menagerie (`datasets/embodiments/embodiment_source.py`); collisions
and motion stay ours.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import mujoco
import numpy as np
from dm_control import mjcf

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment_source import menagerie_file
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.datasets.embodiments.iiwa14_mjcf import STAND
from stringline.datasets.embodiments.mjcf_parts import DRAWN, HIDDEN
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, quaternion
from stringline.sim.robots.arm_appearance import RobotModel, check_robot_model
from stringline.sim.robots.workcells import Robot

# MuJoCo's colour for geoms without a colour of their own, which have that of their material.
PLAIN = (0.5, 0.5, 0.5, 1.0)
MARK = "drawn mesh"
SPECK_M = 1e-3

Numbers = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Visual:
    """A mesh that is drawn and does not collide.

    Attributes:
        mesh: Name of the mesh, without slashes.
        scale: Scale along its axes.
        refpos: Origin in the file's coordinates, metres.
        refquat: Rotation in the file's coordinates, wxyz.
        colour: Red, green, blue and opacity, 0 to 1.
        T_body_mesh: (4, 4), its pose in its body.
    """

    mesh: str
    file: Path
    scale: Numbers
    refpos: Numbers
    refquat: Numbers
    colour: Numbers
    T_body_mesh: Matrix


@dataclass(frozen=True, eq=False)
class PublishedModel:
    """A model that others published.

    Attributes:
        skeleton: The model compiled without meshes, with all bodies and joints.
        visuals: Meshes by the name of their body, without textures.
    """

    path: Path
    skeleton: mujoco.MjModel
    visuals: Mapping[str, tuple[Visual, ...]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a model; the files of its meshes must exist and are not read.

        Raises:
            ValueError: The model cannot be read, or a mesh is missing.
        """
        try:
            spec = mujoco.MjSpec.from_file(str(path))
            drawn = _take_meshes(spec)
            meshes = {
                mesh.name or Path(mesh.file).stem: _described(mesh, path.parent / spec.meshdir)
                for mesh in spec.meshes
            }
            for mesh in list(spec.meshes):
                spec.delete(mesh)
            skeleton = spec.compile()
        except ValueError as error:
            raise ValueError(
                f"{path} cannot be read as a MuJoCo model: {' '.join(str(error).split())}"
            ) from error
        visuals: dict[str, tuple[Visual, ...]] = {}
        for number, (body, mesh, colour) in enumerate(drawn):
            described = meshes[mesh]
            if not described["file"].is_file():
                raise ValueError(
                    f"{path} needs the mesh {described['file']}, which does not exist."
                )
            geom = skeleton.geom(f"{MARK} {number}")
            visual = Visual(
                mesh.replace("/", "_"),
                **described,
                colour=colour,
                T_body_mesh=_placed(geom.pos, geom.quat),
            )
            visuals[body] = (*visuals.get(body, ()), visual)
        return cls(path, skeleton, visuals)


def _take_meshes(spec: Any) -> list[tuple[str, str, Numbers]]:
    """Replaces all mesh geoms by small spheres in their places.

    Returns body, mesh and colour of the visible meshes that do not collide, in the order of the
    numbers in the names of their spheres.
    """
    drawn: list[tuple[str, str, Numbers]] = []
    for body in spec.bodies:
        for geom in body.geoms:
            if not geom.meshname:
                continue
            is_mesh = geom.type == mujoco.mjtGeom.mjGEOM_MESH
            if is_mesh and not geom.contype and not geom.conaffinity:
                geom.name = f"{MARK} {len(drawn)}"
                drawn.append((body.name, geom.meshname, _colour(spec, geom)))
            geom.type = mujoco.mjtGeom.mjGEOM_SPHERE
            geom.size = [SPECK_M] * 3
            geom.meshname = ""
    return drawn


def _colour(spec: Any, geom: Any) -> Numbers:
    bare = geom.material and np.allclose(geom.rgba, PLAIN)
    rgba = spec.material(geom.material).rgba if bare else geom.rgba
    return tuple(float(value) for value in rgba)


def _described(mesh: Any, folder: Path) -> dict[str, Any]:
    frame = {
        key: tuple(float(value) for value in getattr(mesh, key))
        for key in ("scale", "refpos", "refquat")
    }
    return {"file": folder / mesh.file, **frame}


def _placed(position: Any, quat: Any) -> Matrix:
    rotation = np.empty(9)
    mujoco.mju_quat2Mat(rotation, quat)
    return pose(position, rotation.reshape(3, 3))


POSES = 8  # Number of drawn poses in which the bodies are compared.
NEAR_M = 0.001
NEAR_DEG = 0.1


@dataclass(frozen=True)
class Counterpart:
    """A model of Menagerie, and its names for the parts of one of our arms.

    In all names `{arm}` stands for the name of the arm.

    Attributes:
        bodies: Names of bodies, ours to theirs; the first is the foot.
        joints: Names of joints, ours to theirs.
        own_frames: Our bodies whose frames differ from theirs.
    """

    folder: str
    file: str
    bodies: Mapping[str, str]
    joints: Mapping[str, str]
    own_frames: tuple[str, ...] = ()

    def of(self, arm: str) -> "Counterpart":
        """Returns the counterpart of one arm, by its name."""
        bodies, joints = (
            {ours.format(arm=arm): theirs.format(arm=arm) for ours, theirs in names.items()}
            for names in (self.bodies, self.joints)
        )
        own_frames = tuple(name.format(arm=arm) for name in self.own_frames)
        return Counterpart(self.folder, self.file, bodies, joints, own_frames)


ALOHA_LINKS = (
    "base",
    "shoulder",
    "upper_arm",
    "upper_forearm",
    "lower_forearm",
    "wrist",
    "gripper",
)
ALOHA_JOINTS = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate")
# Its left finger is the one on the right, seen along the gripper.
FINGERS = {"left": "right", "right": "left"}
ALOHA_2 = Counterpart(
    "aloha",
    "aloha.xml",
    {
        **{f"{{arm}}/{name}_link": f"{{arm}}/{name}_link" for name in ALOHA_LINKS},
        "{arm}/gripper_base": "{arm}/gripper_base",
        **{
            f"{{arm}}/{ours}_finger_link": f"{{arm}}/{theirs}_finger_link"
            for ours, theirs in FINGERS.items()
        },
    },
    {
        **{f"{{arm}}/{name}": f"{{arm}}/{name}" for name in ALOHA_JOINTS},
        **{
            f"{{arm}}/{ours}_finger": f"{{arm}}/{theirs}_finger" for ours, theirs in FINGERS.items()
        },
    },
    own_frames=tuple(f"{{arm}}/{finger}_finger_link" for finger in FINGERS),
)
IIWA_14 = Counterpart(
    "kuka_iiwa_14",
    "iiwa14.xml",
    {
        "{arm}/base_link": "base",
        **{f"{{arm}}/link_{number}": f"link{number}" for number in range(1, 8)},
    },
    {f"{{arm}}/a{number}": f"joint{number}" for number in range(1, 8)},
)
COUNTERPARTS: Mapping[str, Counterpart] = {
    ALOHA.name: ALOHA_2,
    IIWA14.name: IIWA_14,
    IIWA14_BIMANUAL.name: IIWA_14,
}


def use_meshes(robot: Robot) -> None:
    """Replaces the visible shapes of a robot by the meshes of Menagerie, before it is compiled.

    Parts that Menagerie does not have, such as the KUKA's gripper and stand, keep their shapes.

    Raises:
        ValueError: Menagerie has no such robot; its files are missing or cannot be read; or its
            arms differ from ours.
    """
    name = robot.embodiment.name
    if name not in COUNTERPARTS:
        others = ", ".join(COUNTERPARTS)
        raise ValueError(
            f"robot.model=menagerie has no meshes for the embodiment {name!r}; allowed: {others}. "
            "Omit robot.model."
        )
    counterpart = COUNTERPARTS[name]
    published = PublishedModel.read(menagerie_file(counterpart.folder, counterpart.file))
    root = robot.mjcf_model
    ours = mujoco.MjModel.from_xml_string(root.to_xml_string(), root.get_assets())
    for arm in robot.embodiment.arms:
        its = counterpart.of(arm)
        for body, T_ours_theirs in _places(ours, published, its).items():
            visuals = published.visuals.get(its.bodies[body], ())
            _draw_meshes(root.find("body", body), T_ours_theirs, visuals)


def _places(
    ours: mujoco.MjModel, published: PublishedModel, counterpart: Counterpart
) -> dict[str, Matrix]:
    """Returns the poses (4, 4) of their bodies in ours, by our names, with the feet aligned."""
    found = list(_poses(ours, published, counterpart))
    for places in found:
        for name, T in places.items():
            expected = found[0][name] if name in counterpart.own_frames else pose()
            metres, degrees = _apart(expected, T)
            if metres > NEAR_M or degrees > NEAR_DEG:
                raise ValueError(
                    f"{published.path} describes other arms than ours: the pose of its body "
                    f"{counterpart.bodies[name]!r} differs from our {name!r} by "
                    f"{1000 * metres:.1f} mm and {degrees:.1f} degrees; allowed: "
                    f"{1000 * NEAR_M:g} mm and {NEAR_DEG:g} degrees."
                )
    return found[0]


def _poses(
    ours: mujoco.MjModel, published: PublishedModel, counterpart: Counterpart
) -> Iterator[dict[str, Matrix]]:
    """Yields the poses of their bodies in ours, for drawn joints."""
    rng = np.random.default_rng(0)
    theirs = published.skeleton
    bodies = counterpart.bodies
    data = (mujoco.MjData(ours), mujoco.MjData(theirs))
    known = {
        "body": (bodies, [theirs.body(number).name for number in range(theirs.nbody)]),
        "joint": (counterpart.joints, [theirs.joint(n).name for n in range(theirs.njnt)]),
    }
    for kind, (wanted, names) in known.items():
        for name in wanted.values():
            if name not in names:
                raise unknown_name(f"{kind} in {published.path}", name, list(filter(None, names)))
    foot = next(iter(bodies))
    for _ in range(POSES):
        for mine, other in counterpart.joints.items():
            q = rng.uniform(*ours.joint(mine).range)
            data[0].joint(mine).qpos = q
            data[1].joint(other).qpos = q
        mujoco.mj_kinematics(ours, data[0])
        mujoco.mj_kinematics(theirs, data[1])
        T_ours = {name: _pose(data[0], name) for name in bodies}
        T_theirs = {name: _pose(data[1], other) for name, other in bodies.items()}
        T_here_there = T_ours[foot] @ inverse(T_theirs[foot])
        yield {name: inverse(T_ours[name]) @ T_here_there @ T_theirs[name] for name in bodies}


def _pose(data: mujoco.MjData, body: str) -> Matrix:
    found = data.body(body)
    return pose(found.xpos, found.xmat.reshape(3, 3))


def _apart(a: Matrix, b: Matrix) -> tuple[float, float]:
    """Returns the distance of two poses in metres and degrees."""
    turn = a[:3, :3].T @ b[:3, :3]
    skew = turn - turn.T
    sine = np.linalg.norm([skew[2, 1], skew[0, 2], skew[1, 0]]) / 2
    degrees = np.degrees(np.arctan2(sine, (np.trace(turn) - 1) / 2))
    return float(np.linalg.norm(a[:3, 3] - b[:3, 3])), float(degrees)


def _draw_meshes(body: mjcf.Element, T_ours_theirs: Matrix, visuals: tuple[Visual, ...]) -> None:
    """Draws meshes in place of a body's own shapes, which still collide."""
    for shape in body.geom:
        if shape.group == DRAWN and shape.name != STAND:
            shape.group = HIDDEN
    for visual in visuals:
        T = T_ours_theirs @ visual.T_body_mesh
        drawn = {"mass": 0, "contype": 0, "conaffinity": 0, "group": DRAWN, "rgba": visual.colour}
        place = {"pos": T[:3, 3], "quat": quaternion(T[:3, :3])}
        body.add("geom", type="mesh", mesh=_mesh(body.root, visual), **place, **drawn)


def _mesh(root: mjcf.RootElement, visual: Visual) -> mjcf.Element:
    """Returns the mesh of a visual, and adds it to the model on first use."""
    name = f"menagerie_{visual.mesh}"
    found = root.find("mesh", name)
    if found is not None:
        return found
    frame = {"scale": visual.scale, "refpos": visual.refpos, "refquat": visual.refquat}
    # Its inertia does not matter; that of a shell is defined for open surfaces, too.
    return root.asset.add("mesh", name=name, file=str(visual.file), inertia="shell", **frame)


def set_robot_model(robot: Robot, model: RobotModel) -> None:
    """Draws primitive arms by a robot model, before they are compiled; collisions and motion stay.

    Raises:
        ValueError: There is no such model, or none of these arms; or its files are missing, or
            describe other arms.
    """
    check_robot_model(model)
    if model == "menagerie":
        use_meshes(robot)
