"""An expert of gym-aloha's TransferCube."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.experts.grasps import raised
from stringline.sim.experts.motion import Move
from stringline.sim.worlds.gym_aloha_script import (
    HOVER_M,
    LIFT_M,
    MEET,
    WIDE,
    GymAlohaExpert,
    Script,
)

X = (1.0, 0.0, 0.0)
CUBE = "box"
HALF_M = 0.02
# The tips are 24 mm below the centre of the pads, and the table 20 mm below that of the cube.
GRASP_ABOVE_M = 0.012
PITCHES_DEG = (50.0, 60.0)
BEFORE_M = 0.10  # Distance from the cube at which the left gripper waits.


class TransferCubeScript(Script):
    """The right gripper lifts the cube; the left one, rotated by 90 degrees, takes it over."""

    def _prepare(self, rng: np.random.Generator) -> None:
        lying = np.array([*self._cube()[:2], HALF_M])  # An episode begins with the cube in the air.
        self._down = self.reachable(
            "right", lying, (HOVER_M, GRASP_ABOVE_M), rng.uniform(*PITCHES_DEG)
        )
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
            self.motion.grip("right", WIDE)
            yield from self.motion.go_home(0.8 * self.pace, ["right"])
        yield from self._hand_over()

    def _take(self) -> Iterator[Vector]:
        meet = self._meet
        waiting = pose(meet - (BEFORE_M + 0.02, 0.0, 0.0), self._quarter)
        self.motion.grip("right", WIDE)
        self.motion.grip("left", WIDE)
        yield from self.go(
            1.1, {"right": Move(lambda: self._above(HOVER_M)), "left": Move(lambda: waiting)}
        )
        yield from self.go(0.7, {"right": Move(lambda: self._above(GRASP_ABOVE_M), straight=True)})
        yield from self.settle(0.5, {"right": lambda: self._above(GRASP_ABOVE_M)})
        self.motion.grip("right", 0.0)
        yield from self.motion.hold(0.6 * self.pace)
        up = self._above(GRASP_ABOVE_M + LIFT_M)
        yield from self.go(0.6, {"right": Move(lambda: up, straight=True)})

    def _show(self) -> Iterator[Vector]:
        held = pose(self._meet, self._down)
        yield from self.go(1.0, {"right": Move(lambda: held)})
        yield from self.settle(0.4, {"right": lambda: held})

    def _hand_over(self) -> Iterator[Vector]:
        yield from self.go(0.5, {"left": Move(lambda: self._beside(BEFORE_M))})
        yield from self.go(0.8, {"left": Move(lambda: self._beside(0.01), straight=True)})
        yield from self.settle(0.4, {"left": lambda: self._beside(0.01)})
        self.motion.grip("left", 0.0)
        yield from self.motion.hold(0.8 * self.pace)
        self.motion.grip("right", WIDE)
        yield from self.motion.hold(0.6 * self.pace)

    def _above(self, height: float) -> Matrix:
        """Returns the pose of the right gripper at a height above the cube."""
        return raised(pose(self._cube(), self._down), height)

    def _beside(self, distance: float) -> Matrix:
        """Returns the pose of the left gripper at a distance to the left of the cube."""
        return pose(self._cube() - (distance, 0.0, 0.0), self._quarter)

    def _cube(self) -> Vector:
        return self.env.pose(CUBE)[:3, 3].copy()

    def _lifted(self) -> bool:
        return bool(self._cube()[2] > HALF_M + LIFT_M / 2)


class TransferCubeExpert(GymAlohaExpert):
    """The right gripper lifts the cube; the left one, rotated by 90 degrees, takes it over."""

    task: ClassVar[str] = "gym_aloha_transfer_cube"
    script: ClassVar[type[Script]] = TransferCubeScript
