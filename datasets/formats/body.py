"""What the numbers in a foreign state and action mean: names, arms, units, gripper conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from stringline.datasets.contract import ActionDimension, Array, Camera, Contract
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.formats.checks import LARGEST_ANGLE, refuse
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.grippers import HIGHEST, LOWEST, GripperConvention, gripper_convention
from stringline.datasets.names import unknown_name

AngleUnit = Literal["rad", "deg"]


@dataclass(frozen=True)
class Joint:
    """One number of a foreign joint vector.

    Attributes:
        name: Unique.
        arm: The arm it belongs to.
        gripper: How its opening is counted; None for a hinge.
    """

    name: str
    arm: str
    gripper: GripperConvention | None = None


@dataclass(frozen=True)
class JointVector:
    """A foreign vector of hinges and grippers, convertible to the contract's units and back.

    Attributes:
        joints: One for each of the D numbers.
        angle_unit: Unit of the hinges.
    """

    joints: tuple[Joint, ...]
    angle_unit: AngleUnit = "rad"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D numbers."""
        return tuple(joint.name for joint in self.joints)

    def imported(self, key: str, foreign: Array) -> Array:
        """Converts positions.

        Args:
            key: How messages name them.
            foreign: (T, D) in the source's units.

        Returns:
            (T, D) float32, rad and openings.

        Raises:
            ForeignDataError: A value is impossible in the unit that was named.
        """
        with np.errstate(invalid="ignore"):
            columns = [self._position(joint, foreign[:, column]) for column, joint in enumerate(self.joints)]
        values = np.stack(columns, axis=1)
        hinge = np.array([joint.gripper is None for joint in self.joints])
        beyond = hinge & (np.abs(values) > LARGEST_ANGLE)
        refuse(key, beyond, foreign, self.names, f"no joint turns so far in {self.angle_unit}; is it another unit?")
        unlikely = ~hinge & ~((values >= LOWEST) & (values <= HIGHEST))  # NaN, where no servo angle fits, included.
        if unlikely.any():
            column = int(np.argwhere(unlikely)[0][1])
            gripper = self.joints[column].gripper
            refuse(key, unlikely, foreign, self.names, f"no gripper opens so far under {gripper and gripper.name!r}")
        return np.asarray(values, np.float32)

    def imported_rates(self, foreign: Array, rates: Array) -> Array:
        """Converts speeds (T, D) at positions (T, D) to rad/s and openings/s, float32."""
        columns = [
            rates[:, column] * self._radians
            if joint.gripper is None
            else joint.gripper.rate_to_opening(foreign[:, column], rates[:, column])
            for column, joint in enumerate(self.joints)
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def exported(self, values: Array) -> Array:
        """Converts positions (T, D) of the contract to the source's units, float32: the inverse of `imported`."""
        columns = [
            values[:, column] / self._radians if joint.gripper is None else joint.gripper.from_opening(values[:, column])
            for column, joint in enumerate(self.joints)
        ]
        return np.stack(columns, axis=1).astype(np.float32)

    def action(self) -> tuple[ActionDimension, ...]:
        """Describes absolute targets of these joints."""
        return tuple(
            ActionDimension(joint.name, joint.arm, "joint")
            if joint.gripper is None
            else ActionDimension(joint.name, joint.arm, "gripper", unit="opening")
            for joint in self.joints
        )

    @property
    def _radians(self) -> float:
        return 1.0 if self.angle_unit == "rad" else float(np.pi / 180)

    def _position(self, joint: Joint, foreign: Array) -> Array:
        return foreign * self._radians if joint.gripper is None else joint.gripper.to_opening(foreign)


@dataclass(frozen=True)
class Meaning:
    """What a foreign state and action mean.

    Attributes:
        state: Of the state.
        action: Of the action: absolute targets.
        embodiment: Name of the body.
        base_frame: In words.
        kinematics: The body itself where it is known.
    """

    state: JointVector
    action: JointVector
    embodiment: str
    base_frame: str
    kinematics: Embodiment | None = None

    def contract(self, cameras: Sequence[Camera], control_hz: float) -> Contract:
        """Returns the contract of such data."""
        arms = self.kinematics.arms if self.kinematics else ()
        return Contract(
            self.embodiment, self.base_frame, control_hz, tuple(cameras), self.state.names, arms, self.action.action()
        )

    def gripper_poses(self, position: Array) -> dict[str, Array]:
        """Returns `T_base_gripper/<arm>` (T, 4, 4) float32 for joints (T, J) where the kinematics is known."""
        poses = self.kinematics.forward_kinematics(position) if self.kinematics else {}
        return {f"T_base_gripper/{arm}": pose.astype(np.float32) for arm, pose in poses.items()}


def joint_arrays(meaning: Meaning, state: tuple[str, Array | None], action: tuple[str, Array]) -> dict[str, Array]:
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


class Body(Protocol):
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


class AlohaBody:
    """Two ViperX arms: six hinges and a gripper on the left, the same on the right, in that order.

    The gripper conventions of states and actions are separate, for in recordings of real arms they differ.
    """

    def __init__(
        self,
        state_gripper: str | Mapping[str, float] | None = None,
        action_gripper: str | Mapping[str, float] | None = None,
        angle_unit: AngleUnit = "rad",
    ) -> None:
        """Looks up the conventions.

        Args:
            state_gripper: A name of `GRIPPER_CONVENTIONS`, or the foreign values `closed` and `opened` of a linear one.
            action_gripper: The same for actions.
            angle_unit: Of the hinges.

        Raises:
            ValueError: A convention is not named or does not exist.
        """
        vectors = []
        for option, asked in (("body.state_gripper", state_gripper), ("body.action_gripper", action_gripper)):
            convention = gripper_convention(asked, option)
            joints = [Joint(spec.name, spec.arm, convention if spec.kind == "gripper" else None) for spec in ALOHA.joints]
            vectors.append(JointVector(tuple(joints), checked_unit(angle_unit)))
        self._meaning = Meaning(vectors[0], vectors[1], ALOHA.name, ALOHA.base_frame, ALOHA)

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
        """Returns what 14 numbers mean; how the data set calls them does not matter.

        Raises:
            ForeignDataError: They are not 14.
        """
        for what, names in (("state", state), ("action", action)):
            if len(names) != len(ALOHA.joints):
                raise ForeignDataError(
                    f"ALOHA has {len(ALOHA.joints)} joints; the {what} has {len(names)}: {', '.join(names)}."
                )
        return self._meaning


class NamedBody:
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
            grippers: The convention of each gripper by its name in the data set; an empty mapping says that there are none.
            arms: The names that belong to each arm; by default all belong to one arm `arm`.
            angle_unit: Of the hinges.
            embodiment: Name of the body.
            base_frame: The frame it stands in, in words.

        Raises:
            ValueError: A convention does not exist, or the unit is not named.
        """
        self._grippers = (
            None if grippers is None else {n: gripper_convention(c, "gripper convention") for n, c in grippers.items()}
        )
        self._arms = arms
        self._unit = angle_unit
        self._embodiment, self._base_frame = embodiment, base_frame

    def meaning(self, state: Sequence[str], action: Sequence[str]) -> Meaning:
        """Returns what these numbers mean.

        Raises:
            ValueError: Something is not named or named twice; the message lists what the data set has.
        """
        offered = f"The state has: {', '.join(state) or 'nothing'}. The action has: {', '.join(action)}."
        if self._grippers is None:
            raise ValueError(f"Say which numbers are grippers, body.grippers={{NAME: CONVENTION}} or {{}} for none. {offered}")
        if self._unit is None:
            raise ValueError(f"Say what the joints are counted in, body.angle_unit=rad or deg. {offered}")
        for name in (*self._grippers, *(name for names in (self._arms or {}).values() for name in names)):
            if name not in {*state, *action}:
                raise unknown_name("joint", name, {*state, *action})
        unit = checked_unit(self._unit)
        vectors = [JointVector(tuple(self._joint(name) for name in names), unit) for names in (state, action)]
        return Meaning(vectors[0], vectors[1], self._embodiment, self._base_frame)

    def _joint(self, name: str) -> Joint:
        owners = [arm for arm, names in (self._arms or {"arm": [name]}).items() if name in names]
        if len(owners) != 1:
            raise ValueError(f"{name!r} belongs to {len(owners)} arms in body.arms; it must belong to one.")
        return Joint(name, owners[0], (self._grippers or {}).get(name))


def checked_unit(unit: str) -> AngleUnit:
    """Returns a unit of angles.

    Raises:
        ValueError: It is none.
    """
    if unit == "rad":
        return "rad"
    if unit == "deg":
        return "deg"
    raise unknown_name("unit of angles", unit, ("rad", "deg"))
