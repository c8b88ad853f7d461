"""Layouts of foreign state and action vectors: names, arms, units, gripper conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment, JointSpec
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS, record_of
from stringline.datasets.embodiments.embodiment_source import is_source, load_embodiment
from stringline.datasets.formats.conversions import (
    Dimension,
    GripperConvention,
    NumberVector,
    dimension_of,
    gripper_convention,
    gripper_dimension,
    scale_of,
)
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.joint_names import (
    JointOption,
    check_limits,
    match_joints,
    with_grippers_of_data,
)

AngleUnit = Literal["rad", "deg"]


@dataclass(frozen=True)
class VectorSpec:
    """The meaning of foreign states and actions.

    Attributes:
        kinematics: The embodiment, if it is known.
        checked: Whether positions must be within the limits of its joints.
    """

    state: NumberVector
    action: NumberVector
    embodiment: str
    base_frame: str
    kinematics: Embodiment | None = None
    checked: bool = False

    def contract(
        self, cameras: Sequence[Camera], control_hz: float, arms: Sequence[str] = ()
    ) -> Contract:
        """Returns the contract of the data.

        `arms` are those with gripper poses in the source; with known kinematics all arms have them.
        """
        posed = self.kinematics.arms if self.kinematics else tuple(arms)
        joints = self.state.names
        action = self.action.described()
        robot = self.kinematics
        known = robot is None or EMBODIMENTS.get(self.embodiment) is robot
        return Contract(
            self.embodiment,
            self.base_frame,
            control_hz,
            tuple(cameras),
            joints,
            posed,
            action,
            None if known or robot is None else record_of(robot),
        )

    def gripper_poses(self, position: Array) -> dict[str, Array]:
        """Returns `T_base_gripper/<arm>` (T, 4, 4) float32 at joints (T, J), if computable."""
        poses = self.kinematics.forward_kinematics(position) if self.kinematics else {}
        return {f"T_base_gripper/{arm}": pose.astype(np.float32) for arm, pose in poses.items()}


def joint_arrays(
    meaning: VectorSpec, state: tuple[str, Array | None], action: tuple[str, Array]
) -> dict[str, Array]:
    """Returns `joints/position`, `action`, and gripper poses if the kinematics are known.

    `state` is the name of the state in messages, and its foreign values (T, J) or None. `action` is
    the name of the action and its foreign values (T, A).
    """
    arrays = {"action": meaning.action.imported(*action)}
    if state[1] is not None:
        arrays["joints/position"] = meaning.state.imported(state[0], state[1])
        if meaning.checked and meaning.kinematics is not None:
            check_limits(
                meaning.kinematics, state[0], arrays["joints/position"], meaning.state.columns
            )
        arrays |= meaning.gripper_poses(arrays["joints/position"])
    return arrays


class VectorLayout(Protocol):
    """Assigns a meaning to the numbers of a data set."""

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> VectorSpec:
        """Returns the meaning of vectors, given the names of their numbers in the data set.

        Raises:
            ValueError: The names or their number do not fit.
        """
        ...


_ALOHAS = ("aloha", "gym_aloha")
_OTHERS = (
    "layout=aloha, the default, is for the two ViperX arms of ALOHA; another robot needs "
    "layout=named, with the names of its joints, or layout=described."
)


class AlohaLayout:
    """Two ViperX arms: six revolute joints and a gripper on the left, then the same on the right.

    States and actions have separate gripper conventions, which differ in recordings of real arms.
    """

    def __init__(
        self,
        state_gripper: str | Mapping[str, float] | None = None,
        action_gripper: str | Mapping[str, float] | None = None,
        angle_unit: AngleUnit = "rad",
        embodiment: str = "aloha",
        *,
        options: str = "layout",
    ) -> None:
        """Looks up the conventions.

        Args:
            state_gripper: Gripper convention of the states, a name of `GRIPPER_CONVENTIONS` or
                {closed: NUMBER, opened: NUMBER} of a linear one; required.
            action_gripper: Gripper convention of the actions, which differs in recordings of real
                arms; required.
            angle_unit: Unit of the joint angles: rad or deg.
            embodiment: aloha, or gym_aloha: the arms of gym-aloha, of ACT's simulation.

        Other Args:
            options: Prefix of the option names in messages.

        Raises:
            ValueError: A convention or the embodiment is unknown.
        """
        if embodiment not in _ALOHAS:
            raise unknown_name("embodiment with the joints of ALOHA", embodiment, _ALOHAS)
        robot = EMBODIMENTS[embodiment]
        vectors = []
        scale = scale_of(angle_unit)
        chosen = {"state_gripper": state_gripper, "action_gripper": action_gripper}
        for option, gripper in chosen.items():
            advice = _OTHERS if options == "layout" else ""
            convention = gripper_convention(gripper, f"{options}.{option}", advice)
            dimensions = [
                gripper_dimension(spec.name, spec.arm, convention)
                if spec.kind == "gripper"
                else Dimension(spec.name, spec.arm, scale=scale)
                for spec in robot.joints
            ]
            vectors.append(NumberVector(tuple(dimensions)))
        self._meaning = VectorSpec(vectors[0], vectors[1], robot.name, robot.base_frame, robot)

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> VectorSpec:
        """Returns the meaning of 14 numbers, regardless of their names in the data set.

        Raises:
            ForeignDataError: A vector has another length.
        """
        for what, names in (("state", state), ("action", action)):
            if len(names) != len(ALOHA.joints):
                raise ForeignDataError(
                    f"ALOHA has {len(ALOHA.joints)} joints; the {what} has {len(names)}: "
                    f"{', '.join(names)}. For another robot: layout=named."
                )
        return self._meaning


class NamedLayout:
    """Another embodiment: the data set names the joints; absolute targets.

    With an embodiment that is built in or has a file, gripper poses come from its kinematics, and
    the joints have its names and order.
    """

    def __init__(
        self,
        grippers: Mapping[str, str | Mapping[str, float]] | None = None,
        arms: Mapping[str, Sequence[str]] | None = None,
        angle_unit: AngleUnit | None = None,
        embodiment: str = "unknown",
        base_frame: str = "unknown",
        joints: JointOption | None = None,
    ) -> None:
        """Looks up the conventions.

        Args:
            grippers: Convention of each gripper by its name in the data set, {NAME: CONVENTION,
                ...}, or {} without grippers; required.
            arms: Joint names of each arm, {ARM: [NAME, ...], ...}; None for a single arm, or those
                of the embodiment.
            angle_unit: Unit of the joint angles: rad or deg; required.
            embodiment: FILE.urdf, FILE.xml, FILE.yaml, menagerie:NAME, package:NAME/FILE, iiwa14
                ..., or only a name.
            base_frame: Description of the base frame, stored with the episodes; a robot's file has
                its own.
            joints: Joint of the embodiment by name in the data set, {NAME: JOINT or null, ...}, or
                [JOINT, ...] in the order of the numbers; None: joints have the robot's names.

        Raises:
            ValueError: The embodiment has no such file, or an option contradicts it.
        """
        self._robot = robot_of(embodiment)
        self._joints = joints
        if self._robot is None and joints is not None:
            raise ValueError(
                "layout.joints needs the joints of a robot; got embodiment "
                f"{embodiment!r}. Set layout.embodiment=FILE.urdf, FILE.xml, FILE.yaml, "
                f"menagerie:NAME or one of {', '.join(EMBODIMENTS)}."
            )
        if self._robot is not None and arms is not None:
            raise ValueError(
                f"layout.arms is {dict(arms)}, but the arms are those of {self._robot.name}: "
                f"{', '.join(self._robot.arms)}. Omit layout.arms."
            )
        self._grippers = (
            None
            if grippers is None
            else {n: gripper_convention(c, "gripper convention") for n, c in grippers.items()}
        )
        self._arms = arms
        self._unit = angle_unit
        self._embodiment = embodiment
        self._base_frame = base_frame

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> VectorSpec:
        """Returns the meaning of the numbers.

        Raises:
            ValueError: An option is missing, or a name is unknown or ambiguous.
        """
        offered = (
            f"The state has: {', '.join(state) or 'nothing'}. The action has: {', '.join(action)}."
        )
        if self._grippers is None:
            raise ValueError(
                "Set the grippers, layout.grippers={NAME: CONVENTION}, or {} without grippers. "
                f"{offered}"
            )
        if self._unit is None:
            raise ValueError(f"Set the unit of the joints, layout.angle_unit=rad or deg. {offered}")
        if self._robot is not None:
            return self._known(self._robot, self._grippers, scale_of(self._unit), state, action)
        for name in (
            *self._grippers,
            *(name for names in (self._arms or {}).values() for name in names),
        ):
            if name not in {*state, *action}:
                raise unknown_name("joint", name, {*state, *action})
        scale = scale_of(self._unit)
        vectors = [
            NumberVector(tuple(self._dimension(name, scale) for name in names))
            for names in (state, action)
        ]
        return VectorSpec(vectors[0], vectors[1], self._embodiment, self._base_frame)

    @staticmethod
    def _check_grippers(grippers: Mapping[str, object], *vectors: Sequence[str]) -> None:
        known = {name for names in vectors for name in names}
        for name in grippers:
            if name not in known:
                raise unknown_name("joint", name, known)

    def _known(
        self,
        robot: Embodiment,
        grippers: Mapping[str, GripperConvention],
        scale: float,
        state: Sequence[str],
        action: Sequence[str],
    ) -> VectorSpec:
        """Returns the meaning of the numbers of a robot with known kinematics."""
        self._check_grippers(grippers, state, action)
        body = with_grippers_of_data(robot, grippers)
        vectors = []
        for what, names, complete in (("state", state, True), ("action", action, False)):
            if what == "state" and not names:
                raise ValueError(
                    f"Gripper poses of {body.name} need joint positions, and the data have no "
                    "state. Name it, format.state=..., or omit the file, layout.embodiment=NAME."
                )
            match = match_joints(
                body, names, what, option=self._joints, grippers=[*grippers], complete=complete
            )
            dimensions = tuple(
                _joint_dimension(joint, name, grippers, scale)
                for joint, name in zip(match.joints, match.names, strict=True)
            )
            vectors.append(NumberVector(dimensions, match.columns))
        return VectorSpec(vectors[0], vectors[1], body.name, body.base_frame, body, checked=True)

    def _dimension(self, name: str, scale: float) -> Dimension:
        owners = [arm for arm, names in (self._arms or {"arm": [name]}).items() if name in names]
        if len(owners) != 1:
            raise ValueError(
                f"{name!r} belongs to {len(owners)} arms in layout.arms; allowed: one arm."
            )
        convention = (self._grippers or {}).get(name)
        return (
            Dimension(name, owners[0], scale=scale)
            if convention is None
            else gripper_dimension(name, owners[0], convention)
        )


def robot_of(embodiment: str) -> Embodiment | None:
    """Returns the robot that an option `embodiment` names; None if it is only a name.

    Raises:
        ValueError: It names a file that is missing or does not determine a robot.
    """
    return (
        load_embodiment(embodiment)
        if is_source(embodiment) or embodiment in EMBODIMENTS
        else (None)
    )


def _joint_dimension(
    joint: JointSpec, name: str, grippers: Mapping[str, GripperConvention], scale: float
) -> Dimension:
    """Returns the dimension of a joint of a robot, by its name in the data set."""
    if joint.kind == "revolute":
        if name in grippers:
            raise ValueError(
                f"{name!r} is a gripper in layout.grippers, and the hinge {joint.name!r} of the "
                "robot; allowed: one of both. Correct layout.joints or layout.grippers."
            )
        return Dimension(joint.name, joint.arm, scale=scale)
    if name not in grippers:
        raise ValueError(
            f"{name!r} is the gripper of the robot; set its convention, "
            f"layout.grippers={{{name}: CONVENTION}}."
        )
    return gripper_dimension(joint.name, joint.arm, grippers[name])


class DescribedLayout:
    """Any embodiment: the user describes each number of the action and of the joint state."""

    def __init__(
        self,
        action: Sequence[Mapping[str, Any]] | None = None,
        joints: Sequence[Mapping[str, Any]] = (),
        embodiment: str = "unknown",
        base_frame: str = "unknown",
    ) -> None:
        """Reads the descriptions.

        Args:
            action: A list with the description of each number of the action, as `Dimension` has it;
                required.
            joints: The same for the state; empty: without a state. With kinematics, with the names
                of the robot's joints.
            embodiment: Name of the robot, or its file as for layout=named; then `joints` have the
                names of its joints.
            base_frame: Description of the base frame, stored with the episodes; a robot's file has
                its own.

        Raises:
            ValueError: A description is invalid, or the embodiment has no such file.
        """
        self._robot = robot_of(embodiment)
        self._action = None if action is None else tuple(dimension_of(fields) for fields in action)
        self._joints = tuple(dimension_of(fields) for fields in joints)
        self._embodiment = embodiment
        self._base_frame = base_frame

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> VectorSpec:
        """Returns the meaning of the numbers.

        Raises:
            ValueError: The number of descriptions does not fit.
        """
        if self._action is None or len(self._action) != len(action):
            got = "nothing" if self._action is None else f"{len(self._action)}"
            raise ValueError(
                f"Describe each number of the action in layout.action; got {got}, it has: "
                f"{', '.join(action)}."
            )
        if len(self._joints) != len(state):
            raise ValueError(
                "Describe each number of the state in layout.joints, or omit the state, "
                f"format.state=null; got {len(self._joints)}, it has: {', '.join(state)}."
            )
        vector = NumberVector(self._action)
        if self._robot is None:
            joints = NumberVector(self._joints)
            return VectorSpec(joints, vector, self._embodiment, self._base_frame)
        names = [dimension.name for dimension in self._joints]
        grippers = {d.name: d.gripper for d in self._joints if d.gripper is not None}
        body = with_grippers_of_data(self._robot, grippers)
        match = match_joints(body, names, "state", grippers=[*grippers])
        dimensions = tuple(
            replace(self._joints[column], name=joint.name, arm=joint.arm)
            for joint, column in zip(match.joints, match.columns, strict=True)
        )
        state_vector = NumberVector(dimensions, match.columns)
        return VectorSpec(state_vector, vector, body.name, body.base_frame, body, checked=True)
