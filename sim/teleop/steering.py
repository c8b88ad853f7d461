"""Joint targets that follow target poses of the grippers, with bounded speeds.

Conversions and interpolation of poses are exact for rotations by half a turn, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import (
    Matrix,
    pose,
    rotation_about,
    rotation_vector,
    turned,
)

X, Y, Z = np.eye(3)


def apart(a: Matrix, b: Matrix) -> tuple[float, float]:
    """Returns the distance of two poses (4, 4) in metres and radians."""
    turn = float(np.linalg.norm(rotation_vector(a[:3, :3].T @ b[:3, :3])))
    return float(np.linalg.norm(a[:3, 3] - b[:3, 3])), turn


def between(start: Matrix, goal: Matrix, share: float) -> Matrix:
    """Returns the pose (4, 4) after a share (0 to 1) of a straight way with a fixed axis."""
    turn = share * rotation_vector(start[:3, :3].T @ goal[:3, :3])
    return pose(start[:3, 3] + share * (goal[:3, 3] - start[:3, 3]), start[:3, :3] @ turned(turn))


def pose_of_angles(position: ArrayLike, heading_tilt_roll_deg: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) at a position (3,) in metres, rotated by three angles in degrees.

    The gripper points along x at first; it turns by the heading about z, then by the tilt about its
    own y (positive: down), then by the roll about its own x.
    """
    heading, tilt, roll = np.radians(np.asarray(heading_tilt_roll_deg, dtype=np.float64))
    return pose(
        position, rotation_about(Z, heading) @ rotation_about(Y, tilt) @ rotation_about(X, roll)
    )


def angles_of_pose(T: Matrix) -> Vector:
    """Returns heading, tilt and roll (3,), degrees, of a pose (4, 4); roll is 0 at a tilt of 90."""
    rotation = T[:3, :3]
    level = float(np.hypot(rotation[0, 0], rotation[1, 0]))
    tilt = np.arctan2(-rotation[2, 0], level)
    if level < 1e-6:
        return np.degrees([np.arctan2(-rotation[0, 1], rotation[1, 1]), tilt, 0.0])
    heading = np.arctan2(rotation[1, 0], rotation[0, 0])
    roll = np.arctan2(rotation[2, 1], rotation[2, 2])
    return np.degrees([heading, tilt, roll])


def pose_of_quaternion(position: ArrayLike, wxyz: ArrayLike) -> Matrix:
    """Returns the pose (4, 4) at a position (3,), rotated by a quaternion (4,) of any length but 0.

    Raises:
        ValueError: The quaternion is zero or not finite.
    """
    wxyz = np.asarray(wxyz, dtype=np.float64)
    length = float(np.linalg.norm(wxyz))
    if not 1e-9 < length < np.inf:
        raise ValueError(f"The quaternion {wxyz.tolist()} is not a rotation.")
    w = wxyz[0] / length
    axis = wxyz[1:] / length
    cross = np.array([[0.0, -axis[2], axis[1]], [axis[2], 0.0, -axis[0]], [-axis[1], axis[0], 0.0]])
    return pose(position, np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross)


# Metres or radians; nearer to its target an arm rests, so that it does not creep.
ARRIVED = 1e-4
# Distance, metres and weighted radians, from which on a stopped arm counts as out of reach.
SHORT = 5e-3
METRES_PER_RADIAN = 0.3  # The weight of the inverse kinematics.
STALLED = 0.15  # Share of the commanded way below which an arm counts as stopped.
MEMORY = 0.9  # Weight of the past in the mean of that share: some ten control periods.
# Largest distance by which a stick pushes a target ahead of its arm.
LEASH_M = 0.05
LEASH_RAD = 0.35
# Damps the joints of a stretched-out arm, which would swing from one period to the next.
POSTURE_COST = 0.02


@dataclass(frozen=True)
class Speeds:
    """Speed limits of the arms.

    Attributes:
        linear: Linear speed of a gripper, m/s.
        angular: Angular speed of a gripper, rad/s.
        joints: Speed of the joints as a share of their velocity limits, above 0 to 1.
    """

    linear: float = 0.3
    angular: float = 2.0
    joints: float = 0.8

    def __post_init__(self) -> None:
        """Checks the ranges."""
        if not self.linear > 0 or not self.angular > 0 or not 0 < self.joints <= 1:
            raise ValueError(
                f"The speeds are linear={self.linear}, angular={self.angular}, "
                f"joints={self.joints}; allowed: above 0, and joints at most 1."
            )


@dataclass(frozen=True)
class Reach:
    """The distance of an arm from its target.

    Attributes:
        metres: Distance of the positions.
        radians: Angle between the orientations.
        held: Whether the arm has stopped because its target is out of reach.
    """

    metres: float = 0.0
    radians: float = 0.0
    held: bool = False


class Steering:
    """Converts the target pose and opening of each gripper to joint targets.

    In each control period the gripper's pose moves a bounded step towards the target, on a line and
    about one axis, and the joints follow by one step of inverse kinematics within their limits. If
    the target is out of reach, the arm stops at the nearest reachable pose on its way, and goes on
    once the target is in reach again.

    Attributes:
        q: (J,), the last joint targets.
    """

    def __init__(
        self, embodiment: Embodiment, control_hz: float, speeds: Speeds | None = None
    ) -> None:
        self._embodiment = embodiment
        self._period = 1.0 / control_hz
        self._speeds = speeds or Speeds()
        self._kinematics = InverseKinematics(embodiment, posture_cost=POSTURE_COST)
        self.reset(embodiment.home)

    def reset(self, q: Vector) -> None:
        """Starts at joints (J,), with the current poses as targets."""
        self.q = np.array(q, dtype=np.float64)
        self._poses = self._embodiment.forward_kinematics(self.q)
        self._targets = {arm: target.copy() for arm, target in self._poses.items()}
        self._openings = {
            arm: float(self.q[place]) for arm, place in self._embodiment.grippers.items()
        }
        self._progress = dict.fromkeys(self._embodiment.arms, 1.0)

    @property
    def targets(self) -> Mapping[str, Matrix]:
        """Target poses `T_base_gripper` (4, 4) by arm."""
        return self._targets

    @property
    def poses(self) -> Mapping[str, Matrix]:
        """Commanded poses `T_base_gripper` (4, 4) by arm: those of the joint targets."""
        return self._poses

    @property
    def openings(self) -> Mapping[str, float]:
        """Target openings by arm, 0 closed to 1 open."""
        return self._openings

    def aim(self, arm: str, T_base_gripper: Matrix) -> None:
        """Sets the target pose (4, 4) of a gripper in the base frame, reachable or not."""
        self._check_arm(arm)
        if T_base_gripper.shape != (4, 4) or not np.isfinite(T_base_gripper).all():
            raise ValueError(
                f"The target of {arm!r} must be a finite 4x4 matrix; got {T_base_gripper.tolist()}."
            )
        rotation = T_base_gripper[:3, :3]
        orthogonal = np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-4)
        if not orthogonal or np.linalg.det(rotation) < 0:
            raise ValueError(
                f"The target of {arm!r} has {rotation.tolist()}, which is not a rotation matrix."
            )
        self._targets[arm] = T_base_gripper.copy()

    def grip(self, arm: str, opening: float) -> None:
        """Sets the target opening of a gripper, clipped to 0 to 1."""
        if arm not in self._openings:
            raise unknown_name("gripper", arm, self._openings)
        if not np.isfinite(opening):
            raise ValueError(f"The opening of {arm!r} is {opening}; allowed: 0 to 1.")
        self._openings[arm] = float(np.clip(opening, 0.0, 1.0))

    def push(self, arm: str, linear: Vector, angular: Vector) -> None:
        """Moves a target for one control period, up to 5 cm and 20 degrees ahead of its arm.

        Args:
            arm: Name of the arm.
            linear: (3,), shares of the speed limit along the axes of the base frame, -1 to 1.
            angular: (3,), shares of the speed limit about the gripper's axes, -1 to 1.
        """
        self._check_arm(arm)
        target = self._targets[arm]
        target = pose(
            target[:3, 3] + self._speeds.linear * self._period * np.clip(linear, -1.0, 1.0),
            target[:3, :3]
            @ turned(self._speeds.angular * self._period * np.clip(angular, -1.0, 1.0)),
        )
        metres, radians = apart(self._poses[arm], target)
        leash = min(1.0, LEASH_M / max(metres, 1e-9), LEASH_RAD / max(radians, 1e-9))
        self._targets[arm] = between(self._poses[arm], target, leash)

    def recall(self, arm: str) -> None:
        """Sets the target of an arm to its current pose."""
        self._check_arm(arm)
        self._targets[arm] = self._poses[arm].copy()

    def reach(self, arm: str) -> Reach:
        """Returns the distance of an arm from its target, and whether it has stopped."""
        self._check_arm(arm)
        metres, radians = apart(self._poses[arm], self._targets[arm])
        held = _cost(metres, radians) > SHORT and self._progress[arm] < STALLED
        return Reach(metres, radians, held)

    def step(self) -> Vector:
        """Returns the joint targets (J,) of the next control period."""
        costs = {arm: self._cost(arm) for arm in self._embodiment.arms}
        shares = {arm: self._share(arm) for arm in self._embodiment.arms}
        steps = {
            arm: between(self._poses[arm], self._targets[arm], share)
            for arm, share in shares.items()
            if share
        }
        if steps:
            self.q = self._kinematics.step(steps, self.q, self._speeds.joints * self._period)
            self._poses = self._embodiment.forward_kinematics(self.q)
        for arm, share in shares.items():
            gone = (costs[arm] - self._cost(arm)) / (share * costs[arm]) if share else 1.0
            self._progress[arm] = MEMORY * self._progress[arm] + (1 - MEMORY) * gone
        for arm, place in self._embodiment.grippers.items():
            most = self._speeds.joints * self._embodiment.velocity_limits[place] * self._period
            self.q[place] += np.clip(self._openings[arm] - self.q[place], -most, most)
        return self.q.copy()

    def _share(self, arm: str) -> float:
        """Returns the next step of a gripper as a share of its way, 0 if it has arrived."""
        metres, radians = apart(self._poses[arm], self._targets[arm])
        if max(metres, radians) < ARRIVED:
            return 0.0
        return 1.0 / max(
            metres / (self._speeds.linear * self._period),
            radians / (self._speeds.angular * self._period),
            1.0,
        )

    def _cost(self, arm: str) -> float:
        return _cost(*apart(self._poses[arm], self._targets[arm]))

    def _check_arm(self, arm: str) -> None:
        if arm not in self._targets:
            raise unknown_name("arm", arm, self._targets)


def _cost(metres: float, radians: float) -> float:
    return metres + METRES_PER_RADIAN * radians
