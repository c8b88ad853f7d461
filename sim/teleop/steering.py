"""From the poses that a person wants the grippers at to joint targets: bounded in speed, and as near as the arms can reach."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics
from stringline.datasets.embodiments.transforms import Matrix, pose
from stringline.sim.teleop.poses import apart, between, turned

# Metres or radians; nearer, an arm rests, so that it does not creep while nobody moves it.
ARRIVED = 1e-4
# Metres, with radians weighed as below; an arm that stays farther off than this is said to be held
# short.
SHORT = 5e-3
METRES_PER_RADIAN = 0.3  # As the inverse kinematics weighs them.
STALLED = 0.15  # Share of the way that it should have gone, below which an arm counts as stopped.
MEMORY = 0.9  # Of the mean over the last control periods by which that is judged: some ten of them.
# How far a stick pushes a target ahead of the arm that follows it.
LEASH_M = 0.05
LEASH_RAD = 0.35
# Damps the joints where an arm is stretched out; without it they would swing there from one period
# to the next.
POSTURE_COST = 0.02


@dataclass(frozen=True)
class Speeds:
    """How fast arms follow what is asked of them.

    Attributes:
        linear: Of a gripper, m/s.
        angular: Of a gripper, rad/s.
        joints: Share, above 0 to 1, of the hinges' largest speed that they may take.
    """

    linear: float = 0.3
    angular: float = 2.0
    joints: float = 0.8

    def __post_init__(self) -> None:
        """Refuses what would never arrive, and what the body cannot do."""
        if not self.linear > 0 or not self.angular > 0 or not 0 < self.joints <= 1:
            raise ValueError(
                f"Got the speeds linear={self.linear}, angular={self.angular}, "
                f"joints={self.joints}; "
                "allowed: above 0, and joints at most 1."
            )


@dataclass(frozen=True)
class Reach:
    """How far an arm still is from where it is wanted.

    Attributes:
        metres: Between the places.
        radians: Between the orientations.
        held: Whether it stands there, since its target is out of reach.
    """

    metres: float = 0.0
    radians: float = 0.0
    held: bool = False


class Steering:
    """Keeps a wanted pose and opening for each gripper, and says the joint targets of the next control period.

    In each period the gripper's pose goes a bounded step towards the wanted one, on a line and
    about one axis, and the joints follow by one step of inverse kinematics within their limits.
    Where that brings it no nearer it stands still, which is the nearest reachable pose on its way;
    it goes on by itself once the target is within reach again.

    Args:
        body: Of the arms.
        control_hz: Joint targets per second.
        speeds: Of grippers and joints.

    Attributes:
        q: The last joint targets (J,).
    """

    def __init__(self, body: Embodiment, control_hz: float, speeds: Speeds | None = None) -> None:
        self._body = body
        self._period = 1.0 / control_hz
        self._speeds = speeds or Speeds()
        self._kinematics = InverseKinematics(body, posture_cost=POSTURE_COST)
        self.reset(body.home)

    def reset(self, q: Vector) -> None:
        """Begins at joints (J,), with the arms wanted where they are."""
        self.q = np.array(q, dtype=np.float64)
        self._poses = self._body.forward_kinematics(self.q)
        self._targets = {arm: target.copy() for arm, target in self._poses.items()}
        self._openings = {arm: float(self.q[place]) for arm, place in self._body.grippers.items()}
        self._progress = dict.fromkeys(self._body.arms, 1.0)

    @property
    def targets(self) -> Mapping[str, Matrix]:
        """The wanted `T_base_gripper` (4, 4) by arm."""
        return self._targets

    @property
    def poses(self) -> Mapping[str, Matrix]:
        """The commanded `T_base_gripper` (4, 4) by arm: where the joint targets put it."""
        return self._poses

    @property
    def openings(self) -> Mapping[str, float]:
        """The wanted openings by arm, 0 closed to 1 open."""
        return self._openings

    def aim(self, arm: str, T_base_gripper: Matrix) -> None:
        """Wants a gripper at a pose (4, 4) in the base frame, reachable or not.

        Raises:
            ValueError: There is no such arm, or the pose is no rigid transform.
        """
        self._require(arm)
        if T_base_gripper.shape != (4, 4) or not np.isfinite(T_base_gripper).all():
            raise ValueError(
                f"The target of {arm!r} must be a finite 4x4 matrix; got {T_base_gripper.tolist()}."
            )
        rotation = T_base_gripper[:3, :3]
        if (
            not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-4)
            or np.linalg.det(rotation) < 0
        ):
            raise ValueError(
                f"The target of {arm!r} is turned by {rotation.tolist()}, which is no rotation."
            )
        self._targets[arm] = T_base_gripper.copy()

    def grip(self, arm: str, opening: float) -> None:
        """Wants a gripper at an opening; below 0 counts as 0, above 1 as 1.

        Raises:
            ValueError: There is no such gripper, or the opening is not finite.
        """
        if arm not in self._openings:
            raise unknown_name("gripper", arm, self._openings)
        if not np.isfinite(opening):
            raise ValueError(f"The opening of {arm!r} is {opening}; allowed: 0 to 1.")
        self._openings[arm] = float(np.clip(opening, 0.0, 1.0))

    def push(self, arm: str, linear: Vector, angular: Vector) -> None:
        """Moves a target for one control period, as a stick does, but no farther ahead of its arm than a hand's breadth.

        Args:
            arm: Which.
            linear: Share (3,) of the largest speed along the axes of the base frame, each -1 to 1.
            angular: Share (3,) of the largest speed about the gripper's own axes, each -1 to 1.

        Raises:
            ValueError: There is no such arm.
        """
        self._require(arm)
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
        """Wants an arm where it is.

        Raises:
            ValueError: There is no such arm.
        """
        self._require(arm)
        self._targets[arm] = self._poses[arm].copy()

    def reach(self, arm: str) -> Reach:
        """Says how far an arm is from its target, and whether it is held there.

        Raises:
            ValueError: There is no such arm.
        """
        self._require(arm)
        metres, radians = apart(self._poses[arm], self._targets[arm])
        return Reach(
            metres, radians, _cost(metres, radians) > SHORT and self._progress[arm] < STALLED
        )

    def step(self) -> Vector:
        """Returns the joint targets (J,) of the next control period."""
        costs = {arm: self._cost(arm) for arm in self._body.arms}
        shares = {arm: self._share(arm) for arm in self._body.arms}
        steps = {
            arm: between(self._poses[arm], self._targets[arm], share)
            for arm, share in shares.items()
            if share
        }
        if steps:
            self.q = self._kinematics.step(steps, self.q, self._speeds.joints * self._period)
            self._poses = self._body.forward_kinematics(self.q)
        for arm, share in shares.items():
            gone = (costs[arm] - self._cost(arm)) / (share * costs[arm]) if share else 1.0
            self._progress[arm] = MEMORY * self._progress[arm] + (1 - MEMORY) * gone
        for arm, place in self._body.grippers.items():
            most = self._speeds.joints * self._body.velocity_limits[place] * self._period
            self.q[place] += np.clip(self._openings[arm] - self.q[place], -most, most)
        return self.q.copy()

    def _share(self, arm: str) -> float:
        """Returns the share of its way to the target that a gripper goes in the next period, 0 where it has arrived."""
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

    def _require(self, arm: str) -> None:
        if arm not in self._targets:
            raise unknown_name("arm", arm, self._targets)


def _cost(metres: float, radians: float) -> float:
    return metres + METRES_PER_RADIAN * radians
