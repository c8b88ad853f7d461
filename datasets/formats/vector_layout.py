"""Layouts of foreign state and action vectors: names, arms, units, gripper conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.catalogue import EMBODIMENTS
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.formats.conversions import (
    Dimension,
    NumberVector,
    dimension_of,
    gripper_convention,
    gripper_dimension,
    scale_of,
)
from stringline.datasets.formats.foreign import ForeignDataError

AngleUnit = Literal["rad", "deg"]


@dataclass(frozen=True)
class Meaning:
    """The meaning of foreign states and actions; `kinematics` is the embodiment if it is known."""

    state: NumberVector
    action: NumberVector
    embodiment: str
    base_frame: str
    kinematics: Embodiment | None = None

    def contract(
        self, cameras: Sequence[Camera], control_hz: float, arms: Sequence[str] = ()
    ) -> Contract:
        """Returns the contract of the data.

        `arms` are those with gripper poses in the source; with known kinematics all arms have them.
        """
        posed = self.kinematics.arms if self.kinematics else tuple(arms)
        joints = self.state.names
        action = self.action.described()
        return Contract(
            self.embodiment, self.base_frame, control_hz, tuple(cameras), joints, posed, action
        )

    def gripper_poses(self, position: Array) -> dict[str, Array]:
        """Returns `T_base_gripper/<arm>` (T, 4, 4) float32 at joints (T, J), if computable."""
        poses = self.kinematics.forward_kinematics(position) if self.kinematics else {}
        return {f"T_base_gripper/{arm}": pose.astype(np.float32) for arm, pose in poses.items()}


def joint_arrays(
    meaning: Meaning, state: tuple[str, Array | None], action: tuple[str, Array]
) -> dict[str, Array]:
    """Returns `joints/position`, `action`, and gripper poses if the kinematics are known.

    `state` is the name of the state in messages, and its foreign values (T, J) or None. `action` is
    the name of the action and its foreign values (T, A).
    """
    arrays = {"action": meaning.action.imported(*action)}
    if state[1] is not None:
        arrays["joints/position"] = meaning.state.imported(state[0], state[1])
        arrays |= meaning.gripper_poses(arrays["joints/position"])
    return arrays


class VectorLayout(Protocol):
    """Assigns a meaning to the numbers of a data set."""

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
        """Returns the meaning of vectors, given the names of their numbers in the data set.

        Raises:
            ValueError: The names or their number do not fit.
        """
        ...


_ALOHAS = ("aloha", "gym_aloha")


class AlohaLayout:
    """Two ViperX arms: six hinges and a gripper on the left, then the same on the right.

    States and actions have separate gripper conventions, which differ in recordings of real arms.
    """

    def __init__(
        self,
        state_gripper: str | Mapping[str, float] | None = None,
        action_gripper: str | Mapping[str, float] | None = None,
        angle_unit: AngleUnit = "rad",
        embodiment: str = ALOHA.name,
        *,
        options: str = "layout",
    ) -> None:
        """Looks up the conventions.

        Args:
            state_gripper: A name of `GRIPPER_CONVENTIONS`, or the foreign values `closed` and
                `opened` of a linear one.
            action_gripper: The same for actions.
            angle_unit: Unit of the hinge angles.
            embodiment: `aloha`, or `gym_aloha` for the arms of gym-aloha, of ACT's simulation.
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
            convention = gripper_convention(gripper, f"{options}.{option}")
            dimensions = [
                gripper_dimension(spec.name, spec.arm, convention)
                if spec.kind == "gripper"
                else Dimension(spec.name, spec.arm, scale=scale)
                for spec in robot.joints
            ]
            vectors.append(NumberVector(tuple(dimensions)))
        self._meaning = Meaning(vectors[0], vectors[1], robot.name, robot.base_frame, robot)

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
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
    """Another embodiment: the data set names the joints; absolute targets, no kinematics."""

    def __init__(
        self,
        grippers: Mapping[str, str | Mapping[str, float]] | None = None,
        arms: Mapping[str, Sequence[str]] | None = None,
        angle_unit: AngleUnit | None = None,
        embodiment: str = "unknown",
        base_frame: str = "unknown",
    ) -> None:
        """Looks up the conventions.

        Args:
            grippers: Convention of each gripper by its name in the data set; empty without
                grippers.
            arms: Joint names of each arm; by default all belong to one arm `arm`.
            angle_unit: Unit of the hinge angles.
            embodiment: Name of the embodiment.
            base_frame: Description of the base frame.
        """
        self._grippers = (
            None
            if grippers is None
            else {n: gripper_convention(c, "gripper convention") for n, c in grippers.items()}
        )
        self._arms = arms
        self._unit = angle_unit
        self._embodiment = embodiment
        self._base_frame = base_frame

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
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
        return Meaning(vectors[0], vectors[1], self._embodiment, self._base_frame)

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
            action: Fields of `Dimension` for each number; `gripper` is a convention or its ends.
            joints: The same for the state.
            embodiment: Name of the embodiment.
            base_frame: Description of the base frame.
        """
        self._action = None if action is None else tuple(dimension_of(fields) for fields in action)
        self._joints = tuple(dimension_of(fields) for fields in joints)
        self._embodiment = embodiment
        self._base_frame = base_frame

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
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
        return Meaning(
            NumberVector(self._joints),
            NumberVector(self._action),
            self._embodiment,
            self._base_frame,
        )
