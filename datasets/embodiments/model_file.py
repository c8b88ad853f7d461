"""Robot models in URDF or MJCF files, compiled by MuJoCo for kinematics; meshes may be missing.

MuJoCo reads meshes in STL, OBJ and its own format. A mesh that does not exist, or has another
format, is replaced by nothing: its link keeps its kinematics, and loses its shape. Textures are not
read.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np

from stringline.datasets.contract.argument_checks import printable, unknown_name
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_of

MESH_FORMATS = (".stl", ".obj", ".msh")
ROOTS = ("robot", "mujoco")
LARGEST_MODEL_BYTES = 64 * 2**20
WORLD = "world"
_LFS = b"version https://git-lfs"
_NO_SHAPE_M = 1e-6  # Radius of the sphere in place of a mesh that cannot be read.
# In place of the mass of links without inertia, which kinematics do not need.
_LEAST_MASS = 1e-3
_LEAST_INERTIA = 1e-6


@dataclass(frozen=True)
class Follower:
    """A joint that follows another one: its position is offset + factor * the other's."""

    leader: str
    factor: float
    offset: float = 0.0


@dataclass(frozen=True, eq=False)
class RobotModel:
    """A compiled robot model.

    Attributes:
        path: The file.
        model: The model; bodies of a URDF are its links.
        spec: The elements of which it was compiled; copy it before a change.
        missing: Meshes that were left out, with the reason.
        speeds: Speed limits of joints, rad/s or m/s, as far as the file has them.
        followers: Joints that follow others, by name.
        urdf: Whether the file is a URDF.
        fixed_joints: Names of the joints of a URDF that do not move.
    """

    path: Path
    model: mujoco.MjModel
    spec: mujoco.MjSpec
    missing: Mapping[str, str]
    speeds: Mapping[str, float]
    followers: Mapping[str, Follower]
    urdf: bool
    fixed_joints: frozenset[str] = frozenset()

    @cached_property
    def joints(self) -> Mapping[str, int]:
        """Numbers of the joints by name."""
        return {self.model.joint(number).name: number for number in range(self.model.njnt)}

    @cached_property
    def frames(self) -> Mapping[str, tuple[int, Matrix]]:
        """Body and pose (4, 4) in the body of each named frame: bodies, and sites of other names.

        The frame `world` is that of the whole model.
        """
        model = self.model
        found = {model.body(number).name: (number, pose()) for number in range(model.nbody)}
        for number in range(model.nsite):
            site = model.site(number)
            if site.name and site.name not in found:
                T_body_site = pose(site.pos, rotation_of(site.quat))
                found[site.name] = (int(site.bodyid[0]), T_body_site)
        return {name: frame for name, frame in found.items() if name}

    def frame(self, name: str, purpose: str) -> tuple[int, Matrix]:
        """Returns the body of a frame, and its pose (4, 4) in this body.

        Raises:
            ValueError: The model has no such frame.
        """
        if name not in self.frames:
            raise ValueError(f"{self.path.name}: {unknown_name(purpose, name, self.frames)}")
        return self.frames[name]

    def joint(self, name: str, purpose: str = "joint") -> int:
        """Returns the number of a joint.

        Raises:
            ValueError: The model has no such joint.
        """
        if name not in self.joints:
            problem = unknown_name(purpose, name, self.joints)
            raise ValueError(f"{self.path.name}: {problem}{self._other_part(name)}")
        return self.joints[name]

    def _other_part(self, name: str) -> str:
        """Returns in words what has a name that no joint has; empty if nothing has it."""
        model = self.model
        for number in range(model.nu):
            joint = model.actuator_trntype[number] == mujoco.mjtTrn.mjTRN_JOINT
            if model.actuator(number).name == name and joint:
                driven = model.joint(int(model.actuator_trnid[number, 0])).name
                return f" {name!r} is an actuator, of the joint {driven!r}."
        if name in self.fixed_joints:
            return f" {name!r} is a fixed joint, which does not move; leave it out."
        return f" {name!r} is a frame, which has no joint." if name in self.frames else ""

    def joints_of(self, body: int) -> list[int]:
        """Returns the numbers of the joints between a body and its parent, in their order."""
        first = int(self.model.body_jntadr[body])
        return list(range(first, first + int(self.model.body_jntnum[body]))) if first >= 0 else []

    def way(self, start: int, end: int) -> list[int]:
        """Returns the bodies after `start` up to `end`, which is `start` or below it.

        Raises:
            ValueError: The body is elsewhere.
        """
        bodies: list[int] = []
        body = end
        while body != start:
            if body == 0:
                names = (self.model.body(number).name for number in (end, start))
                raise ValueError(
                    "{}: the link {!r} does not hang on {!r}, which must be the base of the "
                    "arm.".format(self.path.name, *names)
                )
            bodies.append(body)
            body = int(self.model.body_parentid[body])
        return bodies[::-1]

    def positions(self, given: Mapping[str, float]) -> mujoco.MjData:
        """Returns the poses of all bodies at joint positions, with those that follow them.

        Other joints have the positions of the file. Positions are in rad or m.
        """
        data = mujoco.MjData(self.model)
        values = dict(given)
        for _ in self.followers:  # One of a pair may be given, and followers may have followers.
            for name, follower in self.followers.items():
                leader = follower.leader
                if leader in values and name not in values:
                    values[name] = follower.offset + follower.factor * values[leader]
                elif name in values and leader not in values and follower.factor:
                    values[leader] = (values[name] - follower.offset) / follower.factor
        for name, value in values.items():
            data.qpos[self.model.jnt_qposadr[self.joint(name)]] = value
        mujoco.mj_kinematics(self.model, data)
        return data


def read_model(path: Path) -> RobotModel:
    """Reads a URDF or MJCF file.

    Raises:
        ValueError: The file does not exist, is neither URDF nor MJCF, or cannot be compiled. The
            message says what to do.
    """
    root = _parsed(path)
    urdf = root.tag == "robot"
    joints = [each for each in root.findall("joint") if each.get("type")] if urdf else []
    if urdf:
        _check_names(path, root, joints)
        _check_tree(path, joints)
    facts = _speeds(path, joints)
    try:
        # MuJoCo tells the format of a file by its suffix; includes of MJCF need the folder.
        text = path.read_text("utf-8", "replace") if urdf else ""
        spec = mujoco.MjSpec.from_string(text) if urdf else mujoco.MjSpec.from_file(str(path))
        missing = _prepare(spec, path, urdf=urdf)
        model = spec.compile()
    except (ValueError, RuntimeError) as error:
        words = printable(" ".join(str(error).split()))
        raise ValueError(f"MuJoCo cannot compile the robot model {path}: {words}") from error
    _check_ranges(path, model)
    fixed = frozenset(each.get("name", "") for each in joints if each.get("type") == "fixed")
    return RobotModel(path, model, spec, missing, facts, _followers(model), urdf, fixed)


def _parsed(path: Path) -> ElementTree.Element:
    if not path.is_file():
        near = sorted(file.name for file in path.parent.glob("*") if file.suffix == path.suffix)
        raise ValueError(
            f"There is no robot model {path}. Files beside it: {', '.join(near[:8]) or 'none'}."
        )
    if (size := path.stat().st_size) > LARGEST_MODEL_BYTES:
        raise ValueError(
            f"The robot model {path} has {size} bytes; allowed: {LARGEST_MODEL_BYTES}."
        )
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except ElementTree.ParseError as error:
        raise ValueError(
            f"{path} is not a robot model: {error}. Allowed: URDF (<robot>) and MJCF (<mujoco>)."
        ) from error
    if root.tag not in ROOTS:
        raise ValueError(
            f"{path} is not a robot model: its first element is <{printable(root.tag)}>; allowed: "
            "<robot> (URDF) and <mujoco> (MJCF). Convert it, for example SDF by `sdf2urdf`."
        )
    if any("xacro" in element.tag for element in root.iter()):
        raise ValueError(
            f"{path} is a template of xacro; allowed: URDF. Run `xacro {path.name} > arm.urdf`."
        )
    return root


_TYPES = ("revolute", "continuous", "prismatic", "fixed", "floating", "planar")


def _check_names(
    path: Path, root: ElementTree.Element, joints: Sequence[ElementTree.Element]
) -> None:
    """Checks the names, types and references of a URDF, which MuJoCo does not tell clearly."""
    for kind, elements in (("joint", joints), ("link", root.findall("link"))):
        names = Counter(element.get("name", "") for element in elements)
        for name, count in names.items():
            if count > 1:
                raise ValueError(
                    f"{path}: the {kind} {name!r} occurs {count} times; allowed: once. Rename one."
                )
    links = {element.get("name", "") for element in root.findall("link")}
    moving = {each.get("name", "") for each in joints if each.get("type") != "fixed"}
    for joint in joints:
        name = joint.get("name", "")
        if joint.get("type") not in _TYPES:
            problem = unknown_name("type of joint", joint.get("type", ""), _TYPES)
            raise ValueError(f"{path}, joint {name!r}: {problem}")
        for end in ("parent", "child"):
            link = _link(joint, end)
            if link not in links:
                raise ValueError(
                    f"{path}, joint {name!r}: {unknown_name(f'{end} link', link, links)}"
                )
        mimic = joint.find("mimic")
        leader = None if mimic is None else mimic.get("joint", "")
        if leader is not None and leader not in moving - {name}:
            problem = unknown_name("joint that moves, to mimic,", leader, moving - {name})
            raise ValueError(f"{path}, joint {name!r}: {problem}")


def _check_tree(path: Path, joints: Sequence[ElementTree.Element]) -> None:
    """Checks that the joints of a URDF make a tree of the links."""
    above: dict[str, tuple[str, str]] = {}
    for joint in joints:
        name = joint.get("name", "")
        parent, child = (_link(joint, end) for end in ("parent", "child"))
        if child in above:
            raise ValueError(
                f"{path}: the link {child!r} is the child of the joints {above[child][0]!r} and "
                f"{name!r}; allowed: one joint, without loops. Remove the joint that closes a loop."
            )
        above[child] = name, parent
    for start in above:
        way: list[str] = []
        link = start
        while link in above:
            joint_name, link = above[link]
            if joint_name in way:
                raise ValueError(
                    f"{path}: the joints {', '.join(way)} make a loop; allowed: a tree of links. "
                    "Correct the parent of one."
                )
            way.append(joint_name)


def _link(joint: ElementTree.Element, end: str) -> str:
    found = joint.find(end)
    return "" if found is None else found.get("link", "")


def _speeds(path: Path, joints: Sequence[ElementTree.Element]) -> dict[str, float]:
    """Returns the speed limits of the joints of a URDF, and checks their limits."""
    speeds = {}
    for joint in joints:
        name = joint.get("name", "")
        limit = joint.find("limit")
        if limit is None:
            continue
        low, high, speed = (
            _number(path, name, key, limit.get(key, "0")) for key in ("lower", "upper", "velocity")
        )
        if joint.get("type") in ("revolute", "prismatic"):
            _check_range(path, name, low, high)
        if speed > 0:
            speeds[name] = speed
    return speeds


def _check_range(path: Path, joint: str, low: float, high: float) -> None:
    if low > high:
        raise ValueError(
            f"{path}: the limits of the joint {joint!r} are {low:g} to {high:g}; allowed: lower "
            "below upper. Exchange them."
        )


def _check_ranges(path: Path, model: mujoco.MjModel) -> None:
    """Checks the limits of joints; MuJoCo takes exchanged ones for none."""
    for number in range(model.njnt):
        low, high = (float(value) for value in model.jnt_range[number])
        _check_range(path, model.joint(number).name, low, high)


def _number(path: Path, joint: str, key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ValueError(
            f"{path}: {key} of the joint {joint!r} is {printable(text)!r}; allowed: a number."
        )
    return value


def _prepare(spec: mujoco.MjSpec, path: Path, *, urdf: bool) -> dict[str, str]:
    """Keeps all links, and leaves out meshes and textures that cannot be read.

    Returns:
        The meshes that were left out, with the reason.
    """
    spec.compiler.fusestatic = False
    spec.compiler.discardvisual = False
    spec.compiler.balanceinertia = True
    spec.compiler.boundmass = _LEAST_MASS
    spec.compiler.boundinertia = _LEAST_INERTIA
    spec.strippath = False
    folder = path.resolve().parent
    meshes = folder if urdf else folder / (spec.compiler.meshdir or spec.meshdir)
    missing: dict[str, str] = {}
    unread = set()
    for mesh in list(spec.meshes):
        if not mesh.file:
            continue
        file = _resolved(mesh.file, folder) if urdf else meshes / mesh.file
        reason = _unreadable(file)
        if reason:
            missing[mesh.file] = reason
            unread.add(mesh.name or Path(mesh.file).stem)
        else:
            mesh.file = str(file)
    for geom in spec.geoms:
        if geom.meshname in unread:
            geom.type = mujoco.mjtGeom.mjGEOM_SPHERE
            geom.meshname = ""
            geom.size = [_NO_SHAPE_M, 0, 0]
            geom.fromto = np.full(6, np.nan)
    for mesh in list(spec.meshes):
        if (mesh.name or Path(mesh.file).stem) in unread:
            spec.delete(mesh)
    for material in spec.materials:
        material.textures = ["" for _ in material.textures]
    for skin in list(spec.skins):
        spec.delete(skin)
    for texture in list(spec.textures):
        spec.delete(texture)
    return missing


def _unreadable(file: Path | None) -> str:
    """Returns why a mesh cannot be read; empty if it can."""
    if file is None or not file.is_file():
        return "does not exist"
    if file.suffix.lower() not in MESH_FORMATS:
        return f"is {file.suffix or 'without suffix'}; MuJoCo reads {', '.join(MESH_FORMATS)}"
    with file.open("rb") as stream:
        head = stream.read(len(_LFS))
    if not head:
        return "is empty"
    return "is a pointer of Git LFS; run `git lfs pull`" if head == _LFS else ""


def _resolved(name: str, folder: Path) -> Path | None:
    """Returns the file of a mesh of a URDF in a folder; None means its package was not found."""
    if name.startswith("file://"):
        return Path(name.removeprefix("file://"))
    if not name.startswith("package://"):
        return folder / name
    package, _, rest = name.removeprefix("package://").partition("/")
    above = [folder, *folder.parents]
    listed = os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)
    prefixes = os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)
    roots = [
        *(place for place in above if place.name == package),
        *(place / package for place in above),
        *(Path(place) / package for place in listed if place),
        *(Path(place) / "share" / package for place in prefixes if place),
        *(place for place in above if (place / "package.xml").is_file()),
    ]
    return next((root / rest for root in roots if (root / rest).is_file()), None)


def _followers(model: mujoco.MjModel) -> dict[str, Follower]:
    """Returns the joints that follow another one linearly: mimic joints, and coupled ones."""
    found = {}
    for number in range(model.neq):
        if model.eq_type[number] != mujoco.mjtEq.mjEQ_JOINT or model.eq_obj2id[number] < 0:
            continue
        offset, factor = (float(value) for value in model.eq_data[number][:2])
        one, other = (int(ids[number]) for ids in (model.eq_obj1id, model.eq_obj2id))
        # MuJoCo: q1 - q1_0 = offset + factor * (q2 - q2_0).
        zero, zero_other = (float(model.qpos0[model.jnt_qposadr[j]]) for j in (one, other))
        found[model.joint(one).name] = Follower(
            model.joint(other).name, factor, offset + zero - factor * zero_other
        )
    return found
