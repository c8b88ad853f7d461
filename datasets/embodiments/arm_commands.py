"""What actions command: the joints of a known robot, or the hands of any.

Actions for hands are Cartesian: the position of the gripper, perhaps its rotation, absolute or
relative to the measured pose, and an opening. Such a robot needs no kinematics here, but its
contract has to declare what the numbers mean (`ActionDimension`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import ActionDimension, ActionMode, Contract
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.embodiment_record import EMBODIMENTS, embodiment_of
from stringline.datasets.embodiments.transforms import Matrix, rotation_vector, turned

Floats = NDArray[np.float64]
_CARTESIAN = {"position": "m", "rotation": "rad"}


@dataclass(frozen=True)
class JointCommands:
    """Absolute joint targets of a robot with known kinematics."""

    embodiment: Embodiment

    @property
    def openings(self) -> Mapping[str, int]:
        """Place of the measured opening of each arm in `joints/position`."""
        return self.embodiment.grippers

    @cached_property
    def roots(self) -> Floats:
        """Poses (N, 4, 4) of the roots of the arms in the base frame."""
        return np.stack([chain.T_base_root for chain in self.embodiment.chains])

    def motion(self, action: Floats, measured: Floats | None) -> tuple[Floats, Floats]:
        """Returns the poses (T, N, 4, 4) and openings (T, N) that actions (T, A) command."""
        del measured
        robot = self.embodiment
        poses = robot.forward_kinematics(action)
        openings = [
            action[:, robot.grippers[arm]] if arm in robot.grippers else np.ones(len(action))
            for arm in robot.arms
        ]
        return np.stack([poses[arm] for arm in robot.arms], axis=1), np.stack(openings, axis=1)


@dataclass(frozen=True)
class Hand:
    """The dimensions of an action that command one gripper.

    Attributes:
        arm: Name of the arm.
        position: Places of x, y and z in the action.
        rotation: Places of the rotation vector; empty if the hand does not turn on command.
        gripper: Place of the opening; None without a gripper.
        opening: Place of the measured opening in `joints/position`: the joint with the name of the
            gripper's dimension. None: unknown.
    """

    arm: str
    position: tuple[int, ...]
    rotation: tuple[int, ...]
    gripper: int | None
    opening: int | None


class CartesianCommands:
    """Cartesian actions, and the poses of the grippers that they command.

    Args:
        contract: The contract.
        purpose: What needs them, for messages.

    Attributes:
        hands: One for each arm of the contract.

    Raises:
        ValueError: The contract does not declare what is needed.
    """

    def __init__(self, contract: Contract, purpose: str) -> None:
        self._action = contract.action
        self.hz = contract.control_hz
        _check(contract, purpose)
        self.hands = tuple(_hand(contract, arm) for arm in contract.arms)
        self.scale = np.array([each.scale for each in contract.action])
        self.offset = np.array([each.offset for each in contract.action])
        limits = [each.limits or (-np.inf, np.inf) for each in contract.action]
        self.limits = np.array(limits).T

    @property
    def openings(self) -> Mapping[str, int]:
        """Place of the measured opening of each arm in `joints/position`, where it is known."""
        return {hand.arm: hand.opening for hand in self.hands if hand.opening is not None}

    @property
    def roots(self) -> Floats:
        """The base frame (N, 4, 4) of each arm: where its root is, is not known."""
        return np.tile(np.eye(4), (len(self.hands), 1, 1))

    def speed(self, places: Sequence[int]) -> float:
        """Returns the speed that all of some dimensions follow, units/s."""
        return min(_speed(self._action[place], self.hz) or np.inf for place in places)

    def mode(self, place: int) -> ActionMode:
        """Returns the mode of a dimension."""
        return self._action[place].mode

    def motion(self, action: Floats, measured: Floats | None) -> tuple[Floats, Floats]:
        """Returns poses (T, N, 4, 4) and openings (T, N) of a recording with actions (T, A).

        Poses are the measured ones (S, N, 4, 4), S <= T, since a command leads the hand. The last
        one, and what follows it, is commanded: success often ends a recording in motion, and what
        counts then is where the hand was going.
        """
        assert measured is not None
        poses = [*measured[:-1].astype(np.float64)]
        now = measured[-1].astype(np.float64)
        for row in action[len(poses) :]:
            now = self.reached(row, now)
            poses.append(now)
        values = self.offset + self.scale * np.clip(action, *self.limits)
        openings = [
            np.ones(len(action)) if hand.gripper is None else values[:, hand.gripper]
            for hand in self.hands
        ]
        return np.stack(poses), np.stack(openings, axis=1)

    def reached(self, action: Floats, poses: Floats) -> Floats:
        """Returns the poses (N, 4, 4) to which an action (A,) leads from poses (N, 4, 4)."""
        values = self.offset + self.scale * np.clip(action, *self.limits)
        found = poses.copy()
        for place, hand in enumerate(self.hands):
            way = values[list(hand.position)]
            frame = poses[place, :3, :3] if self._in_hand(hand.position) else np.eye(3)
            if self.mode(hand.position[0]) == "relative":
                way = poses[place, :3, 3] + frame @ way
            found[place, :3, 3] = way
            if hand.rotation:
                turn = turned(values[list(hand.rotation)])
                found[place, :3, :3] = self._turned(hand, turn, poses[place, :3, :3])
        return found

    def action(self, poses: Floats, goal: Floats, openings: Floats) -> Floats:
        """Returns the action (A,) that leads from measured poses to goals, as far as it can.

        Args:
            poses: (N, 4, 4) measured.
            goal: (N, 4, 4) where the hands should be.
            openings: (N,) 0 to 1.
        """
        values = self.offset.copy()
        for place, hand in enumerate(self.hands):
            now = poses[place, :3, :3]
            way = goal[place, :3, 3]
            if self.mode(hand.position[0]) == "relative":
                way = way - poses[place, :3, 3]
                way = now.T @ way if self._in_hand(hand.position) else way
            values[list(hand.position)] = way
            if hand.rotation:
                values[list(hand.rotation)] = self._turn(hand, now, goal[place, :3, :3])
            if hand.gripper is not None:
                values[hand.gripper] = openings[place]
        return np.asarray(np.clip((values - self.offset) / self.scale, *self.limits))

    def _in_hand(self, places: Sequence[int]) -> bool:
        return self._action[places[0]].frame == "gripper"

    def _turned(self, hand: Hand, turn: Matrix, now: Matrix) -> Matrix:
        if self.mode(hand.rotation[0]) == "absolute":
            return turn
        return now @ turn if self._in_hand(hand.rotation) else turn @ now

    def _turn(self, hand: Hand, now: Matrix, goal: Matrix) -> Floats:
        if self.mode(hand.rotation[0]) == "absolute":
            return rotation_vector(goal)
        return rotation_vector(now.T @ goal if self._in_hand(hand.rotation) else goal @ now.T)


ArmCommands = JointCommands | CartesianCommands


def arm_commands(contract: Contract, purpose: str = "Keyposes") -> ArmCommands:
    """Returns what the actions of a contract command.

    Raises:
        ValueError: They are neither absolute joint targets of a known embodiment, nor Cartesian
            with all declarations that are needed.
    """
    if any(entry.kind in _CARTESIAN for entry in contract.action):
        return CartesianCommands(contract, purpose)
    embodiment = embodiment_of(contract)
    if embodiment is None:
        raise ValueError(
            f"{purpose} need the kinematics of the robot; got embodiment {contract.embodiment!r}; "
            f"allowed: {', '.join(EMBODIMENTS)}. Import the recordings with "
            "layout.embodiment=FILE.urdf, FILE.yaml or NAME, declare Cartesian actions "
            "(docs/other-environments.md), or train policy=diffusion, which needs no kinematics."
        )
    joints = [(joint.name, "absolute") for joint in embodiment.joints]
    if [(entry.name, entry.mode) for entry in contract.action] != joints:
        raise ValueError(
            f"{purpose} need absolute joint targets of {embodiment.name} as actions; got "
            f"{', '.join(f'{entry.name} ({entry.mode})' for entry in contract.action)}. Import the "
            "recordings with these actions, or train policy=diffusion."
        )
    return JointCommands(embodiment)


def opening_places(contract: Contract) -> Mapping[str, int]:
    """Returns the place of the measured opening of each arm in `joints/position`, if known."""
    embodiment = embodiment_of(contract)
    if embodiment is not None:
        return embodiment.grippers
    if not any(entry.kind in _CARTESIAN for entry in contract.action):
        return {}
    found = {arm: _hand(contract, arm).opening for arm in contract.arms}
    return {arm: place for arm, place in found.items() if place is not None}


def _hand(contract: Contract, arm: str) -> Hand:
    """Returns the dimensions of an arm; they are complete if `_check` has passed."""
    places: dict[str, list[int]] = {"position": [], "rotation": [], "gripper": [], "joint": []}
    for place, entry in enumerate(contract.action):
        if entry.arm == arm:
            places[entry.kind].append(place)
    gripper = places["gripper"][0] if places["gripper"] else None
    name = None if gripper is None else contract.action[gripper].name
    opening = contract.joints.index(name) if name in contract.joints else None
    return Hand(arm, tuple(places["position"]), tuple(places["rotation"]), gripper, opening)


def _speed(entry: ActionDimension, hz: float) -> float | None:
    """Returns the declared speed of a dimension; of a relative one also that of its limits."""
    if entry.speed is None and entry.mode == "relative" and entry.limits is not None:
        return abs(entry.scale) * min(map(abs, entry.limits)) * hz
    return entry.speed


def _check(contract: Contract, purpose: str) -> None:
    """Checks that a contract declares all that hands need; the message names what is missing."""
    lacks = next(_lacking(contract), None)
    if lacks:
        raise ValueError(
            f"{purpose} need Cartesian actions that are declared completely; {contract.embodiment} "
            f"lacks {lacks}. Declare it where the environment is made "
            "(docs/other-environments.md), or train policy=diffusion."
        )


def _lacking(contract: Contract) -> Iterator[str]:
    """Yields what a contract does not declare, in words."""
    if not contract.arms:
        yield "arms with T_base_gripper/ARM"
    for entry in contract.action:
        if entry.arm not in contract.arms:
            yield f"T_base_gripper/{entry.arm}, the measured pose of the arm of {entry.name}"
        yield from _lacking_of(entry, contract.control_hz)
    for arm in contract.arms:
        hand = _hand(contract, arm)
        for kind, places in (("position", hand.position), ("rotation", hand.rotation)):
            if len(places) != 3 and (places or kind == "position"):
                yield f"x, y and z of the {kind} of {arm}: it has {len(places)} dimensions"
            if len({(contract.action[at].mode, contract.action[at].frame) for at in places}) > 1:
                yield f"one mode and one frame for the {kind} of {arm}"


def _lacking_of(entry: ActionDimension, hz: float) -> Iterator[str]:
    """Yields what a dimension does not declare."""
    unit = {**_CARTESIAN, "gripper": "opening"}.get(entry.kind)
    if unit is None:
        yield f"Cartesian actions only: {entry.name} is of the kind {entry.kind}"
    elif entry.unit != unit:
        yield f"the unit {unit} of {entry.name}, which has {entry.unit!r}"
    elif entry.kind == "gripper":
        if entry.mode != "absolute":
            yield f"an absolute opening: {entry.name} is {entry.mode}"
    else:
        frames = ("base", "gripper") if entry.mode == "relative" else ("base",)
        if entry.frame not in frames:
            yield f"the frame {' or '.join(frames)} of {entry.name}, which has {entry.frame!r}"
        if _speed(entry, hz) is None:
            ways = " (or the limits)" if entry.mode == "relative" else ""
            yield f"the speed{ways} of {entry.name}, {unit}/s"
