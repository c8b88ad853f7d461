"""Embodiments from a URDF or MJCF file and a short YAML file: gripper frame, joints, base, home.

`stringline-data embodiment` writes such a file; docs/my-robot.md describes it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import yaml

from stringline.datasets.contract.argument_checks import (
    FINITE,
    POSITIVE,
    printable,
    settings_of,
    unknown_name,
)
from stringline.datasets.embodiments.capsule_fitting import fit_capsules, surface_of
from stringline.datasets.embodiments.embodiment import (
    CapsuleMount,
    Chain,
    Embodiment,
    JointSpec,
    Link,
    Vector,
)
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS
from stringline.datasets.embodiments.model_file import WORLD, RobotModel
from stringline.datasets.embodiments.transforms import (
    Matrix,
    inverse,
    pose,
    rotation_about,
    rotation_of,
    rotation_of_angles,
)

DEFAULT_SPEED = 2.0
"""Speed limit in rad/s of joints whose model has none."""
GRIPPER = "gripper"
_GRIPPER_SPEED = 2.0  # Openings per second.
LARGEST_TURN = 4 * np.pi
"""Largest absolute limit of a joint, rad; larger numbers are degrees."""
AXES: Mapping[str, Vector] = {
    f"{sign}{name}": factor * np.eye(3)[place]
    for place, name in enumerate("xyz")
    for sign, factor in (("", 1.0), ("-", -1.0))
}
_OPENINGS = (0.0, 0.5, 1.0)
_STILL_M = 1e-5  # A part that an opening moves less does not belong to the fingers.


@dataclass(frozen=True)
class FramePose:
    """A pose: position (3,) in metres, and roll, pitch and yaw (3,) in degrees, as in URDF."""

    position_m: tuple[float, ...] = (0.0, 0.0, 0.0)
    rpy_deg: tuple[float, ...] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        for name in ("position_m", "rpy_deg"):
            values = getattr(self, name)
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise ValueError(f"{name} is {values!r}; allowed: three numbers.")
            values = tuple(values)
            if len(values) != 3 or not all(value in FINITE for value in values):
                raise ValueError(f"{name} is {list(values)}; allowed: three numbers.")
            object.__setattr__(self, name, tuple(float(value) for value in values))

    @property
    def matrix(self) -> Matrix:
        """The pose (4, 4)."""
        return pose(self.position_m, rotation_of_angles(np.radians(self.rpy_deg)))


@dataclass(frozen=True)
class GripperPart:
    """The gripper of an arm.

    Attributes:
        joint: Joint of the model that opens it; None if the model has no gripper.
        closed: Position of this joint at opening 0, rad or m.
        open: Position at opening 1.
        name: Name in the joint vector; by default that of the joint, or `gripper`.
    """

    joint: str | None = None
    closed: float = 0.0
    open: float = 1.0
    name: str | None = None

    def __post_init__(self) -> None:
        FINITE.check(closed=self.closed, open=self.open)
        if self.closed == self.open:
            raise ValueError(
                f"A gripper has closed={self.closed} and open={self.open}; they must differ."
            )


@dataclass(frozen=True)
class ArmPart:
    """One arm of the model.

    Attributes:
        tcp: Frame of the gripper (TCP): a body, link or site.
        tcp_offset: Pose of the gripper in this frame.
        forward: Axis of this frame that points forwards, from the hand to the object.
        closes: Axis of this frame along which the pads close.
        base: Frame of the model at which the arm begins; its pose is `pose`.
        pose: Pose of this frame in the base frame of the robot.
        gripper: The gripper; None for an arm without one.
        home: Initial position of joints by name, rad; others are those of the model.
    """

    tcp: str
    tcp_offset: FramePose = field(default_factory=FramePose)
    forward: str = "x"
    closes: str = "y"
    base: str = WORLD
    pose: FramePose = field(default_factory=FramePose)
    gripper: GripperPart | None = None
    home: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.tcp, str) or not isinstance(self.base, str):
            raise ValueError(
                f"tcp is {self.tcp!r} and base {self.base!r}; allowed: names of frames."
            )
        for name in ("forward", "closes"):
            if getattr(self, name) not in AXES:
                raise unknown_name(f"axis {name}", str(getattr(self, name)), AXES)
        if self.forward[-1] == self.closes[-1]:
            raise ValueError(
                f"forward is {self.forward} and closes {self.closes}; allowed: different axes."
            )
        for name, value in self.home.items():
            FINITE.check(**{f"home of {name}": value})

    @property
    def T_tcp_gripper(self) -> Matrix:
        """Pose (4, 4) of the gripper, x forwards and y along the pads' way, in the TCP's frame."""
        x = AXES[self.forward]
        y = AXES[self.closes]
        return self.tcp_offset.matrix @ pose(rotation=np.stack([x, y, np.cross(x, y)], axis=1))


@dataclass(frozen=True)
class JointPart:
    """What the file says about a joint in place of the model.

    Attributes:
        limits: Lower and upper limit, rad.
        speed: Speed limit, rad/s.
        effort: Torque limit, Nm.
    """

    limits: tuple[float, ...] | None = None
    speed: float | None = None
    effort: float | None = None

    def __post_init__(self) -> None:
        if self.limits is not None:
            limits = tuple(self.limits) if isinstance(self.limits, list | tuple) else ()
            if len(limits) != 2 or not all(value in FINITE for value in limits):
                raise ValueError(f"limits are {self.limits!r}; allowed: [LOWER, UPPER] in rad.")
            object.__setattr__(self, "limits", limits)
        if self.speed is not None:
            POSITIVE.check(speed=self.speed)
        if self.effort is not None:
            POSITIVE.check(effort=self.effort)


@dataclass(frozen=True)
class EmbodimentFile:
    """The contents of the YAML file.

    Attributes:
        name: Name of the robot in contracts.
        model: The URDF or MJCF file, relative to the YAML file; or `menagerie:NAME`, or
            `package:NAME/FILE`.
        arms: The arms by name; one arm is called `arm`.
        base_frame: Description of the base frame.
        joints: What differs from the model, by joint.
        fixed: Positions of joints between base and gripper that do not move, rad or m.
        capsules: Capsules around the links of every arm; if None, fitted to the shapes of the
            model.
    """

    name: str
    model: str
    arms: Mapping[str, ArmPart]
    base_frame: str = "unknown"
    joints: Mapping[str, JointPart] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    capsules: tuple[CapsuleMount, ...] | None = None

    def __post_init__(self) -> None:
        if self.name in EMBODIMENTS:
            raise ValueError(
                f"name is {self.name!r}, which is a built-in robot; allowed: any other name."
            )
        if not self.arms:
            raise ValueError("arms is empty; allowed: one arm or more, {arm: {tcp: FRAME}}.")


def parse_embodiment_file(path: Path) -> EmbodimentFile:
    """Reads the YAML file.

    Raises:
        ValueError: There is no such file, or an entry is missing, unknown or invalid.
    """
    try:
        plain = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        near = ", ".join(sorted(file.name for file in path.parent.glob("*.y*ml"))[:8])
        raise ValueError(
            f"There is no embodiment file {path}. Files beside it: {near or 'none'}. "
            "stringline-data embodiment writes one."
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        words = printable(" ".join(str(error).split()))
        raise ValueError(f"The embodiment file {path} cannot be read: {words}") from error
    missing = [key for key in ("name", "model", "arms") if key not in (plain or {})]
    if missing and (plain is None or isinstance(plain, Mapping)):
        raise ValueError(
            f"The embodiment file {path} lacks {' and '.join(missing)}; stringline-data embodiment "
            "writes a complete one."
        )
    try:
        return from_plain(plain)
    except ValueError as error:
        raise ValueError(f"The embodiment file {path}: {error}") from error
    except TypeError as error:
        raise ValueError(
            f"The embodiment file {path} lacks an entry, or has it in another form: {error}."
        ) from error


def from_plain(plain: Any) -> EmbodimentFile:
    """Builds the contents from plain YAML."""
    if not isinstance(plain, Mapping):
        raise ValueError(f"it contains {type(plain).__name__}; allowed: a mapping of settings.")
    arms = {str(name): _arm(str(name), arm) for name, arm in _mapping(plain, "arms", needed=True)}
    joints = {
        str(name): settings_of(JointPart, joint, f"joints.{name}")
        for name, joint in _mapping(plain, "joints")
    }
    fixed = {str(name): value for name, value in _mapping(plain, "fixed")}
    for name, value in fixed.items():
        FINITE.check(**{f"fixed.{name}": value})
    found = dict(plain) | {"arms": arms, "joints": joints, "fixed": fixed}
    if plain.get("capsules") is not None:
        found["capsules"] = tuple(_mount(each) for each in plain["capsules"])
    return settings_of(EmbodimentFile, found, "of an embodiment")


def _mapping(
    plain: Mapping[Any, Any], key: str, *, needed: bool = False
) -> Iterable[tuple[Any, Any]]:
    found = plain.get(key, None if needed else {})
    if not isinstance(found, Mapping):
        raise ValueError(f"{key} is {found!r}; allowed: a mapping.")
    return found.items()


def _arm(name: str, plain: Any) -> ArmPart:
    if not isinstance(plain, Mapping):
        raise ValueError(f"arms.{name} is {plain!r}; allowed: a mapping with the entry tcp.")
    parts = dict(plain)
    if "tcp" not in parts:
        raise ValueError(f"arms.{name} lacks tcp, the frame of the gripper.")
    for key, kind in (("tcp_offset", FramePose), ("pose", FramePose), ("gripper", GripperPart)):
        if parts.get(key) is not None:
            parts[key] = settings_of(kind, parts[key], f"arms.{name}.{key}")
    return settings_of(ArmPart, parts, f"arms.{name}")


def _mount(plain: Any) -> CapsuleMount:
    try:
        parts = {"per_opening": (0.0, 0.0, 0.0), **plain}
        vectors = [np.asarray(parts.pop(key), float) for key in ("start", "end", "per_opening")]
        link = int(parts.pop("link"))
        radius = float(parts.pop("radius"))
        if parts or any(v.shape != (3,) or not np.isfinite(v).all() for v in vectors):
            raise ValueError
        POSITIVE.check(radius=radius)
    except (TypeError, KeyError, ValueError):
        raise ValueError(
            f"a capsule is {plain!r}; allowed: {{link: NUMBER, start: [x, y, z], end: [x, y, z], "
            "radius: METRES, per_opening: [x, y, z]}, with link 0 for the base."
        ) from None
    return CapsuleMount(link - 1, vectors[0], vectors[1], radius, vectors[2])


def compile_embodiment(robot: RobotModel, file: EmbodimentFile) -> Embodiment:
    """Returns the embodiment of a model and its YAML file.

    Raises:
        ValueError: A frame or joint does not exist, cannot be used, or lacks limits.
    """
    for name in (*file.joints, *file.fixed):
        robot.joint(name)
    ways = {arm: moving_joints(robot, file, arm) for arm in file.arms}
    for way in ways.values():
        _check_unit(robot, file, way)
    names = _joint_names(file, ways, robot)
    joints: list[JointSpec] = []
    home: list[float] = []
    for arm, part in file.arms.items():
        own = [robot.model.joint(number).name for number in ways[arm]]
        for name in part.home:
            if name not in own:
                raise unknown_name(f"joint in the home of the arm {arm!r}", name, own)
        for name in own:
            spec = _hinge(robot, file, arm, name, names[arm, name])
            joints.append(spec)
            start = part.home.get(name, start_of(robot, robot.joints[name]))
            home.append(float(np.clip(start, spec.lower, spec.upper)))
        if part.gripper is not None:
            label = names[arm, GRIPPER]
            joints.append(JointSpec(label, arm, "gripper", 0.0, 1.0, _GRIPPER_SPEED, 0.0))
            home.append(1.0)
    chains = tuple(_chain(robot, file, arm) for arm in file.arms)
    shell = Embodiment(file.name, file.base_frame, tuple(joints), chains, (), (), np.array(home))
    links = min(len(chain.links) for chain in chains)
    for mount in file.capsules or ():
        if not -1 <= mount.link < links:
            raise ValueError(
                f"A capsule of {file.name} is at link {mount.link + 1}; allowed: 0 (base) to "
                f"{links}."
            )
    mounts = _fitted(robot, file) if file.capsules is None else file.capsules
    return replace(shell, capsule_mounts=mounts)


def moving_joints(robot: RobotModel, file: EmbodimentFile, arm: str) -> list[int]:
    """Returns the numbers of the revolute joints of an arm, from the base to the gripper."""
    part = file.arms[arm]
    base, _ = robot.frame(part.base, "base frame")
    tcp, _ = robot.frame(part.tcp, "gripper frame (tcp)")
    found = []
    for body in robot.way(base, tcp):
        for number in robot.joints_of(body):
            name = robot.model.joint(number).name
            if name in file.fixed:
                continue
            if not name:
                raise ValueError(
                    f"{robot.path.name}: a joint of the body {robot.model.body(body).name!r} "
                    f"between {part.base!r} and {part.tcp!r} has no name; allowed: joints with "
                    "names. Name it in the model."
                )
            if robot.model.jnt_type[number] != mujoco.mjtJoint.mjJNT_HINGE or (
                name in robot.followers
            ):
                raise _not_revolute(robot, part, number)
            found.append(number)
    _check_loops(robot, found)
    if not found:
        raise ValueError(
            f"{robot.path.name}: no joint moves {part.tcp!r} from {part.base!r}; allowed: a frame "
            f"behind joints. Frames: {', '.join(robot.frames)}."
        )
    return found


_KINDS = {
    mujoco.mjtJoint.mjJNT_FREE: "is free",
    mujoco.mjtJoint.mjJNT_BALL: "is a ball joint",
    mujoco.mjtJoint.mjJNT_SLIDE: "slides",
}


def _not_revolute(robot: RobotModel, part: ArmPart, number: int) -> ValueError:
    """Returns the error for a joint of an arm that does not turn by itself."""
    name = robot.model.joint(number).name
    kind = mujoco.mjtJoint(robot.model.jnt_type[number])
    still = kind in (mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE)
    what = f"follows {robot.followers[name].leader!r}" if name in robot.followers else _KINDS[kind]
    advice = f"Give its position, fixed: {{{name}: NUMBER}}, or" if still else "Choose"
    return ValueError(
        f"{robot.path.name}: the joint {name!r} between {part.base!r} and {part.tcp!r} {what}; "
        f"allowed: revolute joints. {advice} another base or tcp."
    )


def _check_loops(robot: RobotModel, joints: Iterable[int]) -> None:
    """Checks that no loop couples the joints of an arm, which the kinematics would not follow.

    Loops of an MJCF are equalities of two bodies. Those to mocap bodies hold a robot from outside.
    """
    model = robot.model
    own = {int(model.jnt_bodyid[number]): number for number in joints}
    for number in range(model.neq):
        if (
            mujoco.mjtEq(model.eq_type[number])
            not in (mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtEq.mjEQ_WELD)
            or not model.eq_active0[number]
        ):
            continue
        ends = [int(ids[number]) for ids in (model.eq_obj1id, model.eq_obj2id)]
        if model.eq_objtype[number] == mujoco.mjtObj.mjOBJ_SITE:
            ends = [int(model.site_bodyid[end]) for end in ends]
        if (model.body_mocapid[ends] >= 0).any():
            continue
        first, second = ({*robot.way(0, end)} for end in ends)
        coupled = [joint for body, joint in own.items() if body in first ^ second]
        if coupled:
            names = " and ".join(repr(model.body(end).name) for end in ends)
            raise ValueError(
                f"{robot.path.name}: an equality of {names} closes a loop over the joint "
                f"{model.joint(coupled[0]).name!r} of the arm; allowed: arms without loops. Remove "
                "the equality if the arm has no such linkage; other arms are not supported."
            )


def _joint_names(
    file: EmbodimentFile, ways: Mapping[str, list[int]], robot: RobotModel
) -> dict[tuple[str, str], str]:
    """Returns the name in the joint vector by arm and name in the model (or `gripper`).

    Names get the arm in front if two arms have the same.
    """
    bare: dict[tuple[str, str], str] = {}
    for arm, part in file.arms.items():
        for number in ways[arm]:
            name = robot.model.joint(number).name
            bare[arm, name] = name
        if part.gripper is not None:
            bare[arm, GRIPPER] = part.gripper.name or part.gripper.joint or GRIPPER
    count = list(bare.values())
    shared = len(set(count)) < len(count)
    names = {key: f"{key[0]}/{name}" if shared else name for key, name in bare.items()}
    twice = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
    if twice:
        raise ValueError(
            f"The joint {twice[0]!r} of {file.name} occurs more than once; allowed: once. Name the "
            "gripper otherwise, gripper: {name: NAME}."
        )
    return names


def _hinge(robot: RobotModel, file: EmbodimentFile, arm: str, name: str, label: str) -> JointSpec:
    part = file.joints.get(name, JointPart())
    number = robot.joints[name]
    limits = part.limits
    if limits is None:
        if not robot.model.jnt_limited[number]:
            raise ValueError(
                f"The joint {name!r} of {robot.path.name} turns without limits; allowed: limits in "
                f"rad. Give them in the embodiment file, joints: {{{name}: {{limits: [-6.283, "
                "6.283]}}, which stringline-data embodiment writes."
            )
        limits = tuple(float(value) for value in robot.model.jnt_range[number])
    low, high = limits
    if not low < high or max(abs(low), abs(high)) > LARGEST_TURN:
        raise ValueError(
            f"The limits of the joint {name!r} are {low:g} to {high:g} rad; allowed: lower below "
            f"upper, within {LARGEST_TURN:.2f} rad. Are these degrees? Correct the model, or give "
            f"joints: {{{name}: {{limits: [LOWER, UPPER]}}}} in the embodiment file."
        )
    speed = part.speed or robot.speeds.get(name, DEFAULT_SPEED)
    effort = part.effort or torque_of(robot.model, number)
    return JointSpec(label, arm, "revolute", low, high, speed, effort)


def _check_unit(robot: RobotModel, file: EmbodimentFile, joints: Sequence[int]) -> None:
    """Checks that the limits of an MJCF, whose angles are degrees by default, are not radians."""
    model = robot.model
    own = [number for number in joints if model.joint(number).name not in file.joints]
    limits = np.abs(model.jnt_range[[number for number in own if model.jnt_limited[number]]])
    largest = float(limits.max(initial=0.0))
    if not robot.urdf and 0 < largest < np.radians(LARGEST_TURN):
        raise ValueError(
            f"{robot.path.name}: the joints of the arm turn by {largest:.3g} rad at most; are the "
            f"numbers of the file, up to {np.degrees(largest):.3g}, radians? MJCF has degrees: "
            'write <compiler angle="radian"/>, or give the limits in the embodiment file, joints: '
            f"{{{model.joint(own[0]).name}: {{limits: [LOWER, UPPER]}}}}."
        )


def torque_of(model: mujoco.MjModel, joint: int) -> float:
    """Returns the torque limit of a joint, Nm; 0 if the model has none."""
    if model.jnt_actfrclimited[joint]:
        return float(np.abs(model.jnt_actfrcrange[joint]).max())
    for number in range(model.nu):
        drives = model.actuator_trntype[number] == mujoco.mjtTrn.mjTRN_JOINT
        mine = drives and model.actuator_trnid[number, 0] == joint
        if mine and model.actuator_forcelimited[number]:
            return float(np.abs(model.actuator_forcerange[number]).max())
    return 0.0


def start_of(robot: RobotModel, joint: int) -> float:
    """Returns the initial position of a joint: in the keyframe `home`, the first one, or the model.

    A position of the model beyond the limits is their middle instead.
    """
    model = robot.model
    keys = [model.key(number).name for number in range(model.nkey)]
    address = int(model.jnt_qposadr[joint])
    if keys:
        return float(model.key_qpos[keys.index("home") if "home" in keys else 0][address])
    value = float(model.qpos0[address])
    low, high = model.jnt_range[joint]
    outside = model.jnt_limited[joint] and not low <= value <= high
    return float((low + high) / 2) if outside else value


def _chain(robot: RobotModel, file: EmbodimentFile, arm: str) -> Chain:
    """Returns an arm as links with one revolute joint each, and all other bodies folded into them.

    MuJoCo turns a body about each of its joints in their order: by q - q_0 about the axis through
    the anchor, both in the frame of the body.
    """
    part = file.arms[arm]
    model = robot.model
    base, T_body_base = robot.frame(part.base, "base frame")
    tcp, T_body_tcp = robot.frame(part.tcp, "gripper frame (tcp)")
    T = inverse(T_body_base)
    links = []
    for body in robot.way(base, tcp):
        T = T @ pose(model.body_pos[body], rotation_of(model.body_quat[body]))
        for number in robot.joints_of(body):
            name = model.joint(number).name
            axis = np.array(model.jnt_axis[number])
            anchor = np.array(model.jnt_pos[number])
            zero = float(model.qpos0[model.jnt_qposadr[number]])
            if name in file.fixed:
                T = T @ _moved(model, number, file.fixed[name] - zero)
                continue
            T_parent_link = T @ pose(anchor, rotation_about(axis, -zero))
            links.append(Link(model.body(body).name or name, T_parent_link, axis))
            T = pose(-anchor)
    return Chain(arm, part.pose.matrix, tuple(links), T @ T_body_tcp @ part.T_tcp_gripper)


def _moved(model: mujoco.MjModel, joint: int, by: float) -> Matrix:
    """Returns the motion (4, 4) of a body by one of its joints."""
    axis = model.jnt_axis[joint]
    anchor = np.array(model.jnt_pos[joint])
    if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
        return pose(by * axis)
    if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
        raise ValueError(
            f"The joint {model.joint(joint).name!r} turns freely; allowed in fixed: revolute "
            "joints and slides."
        )
    return pose(anchor) @ pose(rotation=rotation_about(axis, by)) @ pose(-anchor)


def _fitted(robot: RobotModel, file: EmbodimentFile) -> tuple[CapsuleMount, ...]:
    """Returns capsules that contain the links of every arm, by their places in the chains."""
    parts: dict[tuple[int, int], list[tuple[Vector, Vector]]] = {}
    for arm in file.arms:
        for key, points, step in _shapes(robot, file, arm):
            parts.setdefault(key, []).append((points, step))
    mounts = []
    for (link, _), shapes in sorted(parts.items(), key=lambda entry: entry[0]):
        step = np.mean([step for _, step in shapes], axis=0)
        # Where arms open differently, the capsule contains both.
        together = [
            samples + share * (own - step)
            for samples, own in shapes
            for share in ((0.0,) if len(shapes) == 1 else (0.0, 1.0))
        ]
        for fitted in fit_capsules(np.concatenate(together)):
            mounts.append(CapsuleMount(link, fitted.start, fitted.end, fitted.radius, step))
    return tuple(mounts)


def _shapes(
    robot: RobotModel, file: EmbodimentFile, arm: str
) -> Iterator[tuple[tuple[int, int], Vector, Vector]]:
    """Yields samples (N, 3) of the surfaces of an arm at opening 0, and their motion (3,) to 1.

    The key is the number of the link (-1: the base) and, for each body that the gripper moves, a
    number above 0. Samples are in the frame of the link, those of three openings less their share
    of the motion.
    """
    part = file.arms[arm]
    model = robot.model
    moving = moving_joints(robot, file, arm)
    links = {int(model.jnt_bodyid[number]): (place, number) for place, number in enumerate(moving)}
    base, T_body_base = robot.frame(part.base, "base frame")
    tcp, _ = robot.frame(part.tcp, "gripper frame (tcp)")
    way = set(robot.way(base, tcp))
    opened = [_at_opening(robot, file, part, share) for share in _OPENINGS]
    fingers = 0
    for body in range(1, model.nbody):
        owner = _owner(robot, file, body, links, base, way)
        points = surface_of(robot, body) if owner is not None else np.zeros((0, 3))
        if owner is None or not len(points):
            continue
        place, number = links.get(owner, (-1, -1))
        inside = T_body_base if place < 0 else pose(model.jnt_pos[number])
        frame = base if place < 0 else owner
        there = []
        for data in opened:
            T_world_link = pose(data.xpos[frame], data.xmat[frame].reshape(3, 3)) @ inside
            T = inverse(T_world_link) @ pose(data.xpos[body], data.xmat[body].reshape(3, 3))
            there.append(points @ T[:3, :3].T + T[:3, 3])
        step = np.mean(there[-1] - there[0], axis=0)
        if np.abs(there[-1] - there[0]).max() < _STILL_M:
            yield (place, 0), there[0], np.zeros(3)
            continue
        fingers += 1
        samples = [at - share * step for at, share in zip(there, _OPENINGS, strict=True)]
        yield (place, fingers), np.concatenate(samples), step


def _owner(
    robot: RobotModel,
    file: EmbodimentFile,
    body: int,
    links: Mapping[int, tuple[int, int]],
    base: int,
    way: AbstractSet[int],
) -> int | None:
    """Returns the body of the link to which a body belongs, or `base`, the body of the base.

    Returns:
        None for scenery, and for parts that other joints move, except those of the hand.
    """
    last = max(links, key=lambda each: links[each][0])
    loose = on_way = False
    while body not in (0, base):
        if body in links:
            return body if not loose or body == last else None
        joints = {robot.model.joint(number).name for number in robot.joints_of(body)}
        on_way = on_way or body in way
        loose = loose or bool(joints - set(file.fixed))
        body = int(robot.model.body_parentid[body])
    return base if body == base and (on_way or base) and not loose else None


def _at_opening(
    robot: RobotModel, file: EmbodimentFile, part: ArmPart, opening: float
) -> mujoco.MjData:
    """Returns the poses of all bodies at an opening, 0 to 1, with the joints of the arm at rest."""
    values = dict(file.fixed)
    grip = part.gripper
    if grip is not None and grip.joint is not None:
        robot.joint(grip.joint, "gripper joint")
        values[grip.joint] = grip.closed + opening * (grip.open - grip.closed)
    return robot.positions(values)
