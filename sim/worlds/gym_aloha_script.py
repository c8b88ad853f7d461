"""The base of the experts of gym-aloha's tasks: joint targets from inverse kinematics.

ACT's own scripts drag the grippers by a soft weld and replay the resulting joints. These experts
use no weld: they solve for the poses of the objects, wait until the measured joints have arrived,
and grasp again if an object was not lifted.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.gym_aloha import GYM_ALOHA
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.experts.grasps import UP, raised
from stringline.sim.experts.motion import TOLERANCE, Motion, Move, Target
from stringline.sim.worlds.third_party_environment import ThirdPartyEnvironment

PACES = (0.9, 1.2)
Y = (0.0, 1.0, 0.0)
# From a gripper that points towards +x to one that points away from its arm.
FORWARDS: Mapping[str, Matrix] = {"left": np.eye(3), "right": np.diag([-1.0, -1.0, 1.0])}
WIDE = 0.9  # Opening before a grasp.
HOVER_M = 0.09
LIFT_M = 0.08
MEET = (0.0, 0.0, 0.25)
NEAR_M = 0.004  # The drives are weak and have much friction, so joints arrive slowly.
STEEPER_DEG = (62.0, 70.0, 80.0)  # For objects close to the arm.


def fixed(T_base_gripper: Matrix) -> Target:
    """Returns a target that does not move."""
    return lambda: T_base_gripper


class Script(ABC):
    """The joint targets (14,) of one episode, one for each control period."""

    def __init__(
        self,
        env: ThirdPartyEnvironment,
        kinematics: InverseKinematics,
        rng: np.random.Generator,
        pace: float,
    ) -> None:
        self.env = env
        self.pace = pace
        self.motion = Motion(GYM_ALOHA, kinematics, env.contract.control_hz)
        self._kinematics = kinematics
        self._prepare(rng)

    @abstractmethod
    def _prepare(self, rng: np.random.Generator) -> None:
        """Draws what varies between episodes."""

    @abstractmethod
    def run(self) -> Iterator[Vector]:
        """Yields the joint targets."""

    def reachable(
        self,
        arm: str,
        point: Vector,
        heights: Sequence[float],
        pitch_deg: float,
        yaw: float = 0.0,
    ) -> Matrix:
        """Returns a reachable orientation (3, 3) of a gripper at heights above a point (3,), m.

        The gripper points away from its arm and down, by an angle in degrees or a steeper one, and
        its pads close along y; then both are rotated by the yaw, rad.

        Raises:
            OutOfReachError: The arm cannot reach the point.
        """
        for pitch in (pitch_deg, *STEEPER_DEG):
            turned = rotation_about(UP, yaw) @ FORWARDS[arm]
            down = turned @ rotation_about(Y, np.radians(pitch))
            q = self.motion.q
            try:
                for height in heights:
                    q = self._kinematics.solve(
                        {arm: raised(pose(point, down), height)}, q, tolerance=TOLERANCE
                    )
            except OutOfReachError:
                continue
            return down
        raise OutOfReachError(
            f"The {arm} arm cannot reach the point {np.round(point, 3).tolist()} m."
        )

    def gripper(self, arm: str) -> Matrix:
        """Returns the measured pose (4, 4) of a gripper."""
        return GYM_ALOHA.forward_kinematics(self.env.joints())[arm]

    def go(self, seconds: float, moves: dict[str, Move]) -> Iterator[Vector]:
        """Moves grippers at the pace of the episode."""
        return self.motion.go(seconds * self.pace, moves)

    def settle(self, seconds: float, targets: Mapping[str, Target]) -> Iterator[Vector]:
        """Waits until all grippers are near their targets, at most `seconds`."""
        for wanted in self.motion.hold(seconds):
            away = [
                np.abs((self.gripper(arm) - target())[:3, 3]) for arm, target in targets.items()
            ]
            if np.max(away) < NEAR_M:
                return
            yield wanted


class GymAlohaExpert:
    """An expert of one task, by its script.

    The factor on the durations of an episode is drawn uniformly from the range `paces`.

    Raises:
        ValueError: The paces are out of range.
    """

    task: ClassVar[str]
    script: ClassVar[type[Script]]

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        if not 0.5 <= paces[0] <= paces[1] <= 2:
            raise ValueError(
                f"paces is {paces}; allowed: two numbers from 0.5 to 2, the smaller one first."
            )
        self._paces = paces
        self._kinematics = InverseKinematics(GYM_ALOHA)
        self._plan: Iterator[Vector] = iter(())
        self._wanted = GYM_ALOHA.home.copy()

    def reset(self, env: ThirdPartyEnvironment, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` makes episodes vary."""
        if env.task.name != self.task:
            raise ValueError(f"This expert is for {self.task!r}; the world runs {env.task.name!r}.")
        self._wanted = GYM_ALOHA.home.copy()
        self._plan = self.script(env, self._kinematics, rng, rng.uniform(*self._paces)).run()

    def act(self, env: ThirdPartyEnvironment) -> Vector:
        """Returns the next joint targets (14,)."""
        self._wanted = next(self._plan, self._wanted)
        return self._wanted
