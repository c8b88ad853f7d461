"""An expert of gym-aloha's TransferCube: joint targets from inverse kinematics.

ACT's own scripts drag the grippers by a soft weld and replay the resulting joints. This expert uses
no weld: it solves for the pose of the cube, waits until the measured joints have arrived, and
grasps again if the cube was not lifted.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.gym_aloha import GYM_ALOHA
from stringline.datasets.embodiments.inverse_kinematics import InverseKinematics, OutOfReachError
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.experts.grasps import raised
from stringline.sim.experts.motion import TOLERANCE, Motion, Move, Target
from stringline.sim.worlds.third_party_environment import ThirdPartyEnvironment

PACES = (0.9, 1.2)
Y = (0.0, 1.0, 0.0)
X = (1.0, 0.0, 0.0)
CUBE = "box"
HALF_M = 0.02
WIDE = 0.9  # Opening before a grasp; the width of the cube, 40 mm, is 0.58.
HOVER_M = 0.09
LIFT_M = 0.08
# The tips are 24 mm below the centre of the pads, and the table 20 mm below that of the cube.
GRASP_ABOVE_M = 0.012
MEET = (0.0, 0.0, 0.25)
BEFORE_M = 0.10  # Distance from the cube at which the left gripper waits.
NEAR_M = 0.004  # The drives are weak and have much friction, so joints arrive slowly.
PITCHES_DEG = (50.0, 60.0)
STEEPER_DEG = (62.0, 70.0, 80.0)  # For cubes close to the right arm.


class TransferCubeExpert:
    """The right gripper lifts the cube; the left one, rotated by 90 degrees, takes it over.

    The factor on the durations of an episode is drawn uniformly from the range `paces`.
    """

    task: ClassVar[str] = "gym_aloha_transfer_cube"

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
        self._plan = _Script(env, self._kinematics, rng, rng.uniform(*self._paces)).run()

    def act(self, env: ThirdPartyEnvironment) -> Vector:
        """Returns the next joint targets (14,)."""
        self._wanted = next(self._plan, self._wanted)
        return self._wanted


class _Script:
    """The joint targets (14,) of one episode, one for each control period."""

    def __init__(
        self,
        env: ThirdPartyEnvironment,
        kinematics: InverseKinematics,
        rng: np.random.Generator,
        pace: float,
    ) -> None:
        self._env = env
        self._kinematics = kinematics
        self._pace = pace
        self._motion = Motion(GYM_ALOHA, kinematics, env.contract.control_hz)
        self._down = self._reachable((rng.uniform(*PITCHES_DEG), *STEEPER_DEG))
        # Towards +x and horizontal; the pads close along z.
        self._quarter = rotation_about(X, np.pi / 2)
        self._meet = np.asarray(MEET) + rng.uniform(-0.02, 0.02, 3)

    def run(self) -> Iterator[Vector]:
        """Grasps the cube until it is lifted, and hands it over."""
        while True:
            yield from self._take()
            if self._lifted():
                yield from self._show()
            if self._lifted():
                break
            self._motion.grip("right", WIDE)
            yield from self._motion.go_home(0.8 * self._pace, ["right"])
        yield from self._hand_over()

    def _take(self) -> Iterator[Vector]:
        motion = self._motion
        meet = self._meet
        waiting = pose(meet - (BEFORE_M + 0.02, 0.0, 0.0), self._quarter)
        motion.grip("right", WIDE)
        motion.grip("left", WIDE)
        yield from self._go(
            1.1, {"right": Move(lambda: self._above(HOVER_M)), "left": Move(lambda: waiting)}
        )
        yield from self._go(0.7, {"right": Move(lambda: self._above(GRASP_ABOVE_M), straight=True)})
        yield from self._settle("right", 0.5, lambda: self._above(GRASP_ABOVE_M))
        motion.grip("right", 0.0)
        yield from motion.hold(0.6 * self._pace)
        up = self._above(GRASP_ABOVE_M + LIFT_M)
        yield from self._go(0.6, {"right": Move(lambda: up, straight=True)})

    def _show(self) -> Iterator[Vector]:
        held = pose(self._meet, self._down)
        yield from self._go(1.0, {"right": Move(lambda: held)})
        yield from self._settle("right", 0.4, lambda: held)

    def _hand_over(self) -> Iterator[Vector]:
        yield from self._go(0.5, {"left": Move(lambda: self._beside(BEFORE_M))})
        yield from self._go(0.8, {"left": Move(lambda: self._beside(0.01), straight=True)})
        yield from self._settle("left", 0.4, lambda: self._beside(0.01))
        self._motion.grip("left", 0.0)
        yield from self._motion.hold(0.8 * self._pace)
        self._motion.grip("right", WIDE)
        yield from self._motion.hold(0.6 * self._pace)

    def _reachable(self, pitches_deg: Sequence[float]) -> Matrix:
        """Returns the first reachable orientation (3, 3) of a grasp by the right arm.

        The gripper points towards -x and down, and its pads close along y.
        """
        lying = np.array([*self._cube()[:2], HALF_M])  # An episode begins with the cube in the air.
        for pitch in pitches_deg:
            down = np.diag([-1.0, -1.0, 1.0]) @ rotation_about(Y, np.radians(pitch))
            q = self._motion.q
            try:
                for height in (HOVER_M, GRASP_ABOVE_M):
                    q = self._kinematics.solve(
                        {"right": raised(pose(lying, down), height)}, q, tolerance=TOLERANCE
                    )
            except OutOfReachError:
                continue
            return down
        raise OutOfReachError(
            f"The right arm cannot reach the cube at {np.round(self._cube(), 3).tolist()} m."
        )

    def _above(self, height: float) -> Matrix:
        """Returns the pose of the right gripper at a height above the cube."""
        return raised(pose(self._cube(), self._down), height)

    def _beside(self, distance: float) -> Matrix:
        """Returns the pose of the left gripper at a distance to the left of the cube."""
        return pose(self._cube() - (distance, 0.0, 0.0), self._quarter)

    def _cube(self) -> Vector:
        return self._env.pose(CUBE)[:3, 3].copy()

    def _lifted(self) -> bool:
        return bool(self._cube()[2] > HALF_M + LIFT_M / 2)

    def _go(self, seconds: float, moves: dict[str, Move]) -> Iterator[Vector]:
        return self._motion.go(seconds * self._pace, moves)

    def _settle(self, arm: str, seconds: float, target: Target) -> Iterator[Vector]:
        """Waits until the gripper is near its target, at most `seconds`."""
        for wanted in self._motion.hold(seconds):
            at = GYM_ALOHA.forward_kinematics(self._env.joints())[arm][:3, 3]
            if np.abs(at - target()[:3, 3]).max() < NEAR_M:
                return
            yield wanted
