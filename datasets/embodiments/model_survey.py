"""What a robot model contains: arms, gripper frames, grippers, limits; as the file of a robot.

A gripper frame is a frame behind the last revolute joint of an arm. Names such as `tcp`, `tool0` or
`attachment_site` decide between several; if none does, the user chooses.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from stringline.datasets.embodiments.embodiment_file import (
    AXES,
    ArmPart,
    EmbodimentFile,
    FramePose,
    GripperPart,
    JointPart,
    start_of,
)
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS
from stringline.datasets.embodiments.model_file import WORLD, RobotModel
from stringline.datasets.embodiments.transforms import Matrix, pose

# In this order; the first that names a frame of an arm decides.
TCP_NAMES = (
    r"tcp", r"grasp|pinch", r"gripper_?frame|gripper_?site", r"end_?effector|(^|[_/])eef?($|[_/])",
    r"tool_?0|tool_?frame", r"tool", r"attachment", r"flange", r"hand", r"gripper", r"fixed_?jaw",
)  # fmt: skip
FULL_TURN = 6.283
"""Limits of a joint without limits in the file that is written, rad: one turn to each side."""
LEAST_HINGES = 3
"""An arm has at least this many revolute joints."""
_FINGER_HINTS = re.compile(r"finger|jaw|grip|knuckle|driver|claw", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A frame that can be the gripper frame of an arm.

    Attributes:
        frame: Name.
        joints: Names of the revolute joints that move it, from the base to it.
        rank: Place of its name in `TCP_NAMES`; their number if none fits.
    """

    frame: str
    joints: tuple[str, ...]
    rank: int


def candidates(robot: RobotModel) -> list[Candidate]:
    """Returns the frames behind the last revolute joints of all arms, the likeliest first."""
    found = []
    model = robot.model
    for name, (body, _) in robot.frames.items():
        joints = [number for above in robot.way(0, body) for number in robot.joints_of(above)]
        names = tuple(model.joint(number).name for number in joints)
        revolute = [model.jnt_type[number] == mujoco.mjtJoint.mjJNT_HINGE for number in joints]
        if sum(revolute) < LEAST_HINGES or not all(revolute) or set(names) & _fingers(robot):
            continue
        found.append(Candidate(name, names, _rank(name)))
    ends = {
        each.joints
        for each in found
        if not any(
            each.joints == other.joints[: len(each.joints)]
            for other in found
            if len(other.joints) > len(each.joints)
        )
    }
    return sorted(
        (each for each in found if each.joints in ends), key=lambda each: (each.rank, each.frame)
    )


def survey(
    robot: RobotModel,
    *,
    name: str | None = None,
    tcp: str | Mapping[str, str] | None = None,
    base: str | None = None,
    gripper: str | None = None,
    fixed: Mapping[str, float] | None = None,
) -> EmbodimentFile:
    """Returns the file of an embodiment with what a model contains.

    Args:
        robot: The model.
        name: Name of the robot; by default that of the model's file.
        tcp: Gripper frame, or one for each arm; by default the only one with a usual name.
        base: Frame at which the arms begin; by default the foot of one arm, and of several arms
            with different feet the world.
        gripper: Joint of the gripper; by default that of the fingers behind the gripper frame.
        fixed: Positions of joints between base and gripper that do not move, rad or m.

    Raises:
        ValueError: There is no arm, or several frames can be the gripper frame.
    """
    chosen = _chosen(robot, tcp)
    still = dict(fixed or {})
    for label in still:
        robot.joint(label)
    feet = {_foot(robot, robot.frame(frame, "frame")[0]) for frame in chosen.values()}
    foot = base or (feet.pop() if len(feet) == 1 else WORLD)  # Arms have a common base frame.
    robot.frame(foot, "base frame")
    arms = {arm: _arm(robot, frame, foot, gripper, still) for arm, frame in chosen.items()}
    joints: dict[str, JointPart] = {}
    for part in arms.values():
        for number in _revolute(robot, part):
            label = robot.model.joint(number).name
            if label not in still and not robot.model.jnt_limited[number]:
                joints[label] = JointPart((-FULL_TURN, FULL_TURN))
    stem = robot.path.stem
    return EmbodimentFile(
        name or (f"{stem}_model" if stem in EMBODIMENTS else stem),
        str(robot.path),
        arms,
        f"frame {foot} of {robot.path.name}",
        joints,
        still,
    )


def written(
    file: EmbodimentFile, robot: RobotModel, capsules: Sequence[Mapping[str, object]]
) -> str:
    """Returns the text of the YAML file, with the limits of the model and the given capsules."""
    lines = [
        "# Written by stringline-data embodiment; docs/my-robot.md explains the entries.",
        f"name: {_text(file.name)}",
        f"model: {_text(file.model)}",
        f"base_frame: {_text(file.base_frame)}",
        "arms:",
    ]
    for arm, part in file.arms.items():
        lines += [
            f"  {_text(arm)}:",
            f"    base: {_text(part.base)} # Frame of the model at which the arm begins ...",
            f"    pose: {_pose(part.pose)} # ... and its pose in the base frame.",
            f"    tcp: {_text(part.tcp)} # Frame of the gripper, between its pads.",
            f"    tcp_offset: {_pose(part.tcp_offset)} # The gripper in this frame.",
            f"    forward: {_quoted(part.forward)} # Its axis from the hand to objects.",
            f"    closes: {_quoted(part.closes)} # Its axis along which the pads close.",
        ]
        lines.append(f"    gripper: {_gripper_text(part.gripper)}")
        home = ", ".join(f"{_text(name)}: {value:.6g}" for name, value in part.home.items())
        lines.append(f"    home: {{{home}}} # rad")
    if file.fixed:
        still = ", ".join(f"{_text(name)}: {value:.6g}" for name, value in file.fixed.items())
        lines.append(f"fixed: {{{still}}} # Joints that do not move, rad or m.")
    lines.append("joints: # Limits in rad, speed in rad/s, effort in Nm, in the order of the arm.")
    for name, joint in file.joints.items():
        parts = [f"limits: [{', '.join(f'{value:.6g}' for value in joint.limits or ())}]"]
        parts += [f"speed: {joint.speed:.6g}"] if joint.speed else []
        parts += [f"effort: {joint.effort:.6g}"] if joint.effort else []
        turns = not robot.model.jnt_limited[robot.joints[name]]
        note = " # The model has no limits." if turns else ""
        lines.append(f"  {_text(name)}: {{{', '.join(parts)}}}{note}")
    lines.append(
        "capsules: # Around the links of every arm; link 0 is the base, link 1 moves by the "
        "first joint. Metres."
    )
    for capsule in capsules:
        inner = ", ".join(f"{key}: {value}" for key, value in capsule.items())
        lines.append(f"  - {{{inner}}}")
    if not capsules:
        lines[-1] = "capsules: [] # The model has no shapes."
    return "\n".join(lines) + "\n"


def _text(name: str | None) -> str:
    """Returns a YAML scalar."""
    plain = "" if name is None else name
    simple = re.fullmatch(r"[A-Za-z_][\w./-]*( [\w./-]+)*", plain)
    reserved = plain.lower() in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
    return plain if simple and not reserved else _quoted(plain)


def _pose(frame: FramePose) -> str:
    position, angles = (
        ", ".join(f"{value:.6g}" for value in values)
        for values in (frame.position_m, frame.rpy_deg)
    )
    return f"{{position_m: [{position}], rpy_deg: [{angles}]}}"


def _gripper_text(grip: GripperPart | None) -> str:
    if grip is None:
        return "null # {name: NAME} for a gripper that the model does not have."
    name = [f"name: {_text(grip.name)}"] if grip.name else []
    if grip.joint is None:
        return f"{{{', '.join(name) or 'name: gripper'}}} # The model does not have it."
    ends = f"closed: {grip.closed:.6g}, open: {grip.open:.6g}"
    inner = ", ".join([*name, f"joint: {_text(grip.joint)}", ends])
    return f"{{{inner}}} # Positions of the joint, rad or m."


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _chosen(robot: RobotModel, tcp: str | Mapping[str, str] | None) -> dict[str, str]:
    """Returns the gripper frame of each arm."""
    if isinstance(tcp, str):
        robot.frame(tcp, "gripper frame (tcp)")
        return {"arm": tcp}
    if tcp is not None:
        for frame in tcp.values():
            robot.frame(frame, "gripper frame (tcp)")
        return dict(tcp)
    offered = candidates(robot)
    if not offered:
        raise ValueError(
            f"{robot.path.name} has no arm: no frame is moved by {LEAST_HINGES} revolute "
            f"joints in a row; its joints: {_with_leaders(robot) or 'none'}. Name the gripper "
            f"frame, tcp=FRAME; frames: {', '.join(robot.frames)}."
        )
    arms = list(dict.fromkeys(each.joints for each in offered))
    best = {joints: _best(robot, [e for e in offered if e.joints == joints]) for joints in arms}
    if len(arms) == 1:
        return {"arm": best[arms[0]]}
    sides = {side: [way for way in arms if _side(way) == side] for side in ("left", "right")}
    if len(arms) == 2 and all(len(ways) == 1 for ways in sides.values()):
        return {side: best[ways[0]] for side, ways in sides.items()}
    shown = ", ".join(best.values())
    raise ValueError(
        f"{robot.path.name} has {len(arms)} arms, with the gripper frames {shown}; choose: "
        f"tcp=FRAME for one arm, 'tcp={{left: FRAME, right: FRAME}}' for two."
    )


def _with_leaders(robot: RobotModel) -> str:
    """Returns the names of the joints, and what they follow."""
    return ", ".join(
        f"{name} (follows {robot.followers[name].leader})" if name in robot.followers else name
        for name in robot.joints
    )


def _best(robot: RobotModel, offered: Sequence[Candidate]) -> str:
    """Returns the only frame with the best name."""
    first = [each for each in offered if each.rank == offered[0].rank]
    sites = {robot.model.site(number).name for number in range(robot.model.nsite)}
    first = [each for each in first if each.frame in sites] or first
    if len(offered) > 1 and (offered[0].rank == len(TCP_NAMES) or len(first) > 1):
        names = ", ".join(each.frame for each in offered)
        raise ValueError(
            f"{robot.path.name}: several frames can be that of the gripper: {names}. Choose one: "
            "stringline-data embodiment model=FILE tcp=FRAME output=my_arm.yaml."
        )
    return first[0].frame


def _side(joints: Sequence[str]) -> str | None:
    """Returns left or right if the names of all revolute joints of an arm's own contain it."""
    for side in ("left", "right"):
        own = [name for name in joints if re.search(rf"(^|[_/]){side}|(^|[_/]){side[0]}[_/]", name)]
        if len(own) >= LEAST_HINGES:
            return side
    return None


def _rank(name: str) -> int:
    for place, pattern in enumerate(TCP_NAMES):
        if re.search(pattern, name, re.IGNORECASE):
            return place
    return len(TCP_NAMES)


def _fingers(robot: RobotModel) -> set[str]:
    """Returns the joints of fingers: named so, or that follow another joint or are followed."""
    coupled = set(robot.followers) | {each.leader for each in robot.followers.values()}
    return coupled | {name for name in robot.joints if _FINGER_HINTS.search(name)}


def _revolute(robot: RobotModel, part: ArmPart) -> list[int]:
    base, tcp = (robot.frame(name, "frame")[0] for name in (part.base, part.tcp))
    return [number for body in robot.way(base, tcp) for number in robot.joints_of(body)]


def _arm(
    robot: RobotModel,
    tcp: str,
    base: str,
    gripper: str | None,
    fixed: Mapping[str, float],
) -> ArmPart:
    body, _ = robot.frame(tcp, "gripper frame (tcp)")
    part = ArmPart(tcp, base=base, gripper=_gripper(robot, body, gripper))
    home = {}
    for number in _revolute(robot, part):
        name = robot.model.joint(number).name
        if name not in fixed:
            home[name] = start_of(robot, number)
    forward, closes = _directions(robot, part, home)
    return replace(part, home=home, forward=forward, closes=closes)


def _foot(robot: RobotModel, tcp: int) -> str:
    """Returns the frame where the arm stands: the fixed link below it, or else the world."""
    first = robot.way(0, tcp)[:1]
    return WORLD if not first or robot.joints_of(first[0]) else robot.model.body(first[0]).name


def _gripper(robot: RobotModel, tcp: int, chosen: str | None) -> GripperPart | None:
    """Returns the gripper: the joint of the fingers behind the last revolute joint of an arm."""
    model = robot.model
    own = {number for body in robot.way(0, tcp) for number in robot.joints_of(body)}
    hand = max((int(model.jnt_bodyid[number]) for number in own), default=0)
    behind = [
        number
        for number in range(model.njnt)
        if number not in own and hand in _up(robot, int(model.jnt_bodyid[number]))
    ]
    if chosen is not None:
        number = robot.joint(chosen, "gripper joint")
        if number in own:
            raise ValueError(
                f"The gripper joint {chosen!r} moves the gripper frame itself; allowed: joints "
                f"behind it, {', '.join(model.joint(each).name for each in behind) or 'none'}."
            )
    else:
        # MJCF couples joints in either order, and a coupled pair is driven by one of both.
        leads = [each for each in behind if model.joint(each).name not in robot.followers]
        driven = leads if robot.urdf else behind
        first = [each for each in driven if _drives(model, each)] or driven or behind
        if not first:
            return None
        number = first[0]
    name = model.joint(number).name
    low, high = (float(value) for value in model.jnt_range[number])
    if low == high:
        low = 0.0
        high = 1.0
    closed, opened = (
        (low, high) if _gap(robot, number, low) <= _gap(robot, number, high) else (high, low)
    )
    return GripperPart(name, closed, opened)


def _drives(model: mujoco.MjModel, joint: int) -> bool:
    """Returns whether an actuator moves a joint, itself or by a tendon over joints."""
    for number in range(model.nu):
        kind = model.actuator_trntype[number]
        target = int(model.actuator_trnid[number, 0])
        if kind == mujoco.mjtTrn.mjTRN_JOINT and target == joint:
            return True
        if kind == mujoco.mjtTrn.mjTRN_TENDON:
            first = int(model.tendon_adr[target])
            over = range(first, first + int(model.tendon_num[target]))
            if any(
                model.wrap_type[place] == mujoco.mjtWrap.mjWRAP_JOINT
                and model.wrap_objid[place] == joint
                for place in over
            ):
                return True
    return False


def _up(robot: RobotModel, body: int) -> list[int]:
    found = [body]
    while body:
        body = int(robot.model.body_parentid[body])
        found.append(body)
    return found


def _gap(robot: RobotModel, joint: int, value: float) -> float:
    """Returns the largest distance of the bodies that a joint of a gripper moves, metres."""
    name = robot.model.joint(joint).name
    low, high = (robot.positions({name: end}) for end in robot.model.jnt_range[joint])
    moved = np.abs(high.xipos - low.xipos).max(axis=1) > 1e-6
    places = robot.positions({name: value}).xipos[moved]
    if len(places) < 2:  # One jaw: its distance from the fixed one grows with its angle.
        return value
    return float(np.linalg.norm(places[:, None] - places[None], axis=-1).max())


def _directions(robot: RobotModel, part: ArmPart, home: Mapping[str, float]) -> tuple[str, str]:
    """Returns the axes of the gripper frame that point forwards, and along the pads' way."""
    model = robot.model
    body, T_body_tcp = robot.frame(part.tcp, "gripper frame (tcp)")
    data = robot.positions(home)
    T = pose(data.xpos[body], data.xmat[body].reshape(3, 3)) @ T_body_tcp
    joints = [int(model.jnt_bodyid[number]) for number in _revolute(robot, part)]
    along = next(
        (
            T[:3, 3] - data.xpos[each]
            for each in reversed(joints)
            if np.linalg.norm(T[:3, 3] - data.xpos[each]) > 0.02
        ),
        T[:3, 2],
    )
    forward = _nearest_axis(T, along)
    across = _finger_way(robot, part, T)
    others = [name for name in AXES if name[-1] != forward[-1] and not name.startswith("-")]
    closes = others[0] if forward[-1] != "x" else "y"
    if across is not None:
        closes = max(others, key=lambda name: abs(float(T[:3, :3] @ AXES[name] @ across)))
    return forward, closes


def _nearest_axis(T: Matrix, direction: Matrix) -> str:
    return max(AXES, key=lambda name: float(T[:3, :3] @ AXES[name] @ direction))


def _finger_way(robot: RobotModel, part: ArmPart, T: Matrix) -> Matrix | None:
    """Returns the motion (3,) of a finger that opens, in the world; None without a finger."""
    grip = part.gripper
    if grip is None or grip.joint is None:
        return None
    body = int(robot.model.jnt_bodyid[robot.joints[grip.joint]])
    home = dict(part.home)
    places = [
        robot.positions({**home, grip.joint: value}).xipos[body]
        for value in (grip.closed, grip.open)
    ]
    return np.asarray(places[1] - places[0])
