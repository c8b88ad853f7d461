"""The coordinates in which arms move to keyposes: joints of a known robot, or poses of the hands.

A plan is a track of coordinates q (J,). Joints are commanded as they are. Of hands, q has position,
rotation vector where the hand turns on command, and opening; each action follows from the track and
from the measured poses by the meaning that the contract declares.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Observation
from stringline.datasets.embodiments.arm_commands import (
    ArmCommands,
    CartesianCommands,
    JointCommands,
)
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import Matrix, rotation_vector, turned

Floats = NDArray[np.float64]
Errors = dict[str, float]
ASTRAY_RAD = 0.4
ASTRAY_M = 0.15
"""From this distance between a hand and its target on, the plan starts anew where the hand is."""


class MotionSpace(Protocol):
    """Coordinates q (J,) of N arms.

    Attributes:
        arms: Names of the arms.
        grippers: Place of the opening of each arm that has a gripper.
        of_arm: Places of all other coordinates of each arm.
        moving: The same of all arms.
        lower: (J,) least coordinates.
        upper: (J,) greatest coordinates.
        speeds: (J,) largest speeds, units/s.
        astray: Distance of a moving coordinate from its target from which the plan starts anew.
    """

    arms: tuple[str, ...]
    grippers: Mapping[str, int]
    of_arm: Sequence[NDArray[np.int64]]
    moving: NDArray[np.int64]
    lower: Vector
    upper: Vector
    speeds: Vector
    astray: Vector

    @property
    def home(self) -> Vector:
        """Where the arms rest (J,)."""
        ...

    def accelerations(self, rad: float, m: float) -> Vector:
        """Returns the largest accelerations (J,), given those of revolute joints and of hands."""
        ...

    def measured(self, observation: Observation) -> Vector:
        """Returns the coordinates (J,) of an observation."""
        ...

    def poses(self, q: Vector) -> dict[str, Matrix]:
        """Returns `T_base_gripper` (..., 4, 4) of each arm at coordinates (..., J)."""
        ...

    def attainable(self, poses: Floats) -> Floats:
        """Returns poses (N, 4, 4) with the rotations that hands have which cannot turn."""
        ...

    def nearest(self, targets: Mapping[str, Matrix], q: Vector) -> tuple[Vector, Errors]:
        """Returns the coordinates nearest to target poses, from some on, and the errors, m or rad.

        Arms without a target, and openings, stay as they are.
        """
        ...

    def nearest_places(self, targets: Mapping[str, Matrix], q: Vector) -> Vector:
        """Returns the same for the positions of the targets, whose rotations may give way."""
        ...

    def actions(self, track: Floats, measured: Vector) -> Floats:
        """Returns the actions (T, A) for targets (T, J), one for each control period.

        Args:
            track: The targets; a command that is given now leads to the first one.
            measured: (J,) the coordinates now.
        """
        ...


class JointSpace:
    """The joints of a robot, whose inverse kinematics finds them for poses."""

    def __init__(self, embodiment: Embodiment) -> None:
        self._embodiment = embodiment
        self.arms = embodiment.arms
        self.grippers: Mapping[str, int] = embodiment.grippers
        self.of_arm = [np.asarray(embodiment.revolute_joints[arm]) for arm in self.arms]
        self.moving = np.concatenate(self.of_arm)
        self.lower = embodiment.lower
        self.upper = embodiment.upper
        self.speeds = embodiment.velocity_limits
        self.astray = np.full(len(self.speeds), ASTRAY_RAD)
        self._kinematics = InverseKinematics(embodiment)
        self._places = InverseKinematics(embodiment, orientation_cost=1e-3)

    @property
    def home(self) -> Vector:
        """The home of the robot (J,)."""
        return self._embodiment.home

    def accelerations(self, rad: float, m: float) -> Vector:
        """See `MotionSpace`; that of others than the fastest is lower by their speed limits."""
        del m
        return np.asarray(rad / (self.speeds[self.moving].max() / self.speeds))

    def measured(self, observation: Observation) -> Vector:
        """See `MotionSpace`."""
        return np.asarray(observation["joints/position"], np.float64)

    def poses(self, q: Vector) -> dict[str, Matrix]:
        """See `MotionSpace`."""
        return self._embodiment.forward_kinematics(q)

    def attainable(self, poses: Floats) -> Floats:
        """See `MotionSpace`: inverse kinematics tells."""
        return poses

    def nearest(self, targets: Mapping[str, Matrix], q: Vector) -> tuple[Vector, Errors]:
        """See `MotionSpace`."""
        return self._kinematics.nearest(targets, q, tolerance=2e-4, iterations=60)

    def nearest_places(self, targets: Mapping[str, Matrix], q: Vector) -> Vector:
        """See `MotionSpace`."""
        return self._places.nearest(targets, q, iterations=4)[0]

    def actions(self, track: Floats, measured: Vector) -> Floats:
        """See `MotionSpace`."""
        del measured
        return track


class TaskSpace:
    """Poses of hands that are commanded by their poses.

    The arms rest where they were at first. A hand that does not turn on command keeps the rotation
    that it had then.
    """

    def __init__(self, commands: CartesianCommands) -> None:
        self._commands = commands
        hands = commands.hands
        self.arms = tuple(hand.arm for hand in hands)
        places: list[NDArray[np.int64]] = []
        grippers: dict[str, int] = {}
        speeds: list[float] = []
        count = 0
        for hand in hands:
            length = 6 if hand.rotation else 3
            places.append(np.arange(count, count + length))
            speeds += 3 * [commands.speed(hand.position)]
            speeds += 3 * [commands.speed(hand.rotation)] if hand.rotation else []
            count += length
            if hand.gripper is not None:
                grippers[hand.arm] = count
                # A command of a gripper may jump.
                speeds.append(min(commands.speed([hand.gripper]), commands.hz))
                count += 1
        self.of_arm = places
        self.grippers: Mapping[str, int] = grippers
        self.moving = np.concatenate(places)
        self.speeds = np.array(speeds)
        self.lower = np.full(count, -np.inf)
        self.upper = np.full(count, np.inf)
        self.lower[list(grippers.values())] = 0.0
        self.upper[list(grippers.values())] = 1.0
        self._turns = np.zeros(count, bool)
        for one in places:
            self._turns[one[3:]] = True
        self.astray = np.where(self._turns, ASTRAY_RAD, ASTRAY_M)
        self._first: Floats | None = None
        self._home = np.zeros(count)

    @property
    def home(self) -> Vector:
        """Where the hands were at first (J,)."""
        return self._home

    def accelerations(self, rad: float, m: float) -> Vector:
        """See `MotionSpace`."""
        return np.where(self._turns, rad, m)

    def measured(self, observation: Observation) -> Vector:
        """See `MotionSpace`; an opening that is not measured counts as open."""
        poses = np.stack([observation[f"T_base_gripper/{arm}"] for arm in self.arms])
        begins = self._first is None
        if self._first is None:
            self._first = poses[:, :3, :3].astype(np.float64)
        q = self.coordinates(poses.astype(np.float64))
        for arm, place in self.grippers.items():
            joint = self._commands.openings.get(arm)
            q[place] = 1.0 if joint is None else observation["joints/position"][joint]
        if begins:
            self._home = q.copy()
        return q

    def coordinates(self, poses: Floats) -> Vector:
        """Returns the coordinates (J,) of poses (N, 4, 4) near the first ones; openings are 1."""
        q = np.ones(len(self.speeds))
        for number, places in enumerate(self.of_arm):
            q[places[:3]] = poses[number, :3, 3]
            if len(places) > 3:
                q[places[3:]] = self._turn(number, poses[number], np.zeros(3))
        return q

    def poses(self, q: Vector) -> dict[str, Matrix]:
        """See `MotionSpace`."""
        assert self._first is not None  # `measured` has been called.
        found = {}
        flat = np.asarray(q, np.float64).reshape(-1, q.shape[-1])
        for number, (arm, places) in enumerate(zip(self.arms, self.of_arm, strict=True)):
            T = np.tile(np.eye(4), (len(flat), 1, 1))
            T[:, :3, 3] = flat[:, places[:3]]
            T[:, :3, :3] = self._first[number]
            if len(places) > 3:
                T[:, :3, :3] = [turned(row[places[3:]]) @ self._first[number] for row in flat]
            found[arm] = T.reshape(*q.shape[:-1], 4, 4)
        return found

    def attainable(self, poses: Floats) -> Floats:
        """See `MotionSpace`."""
        assert self._first is not None
        found = poses.copy()
        for number, places in enumerate(self.of_arm):
            if len(places) == 3:
                found[number, :3, :3] = self._first[number]
        return found

    def nearest(self, targets: Mapping[str, Matrix], q: Vector) -> tuple[Vector, Errors]:
        """See `MotionSpace`; the errors are 0, since no limit of the arm is known."""
        found = q.copy()
        for arm, pose in targets.items():
            number = self.arms.index(arm)
            places = self.of_arm[number]
            found[places[:3]] = pose[:3, 3]
            if len(places) > 3:
                found[places[3:]] = self._turn(number, pose, q[places[3:]])
        return found, dict.fromkeys(targets, 0.0)

    def nearest_places(self, targets: Mapping[str, Matrix], q: Vector) -> Vector:
        """See `MotionSpace`."""
        return self.nearest(targets, q)[0]

    def actions(self, track: Floats, measured: Vector) -> Floats:
        """See `MotionSpace`.

        A relative action is the way from where the hand is, by what has been commanded since it was
        measured, to its target. So each plan also makes up for the measured error.
        """
        now = self._stacked(measured)
        actions = []
        for q, goal in zip(track, self._stacked(track), strict=True):
            openings = np.array(
                [q[self.grippers[a]] if a in self.grippers else 1.0 for a in self.arms]
            )
            actions.append(self._commands.action(now, goal, openings))
            now = self._commands.reached(actions[-1], now)
        return np.stack(actions)

    def _stacked(self, q: Vector) -> Floats:
        return np.stack(list(self.poses(q).values()), axis=-3)

    def _turn(self, number: int, pose: Matrix, near: Vector) -> Vector:
        """Returns the rotation vector (3,) from the first rotation, of those near another one."""
        assert self._first is not None
        vector = rotation_vector(pose[:3, :3] @ self._first[number].T)
        angle = float(np.linalg.norm(vector))
        if angle < 1e-9:
            return vector
        whole = vector / angle * 2 * np.pi
        return min((vector, vector - whole, vector + whole), key=lambda v: np.linalg.norm(v - near))


def motion_space(commands: ArmCommands) -> MotionSpace:
    """Returns the coordinates of an episode for what actions command."""
    if isinstance(commands, JointCommands):
        return JointSpace(commands.embodiment)
    return TaskSpace(commands)
