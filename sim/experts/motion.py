"""Motion of grippers, and grasps: poses of the gripper in the frame of the object that it takes.

The correction is an integral control of an object's pose: measured errors are summed up until they
vanish.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import Matrix, between, pose, rotation_about

FORWARDS = np.array([1.0, 0.0, 0.0])
UP = np.array([0.0, 0.0, 1.0])
OPEN = 1.0


@dataclass(frozen=True)
class Grasp:
    """One way to take an object.

    Attributes:
        T_prop_gripper: (4, 4), the gripper in the object's frame when its pads close.
        closed: Commanded opening of the closed gripper, 0 to 1: less than the object's width, so
            that the drive pushes.
        opening: Opening of the approaching gripper.
        hover: Distance of the pre-grasp pose, backwards along the gripper's x axis, metres.
    """

    T_prop_gripper: Matrix
    closed: float
    opening: float = OPEN
    hover: float = 0.09


def gripper_pose(position: ArrayLike, forwards: ArrayLike, across: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) of a gripper.

    Args:
        position: (3,), middle between the pads, metres.
        forwards: (3,), direction in which the gripper points (its x axis), of any length.
        across: (3,), approximate direction in which the pads close (its y axis or the opposite).
    """
    x = np.asarray(forwards, dtype=np.float64) / np.linalg.norm(forwards)
    y = np.asarray(across, dtype=np.float64)
    y = y - (y @ x) * x
    y = y / np.linalg.norm(y)
    return pose(np.asarray(position, dtype=np.float64), np.stack([x, y, np.cross(x, y)], axis=1))


def downwards(position: ArrayLike, across: ArrayLike, lean_deg: float) -> Matrix:
    """Returns the pose (4, 4) of a gripper that points down, at a position (3,), metres.

    The pads close along the level direction `across` (3,). The gripper leans forwards at right
    angles to it.
    """
    level = np.cross(UP, np.asarray(across) / np.linalg.norm(across))
    lean = np.radians(lean_deg)
    return gripper_pose(position, np.sin(lean) * level - np.cos(lean) * UP, across)


def backed(T_base_gripper: Matrix, distance: float) -> Matrix:
    """Returns the pose moved backwards along the gripper's x axis, by metres."""
    return T_base_gripper @ pose((-distance, 0.0, 0.0))


def raised(T_base_gripper: Matrix, height: float) -> Matrix:
    """Returns the pose moved up by metres."""
    result = T_base_gripper.copy()
    result[2, 3] += height
    return result


def both_ways(grasps: Iterable[Grasp]) -> list[Grasp]:
    """Returns each grasp, and each with the gripper turned by half a turn about its x axis."""
    turned = np.diag([1.0, -1.0, -1.0, 1.0])
    return [
        Grasp(T, grasp.closed, grasp.opening, grasp.hover)
        for grasp in grasps
        for T in (grasp.T_prop_gripper, grasp.T_prop_gripper @ turned)
    ]


def rim_grasps(
    radius: float,
    height: float,
    *,
    azimuths_deg: Iterable[float],
    pitches_deg: Iterable[float],
    depth: float = 0.0,
    opening: float = 0.7,
    hover: float = 0.07,
) -> list[Grasp]:
    """Returns grasps of a round object by its rim: one finger inside, one outside, from any side.

    `radius` is that of the middle of the wall, `height` that of the rim in the object's frame,
    `depth` the distance of the pads' middle beyond the rim, and `hover` that of the pre-grasp pose,
    all in metres. Azimuths are about the object's z axis. A pitch of 90 points straight down.
    """
    found = []
    for azimuth in np.radians(list(azimuths_deg)):
        radial = np.array([np.cos(azimuth), np.sin(azimuth), 0.0])
        for pitch in np.radians(list(pitches_deg)):
            forwards = -np.cos(pitch) * radial - np.sin(pitch) * UP
            across = np.cos(pitch) * UP - np.sin(pitch) * radial
            at = radius * radial + height * UP + depth * forwards
            # The gripper may be turned by half a turn: its pads are alike.
            for sign in (1.0, -1.0):
                found.append(Grasp(gripper_pose(at, forwards, sign * across), 0.0, opening, hover))
    return found


Target = Callable[[], Matrix]
# Metres or radians; smaller movements of a target do not change the solution for the joints.
RETARGET = 5e-4
TOLERANCE = 2e-5  # Metres or radians; larger errors cause jitter of the accelerations.
GRIPPER_SPEED = 1.9  # Openings per second, a little below the servo's limit.


@dataclass(frozen=True)
class Move:
    """The motion of an arm in one phase.

    Attributes:
        target: Returns `T_base_gripper` (4, 4); called at every step, so it may follow an object.
        straight: Whether the way is straight for the gripper (short ways near objects) or in joint
            space (long ways).
    """

    target: Target
    straight: bool = False


class Motion:
    """Turns moves into joint targets with zero speed at both ends of every phase.

    A phase follows the minimum-jerk profile s = 10 u^3 - 15 u^4 + 6 u^5 (Flash and Hogan 1985).
    Over a way d in the time T its speed peaks at 1.875 d / T and its acceleration at 5.774 d / T^2;
    phases are stretched until both limits hold: `top_speed` in rad/s and `top_acceleration` in
    rad/s^2, of the fastest revolute joint. Those of the others are lower by the ratio of their
    velocity limits. The first phase begins at `start` (J,), by default the home pose.

    Attributes:
        q: (J,), current joint targets.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        kinematics: InverseKinematics,
        control_hz: float,
        *,
        start: Vector | None = None,
        top_speed: float = 2.8,
        top_acceleration: float = 7.0,
    ) -> None:
        self._embodiment = embodiment
        self._kinematics = kinematics
        self._control_hz = control_hz
        self._top_speed = top_speed
        self._top_acceleration = top_acceleration
        self._slowness = _slowness(embodiment)
        self.q = (embodiment.home if start is None else start).copy()
        self._wanted = {arm: self.q[place] for arm, place in embodiment.grippers.items()}

    def grip(self, arm: str, opening: float) -> None:
        """Sets the target opening of a gripper, which moves there at its own speed."""
        self._wanted[arm] = opening

    def hold(self, seconds: float) -> Iterator[Vector]:
        """Yields constant joint targets (J,), while grippers move."""
        for _ in range(round(seconds * self._control_hz)):
            self._move_grippers()
            yield self.q.copy()

    def go(self, seconds: float, moves: Mapping[str, Move]) -> Iterator[Vector]:
        """Yields joint targets (J,) that reach the targets in that time, or as limits allow."""
        tracks = {
            arm: _Track(self._embodiment, self._kinematics, arm, move, self.q)
            for arm, move in moves.items()
        }
        distance = max(track.distance(self._slowness) for track in tracks.values())
        for share in self._shares(seconds, distance):
            for arm, track in tracks.items():
                self.q[self._embodiment.revolute_joints[arm]] = track.at(share)
            self._move_grippers()
            yield self.q.copy()

    def go_home(self, seconds: float, arms: Sequence[str]) -> Iterator[Vector]:
        """Returns joint targets (J,) that bring arms home from any pose, without kinematics."""
        return self.turn(seconds, dict.fromkeys(arms, self._embodiment.home))

    def _shares(self, seconds: float, distance: float) -> Iterator[float]:
        """Yields the share of the way after each step; the distance is scaled by `_slowness`."""
        seconds = max(
            seconds,
            1.875 * distance / self._top_speed,
            np.sqrt(5.774 * distance / self._top_acceleration),
        )
        steps = int(np.ceil(seconds * self._control_hz))
        for step in range(1, steps + 1):
            u = step / steps
            yield u**3 * (10 - 15 * u + 6 * u**2)

    def step(self, arm: str, T_base_gripper: Matrix) -> Vector:
        """Returns the next joint targets (J,), with one arm at a pose (4, 4): for small steps."""
        revolute = self._embodiment.revolute_joints[arm]
        q = self._kinematics.solve({arm: T_base_gripper}, self.q, tolerance=TOLERANCE)
        self.q[revolute] = q[revolute]
        self._move_grippers()
        return self.q.copy()

    def turn(self, seconds: float, goals: Mapping[str, Vector]) -> Iterator[Vector]:
        """Yields joint targets (J,) that take each arm to its goal (J,), timed as in `go`."""
        start = self.q.copy()
        ways = {
            arm: (goal - start)[self._embodiment.revolute_joints[arm]]
            for arm, goal in goals.items()
        }
        slowness = {arm: self._slowness[self._embodiment.revolute_joints[arm]] for arm in ways}
        distance = max(float((np.abs(way) * slowness[arm]).max()) for arm, way in ways.items())
        for share in self._shares(seconds, distance):
            for arm, way in ways.items():
                revolute = self._embodiment.revolute_joints[arm]
                self.q[revolute] = start[revolute] + share * way
            self._move_grippers()
            yield self.q.copy()

    def _move_grippers(self) -> None:
        for arm, opening in self._wanted.items():
            place = self._embodiment.grippers[arm]
            most = GRIPPER_SPEED / self._control_hz
            self.q[place] += np.clip(opening - self.q[place], -most, most)


class _Track:
    """The way of one arm in one phase."""

    def __init__(
        self, embodiment: Embodiment, kinematics: InverseKinematics, arm: str, move: Move, q: Vector
    ) -> None:
        self._kinematics = kinematics
        self._arm = arm
        self._move = move
        self._revolute = embodiment.revolute_joints[arm]
        self._start = q.copy()
        self._now = q.copy()
        self._T_start = embodiment.forward_kinematics(q)[arm]
        self._T_goal = move.target()
        self._goal = self._solve(self._T_goal, q)

    def distance(self, slowness: Vector) -> float:
        """Returns the longest way of a revolute joint, rad, scaled by the joints' slowness (J,)."""
        return float((np.abs(self._goal - self._start) * slowness)[self._revolute].max())

    def at(self, share: float) -> Vector:
        """Returns the arm's revolute joints after a share of the way, 0 to 1."""
        T_goal = self._move.target()
        if np.abs(T_goal - self._T_goal).max() > RETARGET:
            self._T_goal = T_goal
            self._goal = self._solve(T_goal, self._goal)
        if not self._move.straight:
            return (self._start + share * (self._goal - self._start))[self._revolute]
        self._now = self._solve(between(self._T_start, self._T_goal, share), self._now)
        return self._now[self._revolute]

    def _solve(self, T_base_gripper: Matrix, q: Vector) -> Vector:
        return self._kinematics.solve({self._arm: T_base_gripper}, q, tolerance=TOLERANCE)


def _slowness(embodiment: Embodiment) -> Vector:
    """Returns the largest velocity limit over that of each joint (J,); 1 for grippers."""
    revolute = np.array([joint.kind == "revolute" for joint in embodiment.joints])
    limits = embodiment.velocity_limits
    return np.where(revolute, limits[revolute].max() / limits, 1.0)


GAIN = 0.05  # Share of the measured error that is corrected per control period.
# Metres and radians beyond which errors are ignored, because the arm is still on its way.
NEAR = (0.012, 0.15)


def rotation_vector(rotation: Matrix) -> Vector:
    """Returns axis times angle (3,) of a rotation (3, 3) by less than half a turn."""
    difference = rotation - rotation.T
    skew = np.array([difference[2, 1], difference[0, 2], difference[1, 0]]) / 2
    sine = np.linalg.norm(skew)
    return skew if sine < 1e-9 else skew / sine * np.arctan2(sine, (np.trace(rotation) - 1) / 2)


def twist(transform: Matrix) -> Vector:
    """Returns the translation and the rotation vector (6,) of a transform (4, 4)."""
    return np.concatenate([transform[:3, 3], rotation_vector(transform[:3, :3])])


class Correction:
    """The correction of a target that makes an object reach it, in spite of friction and weight.

    Attributes:
        transform: (4, 4), right factor of the target, before the object's own pose.
    """

    def __init__(self) -> None:
        self._sum = np.zeros(6)
        self.transform = np.eye(4)

    def update(self, error: Vector) -> None:
        """Adds an error (6,), metres and a rotation vector, unless the arm is still far off."""
        if np.linalg.norm(error[:3]) < NEAR[0] and np.linalg.norm(error[3:]) < NEAR[1]:
            self._sum = np.clip(self._sum - GAIN * error, -np.repeat(NEAR, 3), np.repeat(NEAR, 3))
            angle = float(np.linalg.norm(self._sum[3:]))
            turn = rotation_about(self._sum[3:] / angle, angle) if angle > 1e-9 else np.eye(3)
            self.transform = pose(self._sum[:3], turn)
