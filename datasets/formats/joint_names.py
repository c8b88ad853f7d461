"""The joints of a data set in the order of a robot: which number of a vector is which joint."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stringline.datasets.contract.argument_checks import printable, unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, JointSpec
from stringline.datasets.formats.foreign import ForeignDataError

JointOption = Mapping[str, str | None] | Sequence[str | None]
_SUFFIX = re.compile(r"\.(pos|position|qpos)$")
_NUMBER = re.compile(r"[_.\[]?\d+\]?$")
GRIPPER = "gripper"


@dataclass(frozen=True)
class JointMatch:
    """Numbers of a vector by joint.

    Attributes:
        joints: The joints of the robot that the vector has, in the robot's order.
        names: Their names in the data set.
        columns: Their places in the vector.
    """

    joints: tuple[JointSpec, ...]
    names: tuple[str, ...]
    columns: tuple[int, ...]


def with_grippers_of_data(robot: Embodiment, grippers: Mapping[str, object]) -> Embodiment:
    """Returns a robot with a gripper if, and only if, the data set has one.

    Raises:
        ValueError: A robot of several arms has grippers in the data set and none in its file.
    """
    if not grippers:
        kept = [place for place, joint in enumerate(robot.joints) if joint.kind != "gripper"]
        if len(kept) == len(robot.joints):
            return robot
        joints = tuple(robot.joints[place] for place in kept)
        return replace(robot, joints=joints, home=robot.home[kept])
    if robot.grippers:
        return robot
    if len(robot.arms) > 1:
        raise ValueError(
            f"The data have the grippers {', '.join(grippers)}, and {robot.name} has two arms "
            "without grippers; allowed: a gripper for each arm in the file of the embodiment, "
            "gripper: {name: NAME}."
        )
    arm = robot.joints[0].arm
    gripper = JointSpec(GRIPPER, arm, "gripper", 0.0, 1.0, 2.0, 0.0)
    return replace(
        robot, joints=(*robot.joints, gripper), home=np.append(robot.home, np.array(1.0))
    )


def match_joints(
    robot: Embodiment,
    names: Sequence[str],
    what: str,
    *,
    option: JointOption | None = None,
    grippers: Sequence[str] = (),
    complete: bool = True,
) -> JointMatch:
    """Assigns the numbers of a vector to the joints of a robot.

    Names that differ by case, by what is before the last slash, or by an end such as `.pos` are
    equal.

    Args:
        robot: The robot.
        names: Names of the numbers in the data set.
        what: The vector in messages, `state` or `action`.
        option: The option `layout.joints`: joint of the robot by name in the data set, or in the
            order of the numbers; None leaves a number out.
        grippers: Names of grippers in the data set.
        complete: Whether each joint of the robot must occur.

    Raises:
        ValueError: A number is no joint, a joint occurs twice, or is missing.
    """
    chosen = _chosen(robot, names, what, option)
    known = [joint.name for joint in robot.joints]
    found: dict[str, int] = {}
    for column, name in enumerate(names):
        if name in chosen:
            joint = chosen[name]
            if joint is None:
                continue
        else:
            joint = _same(robot, name, name in grippers)
        if joint is None:
            raise _no_joint(robot, name, names)
        if joint in found:
            raise ValueError(
                f"The {what} has the joint {joint!r} of {robot.name} twice: "
                f"{names[found[joint]]!r} and {name!r}; allowed: once. Leave one out, "
                f"layout.joints={{{name}: null}}."
            )
        found[joint] = column
    missing = [name for name in known if name not in found]
    if missing and complete:
        raise ValueError(
            f"The {what} lacks the joints {', '.join(missing)} of {robot.name}; it has: "
            f"{', '.join(names) or 'nothing'}. Map their names, layout.joints={{NAME: "
            f"{missing[0]}}}, or take joints that do not move out of the arm, fixed: {{{missing[0]}"
            ": 0.0} in the file of the embodiment."
        )
    joints = tuple(joint for joint in robot.joints if joint.name in found)
    columns = tuple(found[joint.name] for joint in joints)
    return JointMatch(joints, tuple(names[column] for column in columns), columns)


def _chosen(
    robot: Embodiment, names: Sequence[str], what: str, option: JointOption | None
) -> dict[str, str | None]:
    """Returns the user's joint by name in the data set."""
    if option is None:
        return {}
    known = [joint.name for joint in robot.joints]
    if isinstance(option, Mapping):
        chosen = {str(name): joint for name, joint in option.items()}
    else:
        if len(option) != len(names):
            raise ValueError(
                f"layout.joints has {len(option)} joints, and the {what} {len(names)} numbers: "
                f"{', '.join(names)}. Allowed: a joint, or null, for each number."
            )
        chosen = dict(zip(names, option, strict=True))
    for joint in chosen.values():
        if joint is not None and joint not in known:
            raise unknown_name(f"joint of {robot.name} in layout.joints", joint, known)
    return chosen


def _same(robot: Embodiment, name: str, gripper: bool) -> str | None:
    """Returns the joint of the robot that has the name of a number; None if there is none."""
    bare = _SUFFIX.sub("", name)
    forms = (name, bare, bare.rpartition("/")[2])
    for form in forms:
        same = [joint.name for joint in robot.joints if joint.name.lower() == form.lower()]
        if len(same) == 1:
            return same[0]
    grippers = [joint.name for joint in robot.joints if joint.kind == "gripper"]
    return grippers[0] if gripper and len(grippers) == 1 else None


def _no_joint(robot: Embodiment, name: str, names: Sequence[str]) -> ValueError:
    known = [joint.name for joint in robot.joints]
    problem = unknown_name(f"joint of {robot.name}", printable(name), known)
    if len(names) == len(known) and all(_NUMBER.search(each) for each in names):
        return ValueError(
            f"{problem} The data set numbers its joints; if they have the order of the robot: "
            f"'layout.joints=[{','.join(known)}]'."
        )
    return ValueError(
        f"{problem} The data have: {', '.join(names)}. Map it, layout.joints={{{name}: JOINT}}, or "
        f"leave it out, layout.joints={{{name}: null}}; grippers are in layout.grippers."
    )


BEYOND_LIMITS_RAD = 0.1
"""Recorded positions may be this far outside of the limits of a joint: sensors have offsets."""


def check_limits(
    robot: Embodiment,
    name: str,
    positions: np.ndarray,
    columns: Sequence[int] | None = None,
) -> None:
    """Checks recorded positions (T, J) against the limits of the joints.

    `columns` are the places of the joints in the data, if they have another order there. The
    message names the nearest order in which all positions are within the limits, if there is one.

    Raises:
        ForeignDataError: A revolute joint is more than `BEYOND_LIMITS_RAD` outside of its limits.
    """
    revolute = np.array([joint.kind == "revolute" for joint in robot.joints])
    outside = np.maximum(robot.lower - positions, positions - robot.upper)
    outside[:, ~revolute] = 0.0
    frame, column = np.unravel_index(np.argmax(outside), outside.shape)
    if outside[frame, column] > BEYOND_LIMITS_RAD:
        joint = robot.joints[column]
        raise ForeignDataError(
            f"{name} at frame {frame}: the joint {joint.name!r} of {robot.name} is at "
            f"{positions[frame, column]:.4g} rad; its limits are {joint.lower:.4g} to "
            f"{joint.upper:.4g} rad. Is the unit (layout.angle_unit) or the order of the joints "
            "(layout.joints) another one? Wider limits are set in the file of the embodiment, "
            f"joints: {{{joint.name}: {{limits: [LOWER, UPPER]}}}}."
            f"{_other_order(robot, positions, columns)}"
        )


def _other_order(robot: Embodiment, positions: np.ndarray, columns: Sequence[int] | None) -> str:
    """Returns in words the order of the joints in the data that fits the limits; else empty."""
    order = _fitting(robot, positions)
    if order is None:
        return ""
    places = range(len(order)) if columns is None else columns
    names = ["null"] * (max(places) + 1)
    for place, joint in zip(places, order, strict=True):
        names[place] = robot.joints[joint].name
    return f" All are within the limits in this nearest order: 'layout.joints=[{','.join(names)}]'."


def _fitting(robot: Embodiment, positions: np.ndarray) -> list[int] | None:
    """Returns the joint of each column (T, J) so that all fit its limits; None if none does.

    A matching by shortest augmenting paths, so that few joints move that would fit their own.
    """
    count = len(robot.joints)
    low = positions.min(axis=0)[:, None] >= robot.lower - BEYOND_LIMITS_RAD
    fits = low & (positions.max(axis=0)[:, None] <= robot.upper + BEYOND_LIMITS_RAD)
    for place, joint in enumerate(robot.joints):
        if joint.kind != "revolute":
            fits[place] = np.arange(count) == place
            fits[:, place] = np.arange(count) == place
    column_of = {place: place for place in range(count) if fits[place, place]}
    for column in [place for place in range(count) if not fits[place, place]]:
        if not _moved(column, fits, column_of):
            return None
    joint_of = {column: joint for joint, column in column_of.items()}
    return [joint_of[place] for place in range(count)]


def _moved(column: int, fits: np.ndarray, column_of: dict[int, int]) -> bool:
    """Gives a joint to a column (T,), moving as few others as possible; False if none fits."""
    before: dict[int, int] = {}  # The column from which a joint was reached.
    waiting = [column]
    for each in waiting:
        near = sorted(np.flatnonzero(fits[each]).tolist(), key=lambda joint: abs(joint - column))
        for joint in near:
            if joint in before:
                continue
            before[joint] = each
            if joint in column_of:
                waiting.append(column_of[joint])
                continue
            while True:
                owner = before[joint]
                freed = next((j for j, c in column_of.items() if c == owner), None)
                column_of[joint] = owner
                if owner == column or freed is None:
                    return True
                joint = freed
    return False
