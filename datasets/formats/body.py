"""What the numbers in a foreign state and action mean: names, arms, units, gripper conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.formats.dimensions import (
    Dimension,
    NumberVector,
    dimension_of,
    gripper_dimension,
    scale_of,
)
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.grippers import gripper_convention

AngleUnit = Literal["rad", "deg"]


@dataclass(frozen=True)
class Meaning:
    """What a foreign state and action mean.

    Attributes:
        state: Of the state.
        action: Of the action.
        embodiment: Name of the body.
        base_frame: In words.
        kinematics: The body itself where it is known.
    """

    state: NumberVector
    action: NumberVector
    embodiment: str
    base_frame: str
    kinematics: Embodiment | None = None

    def contract(
        self, cameras: Sequence[Camera], control_hz: float, arms: Sequence[str] = ()
    ) -> Contract:
        """Returns the contract of such data.

        Args:
            cameras: All of them.
            control_hz: Steps per second.
            arms: Those whose grippers' poses the source has; with a known kinematics all have one.
        """
        posed = self.kinematics.arms if self.kinematics else tuple(arms)
        joints = self.state.names
        action = self.action.described()
        return Contract(
            self.embodiment, self.base_frame, control_hz, tuple(cameras), joints, posed, action
        )

    def gripper_poses(self, position: Array) -> dict[str, Array]:
        """Returns `T_base_gripper/<arm>` (T, 4, 4) float32 for joints (T, J) where the kinematics is known."""
        poses = self.kinematics.forward_kinematics(position) if self.kinematics else {}
        return {f"T_base_gripper/{arm}": pose.astype(np.float32) for arm, pose in poses.items()}


def joint_arrays(
    meaning: Meaning, state: tuple[str, Array | None], action: tuple[str, Array]
) -> dict[str, Array]:
    """Returns `joints/position`, `action` and, where the kinematics is known, the poses of the grippers.

    Args:
        meaning: Of the numbers.
        state: How messages name the state, and its values (T, J) as the source has them, or None.
        action: The same of the action (T, A).

    Raises:
        ForeignDataError: A value is impossible in the unit that was named.
    """
    arrays = {"action": meaning.action.imported(*action)}
    if state[1] is not None:
        arrays["joints/position"] = meaning.state.imported(state[0], state[1])
        arrays |= meaning.gripper_poses(arrays["joints/position"])
    return arrays


class VectorLayout(Protocol):
    """Knows what the numbers of a data set mean."""

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
        """Says what vectors with these names mean.

        Args:
            state: Names of the numbers of the state, as the data set has them.
            action: Names of those of the action.

        Raises:
            ValueError: The names or their number do not fit.
        """
        ...


class AlohaLayout:
    """Two ViperX arms: six hinges and a gripper on the left, the same on the right, in that order.

    The gripper conventions of states and actions are separate, for in recordings of real arms they
    differ.
    """

    def __init__(
        self,
        state_gripper: str | Mapping[str, float] | None = None,
        action_gripper: str | Mapping[str, float] | None = None,
        angle_unit: AngleUnit = "rad",
        *,
        options: str = "body",
    ) -> None:
        """Looks up the conventions.

        Args:
            state_gripper: A name of `GRIPPER_CONVENTIONS`, or the foreign values `closed` and
                `opened` of a linear one.
            action_gripper: The same for actions.
            angle_unit: Of the hinges.
            options: What messages put before the names of the options.

        Raises:
            ValueError: A convention is not named or does not exist.
        """
        vectors = []
        scale = scale_of(angle_unit)
        for option, asked in (
            (f"{options}.state_gripper", state_gripper),
            (f"{options}.action_gripper", action_gripper),
        ):
            convention = gripper_convention(asked, option)
            vectors.append(
                NumberVector(
                    tuple(
                        gripper_dimension(spec.name, spec.arm, convention)
                        if spec.kind == "gripper"
                        else Dimension(spec.name, spec.arm, scale=scale)
                        for spec in ALOHA.joints
                    )
                )
            )
        self._meaning = Meaning(vectors[0], vectors[1], ALOHA.name, ALOHA.base_frame, ALOHA)

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
        """Returns what 14 numbers mean; how the data set calls them does not matter.

        Raises:
            ForeignDataError: They are not 14.
        """
        for what, names in (("state", state), ("action", action)):
            if len(names) != len(ALOHA.joints):
                raise ForeignDataError(
                    f"ALOHA has {len(ALOHA.joints)} joints; the {what} has {len(names)}: "
                    f"{', '.join(names)}. "
                    "For another robot: body=named."
                )
        return self._meaning


class NamedLayout:
    """A body that Stringline does not know: joints as the data set names them, absolute joint targets, no kinematics."""

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
            grippers: The convention of each gripper by its name in the data set; an empty mapping
                says that there are none.
            arms: The names that belong to each arm; by default all belong to one arm `arm`.
            angle_unit: Of the hinges.
            embodiment: Name of the body.
            base_frame: The frame it stands in, in words.

        Raises:
            ValueError: A convention does not exist, or the unit is not named.
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
        """Returns what these numbers mean.

        Raises:
            ValueError: Something is not named or named twice; the message lists what the data set
                has.
        """
        offered = (
            f"The state has: {', '.join(state) or 'nothing'}. The action has: {', '.join(action)}."
        )
        if self._grippers is None:
            raise ValueError(
                f"Say which numbers are grippers, body.grippers={{NAME: CONVENTION}} or {{}} for "
                f"none. {offered}"
            )
        if self._unit is None:
            raise ValueError(
                f"Say what the joints are counted in, body.angle_unit=rad or deg. {offered}"
            )
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
                f"{name!r} belongs to {len(owners)} arms in body.arms; it must belong to one."
            )
        convention = (self._grippers or {}).get(name)
        return (
            Dimension(name, owners[0], scale=scale)
            if convention is None
            else gripper_dimension(name, owners[0], convention)
        )


class DescribedLayout:
    """Any body: each number of the action, and of the joint state where there is one, is described by its user."""

    def __init__(
        self,
        action: Sequence[Mapping[str, Any]] | None = None,
        joints: Sequence[Mapping[str, Any]] = (),
        embodiment: str = "unknown",
        base_frame: str = "unknown",
    ) -> None:
        """Reads the descriptions.

        Args:
            action: Fields of `Dimension` for each number; `gripper` names a convention or gives its
                ends.
            joints: The same for the state.
            embodiment: Name of the body.
            base_frame: The frame it stands in, in words.

        Raises:
            ValueError: A field or a convention does not exist.
        """
        self._action = None if action is None else tuple(dimension_of(fields) for fields in action)
        self._joints = tuple(dimension_of(fields) for fields in joints)
        self._embodiment = embodiment
        self._base_frame = base_frame

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
        """Returns what these numbers mean.

        Raises:
            ValueError: There are more or fewer than were described.
        """
        if self._action is None or len(self._action) != len(action):
            got = "nothing" if self._action is None else f"{len(self._action)}"
            raise ValueError(
                f"Describe each number of the action in body.action; got {got}, it has: "
                f"{', '.join(action)}."
            )
        if len(self._joints) != len(state):
            raise ValueError(
                f"Describe each number of the state in body.joints, or leave it out, "
                f"format.state=null; "
                f"got {len(self._joints)}, it has: {', '.join(state)}."
            )
        return Meaning(
            NumberVector(self._joints),
            NumberVector(self._action),
            self._embodiment,
            self._base_frame,
        )
