"""Trajectories between keyposes, in joints or poses of the hands, within the robot's limits.

A plan is a track of coordinates q (J,). Joints are commanded as they are. Of hands, q has position,
rotation vector where the hand turns on command, and opening; each action follows from the track and
from the measured poses by the meaning that the contract declares.

A free trajectory is a polynomial of degree five for each joint. A straight one is straight for the
gripper, with rest at both ends, and is stretched in time until no joint is beyond its limits.

This module does not import torch.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import NOT_NEGATIVE, POSITIVE, Range
from stringline.datasets.contract.contract import Observation
from stringline.datasets.embodiments.arm_commands import (
    ArmCommands,
    CartesianCommands,
    JointCommands,
)
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import (
    Matrix,
    angle_between,
    between,
    rotation_vector,
    turned,
)

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
        self.of_arm: Sequence[NDArray[np.int64]] = [
            np.asarray(embodiment.revolute_joints[arm]) for arm in self.arms
        ]
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
        self.of_arm: Sequence[NDArray[np.int64]] = places
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


logger = logging.getLogger(__name__)
_KNOTS_S = 0.08
"""Time between two solutions of the inverse kinematics; joints are interpolated between them."""
_MOST_LONGER = 2.5
"""Factor of the time of a straight part from which its rotation gives way at a singularity."""

_TURNS = 3
"""Turns of a spiral."""
_SEARCH_SPEED = 0.02
"""Mean speed on a spiral, m/s."""


@dataclass(frozen=True, kw_only=True)
class MotionSettings:
    """Speeds, times and distances of the motion.

    Attributes:
        speed: Largest share of the velocity limits of the joints, above 0 to 1.
        acceleration: Largest acceleration of the fastest revolute joint, rad/s^2; that of others is
            lower by the ratio of their velocity limits.
        hand_acceleration: The same of hands that are commanded by their poses, m/s^2.
        straight_speed: Mean speed on straight parts, m/s.
        least_s: Least time of a straight part, s.
        settle_s: Time between arrival and stroke, s.
        close_s: Time from the beginning of a closing stroke until the arm moves on, s.
        open_s: The same of an opening stroke.
        press_m: Distance by which a gripper that opens moves further along its straight way than
            predicted, m: what it inserts is deep enough in spite of errors along the way.
        search_m: Radius of the spiral by which a gripper that something stops on its straight way
            to where it opens searches for the way in, m (Chhatpar and Branicky, 2001); 0: none.
        same_m: A keypose within this distance, m, and the angle same_rad of the gripper's present
            target is where the gripper is: only the gripper acts.
        same_rad: Angle beside same_m, rad.
        jump_m: On the way, a prediction further away than this from the goal must come twice.
        missed: Number of misses at a place after which another mode is chosen; a load that slips
            out of the gripper is one as well.
        rest: Probability that an arm acts below which the arms rest.
        rest_holding: The same while a gripper holds something, which it would not keep for ever.
        reach_m: Remaining error of the kinematics from which a warning names a keypose as out of
            reach, m or rad.
    """

    speed: float = 0.8
    acceleration: float = 7.0
    hand_acceleration: float = 4.0
    straight_speed: float = 0.2
    least_s: float = 0.6
    settle_s: float = 0.12
    close_s: float = 0.5
    open_s: float = 0.35
    press_m: float = 0.0
    search_m: float = 0.0
    same_m: float = 0.025
    same_rad: float = 0.25
    jump_m: float = 0.06
    missed: int = 2
    rest: float = 0.3
    rest_holding: float = 0.1
    reach_m: float = 0.02

    def __post_init__(self) -> None:
        Range(above=0, most=1).check(speed=self.speed)
        Range(least=0, most=0.5).check(rest=self.rest, rest_holding=self.rest_holding)
        Range(least=1, whole=True).check(missed=self.missed)
        for name in ("acceleration", "hand_acceleration", "straight_speed", "least_s", "reach_m"):
            POSITIVE.check(**{name: getattr(self, name)})
        for name in (
            "press_m",
            "search_m",
            "settle_s",
            "close_s",
            "open_s",
            "same_m",
            "same_rad",
            "jump_m",
        ):
            NOT_NEGATIVE.check(**{name: getattr(self, name)})


class TrajectoryPlanner:
    """Plans the trajectories of an episode.

    Args:
        space: The coordinates in which the arms move.
        control_hz: Targets per second.
        settings: See `MotionSettings`.

    Attributes:
        top_speed: (J,) largest speeds, units/s.
    """

    def __init__(self, space: MotionSpace, control_hz: float, settings: MotionSettings) -> None:
        self._space = space
        self._arms = space.arms
        self._dt = 1.0 / control_hz
        self._settings = settings
        self._moving = space.moving
        self.top_speed = settings.speed * space.speeds
        self._top_acceleration = space.accelerations(
            settings.acceleration, settings.hand_acceleration
        )
        self._warned = False

    def solved(self, targets: dict[int, Floats], q: Vector) -> Vector:
        """Returns joints (J,) at, or as near as possible to, the targets of some arms."""
        named = {self._arms[arm]: pose for arm, pose in targets.items()}
        found, errors = self._space.nearest(named, q)
        worst = max(errors, key=lambda arm: errors[arm])
        if errors[worst] > self._settings.reach_m and not self._warned:
            self._warned = True
            logger.warning(
                "A keypose of %s at %s m is out of reach by %.3f (m or rad); the arm goes as near "
                "as it can.",
                worst,
                np.round(named[worst][:3, 3], 3).tolist(),
                errors[worst],
            )
        return found

    def free(self, q: Vector, v: Vector, a: Vector, goal: Vector, least_s: float) -> Floats:
        """Returns targets (T, J) from a state to rest at a goal, within the limits.

        A polynomial of degree five for each joint (minimum jerk; Flash and Hogan, 1985, for rest at
        both ends), stretched until speeds and accelerations are within the limits.
        """
        way = np.abs(goal - q)
        seconds = max(
            least_s,
            float((1.875 * way / self.top_speed).max()),
            float(np.sqrt(5.774 * way[self._moving] / self._top_acceleration[self._moving]).max()),
        )
        start_speed = np.abs(v[self._moving])
        track = q[None]
        for _ in range(40):
            count = max(int(np.ceil(seconds / self._dt)), 2)
            seconds = count * self._dt
            t = self._dt * np.arange(1, count + 1, dtype=np.float64)[:, None]
            track = _polynomial(q, v, a, goal, seconds, t)
            speed = np.abs(np.diff(track, axis=0, prepend=q[None])) / self._dt
            bend = np.abs(np.diff(track, n=2, axis=0)) / self._dt**2
            fast = speed[:, self._moving] / np.maximum(self.top_speed[self._moving], start_speed)
            strong = bend[:, self._moving] / (1.3 * self._top_acceleration[self._moving])
            if fast.max() <= 1.05 and (not len(strong) or strong.max() <= 1.0):
                break
            seconds *= 1.12
        return np.clip(track, self._space.lower, self._space.upper)

    def straight(
        self, q: Vector, targets: dict[int, Floats], least_s: float | None = None
    ) -> Floats | None:
        """Returns targets (T, J) along straight ways with rest at both ends; None means no way."""
        now = self._space.poses(q)
        starts = {arm: now[self._arms[arm]] for arm in targets}
        length = max(float(np.linalg.norm(targets[a][:3, 3] - starts[a][:3, 3])) for a in targets)
        turn = max(angle_between(starts[arm][:3, :3], targets[arm][:3, :3]) for arm in targets)
        if length < 1e-3 and turn < 5e-3:
            return None
        seconds = max(
            self._settings.least_s if least_s is None else least_s,
            length / self._settings.straight_speed,
            turn / 1.0,
        )
        knots = max(int(np.ceil(seconds / _KNOTS_S)), 3)
        shares = np.arange(1, knots + 1) / knots
        solved = [q]
        for share in shares:
            solved.append(self.solved(_on_the_way(starts, targets, share), solved[-1]))
        track = self._timed(np.stack(solved), seconds, _MOST_LONGER)
        if track is None:
            # Past a straight wrist two joints turn fast and far to hold a rotation. Between the
            # same ends the rotation may differ a little instead.
            end = solved[-1]
            bent = [q, *(q + share * (end - q) for share in shares)]
            for knot in range(1, knots):
                poses = _on_the_way(starts, targets, shares[knot - 1])
                named = {self._arms[arm]: pose for arm, pose in poses.items()}
                bent[knot] = self._space.nearest_places(named, bent[knot])
            track = self._timed(np.stack(bent), seconds, 2 * _MOST_LONGER)
        if track is None:
            track = self.free(q, np.zeros_like(q), np.zeros_like(q), solved[-1], seconds)
        return np.clip(track, self._space.lower, self._space.upper)

    def spiral(self, q: Vector, arm: int, centre: Floats, along: Floats, radius: float) -> Floats:
        """Returns targets (T, J) of an arm from the joints q on a spiral around a direction.

        Args:
            q: (J,).
            arm: The arm.
            centre: (4, 4) pose at which the spiral begins; its rotation is kept.
            along: (3,) the direction, of length 1.
            radius: At the end, m.
        """
        side = np.cross(along, np.eye(3)[np.abs(along).argmin()])
        side /= np.linalg.norm(side)
        angles = np.linspace(0.0, 2 * np.pi * _TURNS, 8 * _TURNS + 1)
        solved = [q]
        for angle in angles:
            pose = centre.copy()
            way = np.cos(angle) * side + np.sin(angle) * np.cross(along, side)
            pose[:3, 3] += radius * angle / angles[-1] * way
            solved.append(self.solved({arm: pose}, solved[-1]))
        seconds = np.pi * _TURNS * radius / _SEARCH_SPEED + self._settings.least_s
        track = self._timed(np.stack(solved), seconds, _MOST_LONGER)
        if track is None:
            track = self.free(q, np.zeros_like(q), np.zeros_like(q), solved[1], seconds)
        return np.clip(track, self._space.lower, self._space.upper)

    def _timed(self, path: Floats, seconds: float, longer: float) -> Floats | None:
        """Returns targets (T, J) along a path (K, J) within the limits.

        The time is `seconds` or longer; None if it would be more than `longer` times as long.
        """
        most = longer * seconds
        while seconds <= most:
            count = int(np.ceil(seconds / self._dt))
            u = np.arange(1, count + 1) / count
            track = _along(path, u**3 * (10 - 15 * u + 6 * u**2))
            speed = np.abs(np.diff(track, axis=0, prepend=path[:1])) / self._dt
            bend = np.abs(np.diff(track, n=2, axis=0)) / self._dt**2
            fast = (speed / self.top_speed)[:, self._moving].max()
            strong = (bend[:, self._moving] / (1.3 * self._top_acceleration[self._moving])).max()
            if fast <= 1.0 and strong <= 1.0:
                return track
            seconds *= 1.15
        return None

    def held(self, q: Vector, seconds: float) -> Floats:
        """Returns targets (T, J) that stay for a time."""
        return np.repeat(q[None], max(round(seconds / self._dt), 1), axis=0)


def _on_the_way(
    starts: dict[int, Floats], targets: dict[int, Floats], share: float
) -> dict[int, Floats]:
    return {arm: between(starts[arm], targets[arm], float(share)) for arm in targets}


def _polynomial(q: Vector, v: Vector, a: Vector, goal: Vector, T: float, t: Floats) -> Floats:
    """Returns the polynomials of degree five at times t (N, 1), with rest at the end."""
    way = goal - q
    c3 = (20 * way - 12 * v * T - 3 * a * T**2) / (2 * T**3)
    c4 = (-30 * way + 16 * v * T + 3 * a * T**2) / (2 * T**4)
    c5 = (12 * way - 6 * v * T - a * T**2) / (2 * T**5)
    return np.asarray(q + v * t + a / 2 * t**2 + c3 * t**3 + c4 * t**4 + c5 * t**5)


def _along(path: Floats, shares: Floats) -> Floats:
    """Returns a path (K, J) with equal steps at shares (N,) of its length, by cubic pieces.

    Catmull and Rom's splines, with speeds of one side at both ends.
    """
    steps = len(path) - 1
    slope = np.gradient(path, axis=0)
    place = np.clip(shares * steps, 0.0, steps)
    first = np.minimum(place.astype(int), steps - 1)
    u = (place - first)[:, None]
    p = path[first]
    q = path[first + 1]
    m = slope[first]
    n = slope[first + 1]
    return np.asarray(
        (2 * u**3 - 3 * u**2 + 1) * p
        + (u**3 - 2 * u**2 + u) * m
        + (3 * u**2 - 2 * u**3) * q
        + (u**3 - u**2) * n
    )
