"""An expert of gym-aloha's Insertion."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.sim.experts.bar_grasps import nearest_turn
from stringline.sim.experts.correction import Correction, twist
from stringline.sim.experts.grasps import raised
from stringline.sim.experts.motion import Move, Target
from stringline.sim.worlds.gym_aloha_script import (
    HOVER_M,
    LIFT_M,
    MEET,
    WIDE,
    GymAlohaExpert,
    Script,
    fixed,
)


@dataclass(frozen=True)
class Piece:
    """What an arm picks up.

    Attributes:
        half_m: Half its height.
        above_m: Height of the gripper above its middle at the grasp; the tips are 24 mm further.
    """

    name: str
    half_m: float
    above_m: float


PIECES: Mapping[str, Piece] = {
    "left": Piece("socket", 0.022, 0.010),
    "right": Piece("peg", 0.010, 0.020),
}
# At flatter ones the wrist is stretched, where its joints are not determined.
PITCHES_DEG = (62.0, 72.0)
# Distance between the middles of peg and socket: before the insertion, and when the peg has
# passed the pin, which begins 40 mm from the middle of the socket, by 10 mm.
APART_M = 0.155
INSERTED_M = 0.090
HELD_M = 0.06  # Largest distance of a held piece's middle from its gripper.
ALIGNED_M = 0.004  # The peg has 8 mm of room on each side.
ALIGN_SECONDS = 1.5
PUSH_SPEED = 0.09  # m/s at a pace of 1.


class InsertionScript(Script):
    """Each gripper lifts its piece; then the right arm pushes the peg into the socket."""

    def _prepare(self, rng: np.random.Generator) -> None:
        self._pitches_deg = {arm: rng.uniform(*PITCHES_DEG) for arm in PIECES}
        self._down: dict[str, Matrix] = {}
        self._meet = np.asarray(MEET) + rng.uniform(-0.02, 0.02, 3)

    def run(self) -> Iterator[Vector]:
        """Lifts both pieces and inserts the peg, until it is in."""
        while True:
            yield from self._take()
            if self._lifted():
                yield from self._bring()
            while self._lifted():
                yield from self._insert()
            for arm in PIECES:
                self.motion.grip(arm, WIDE)
            yield from self.motion.go_home(0.8 * self.pace, list(PIECES))

    def _take(self) -> Iterator[Vector]:
        for arm, piece in PIECES.items():
            self.motion.grip(arm, WIDE)
            heights = np.linspace(HOVER_M, piece.above_m, 8).tolist()
            x, y, _ = self.pose(arm)[:3, 0]
            yaw = float(np.arctan(y / x))  # Either end may be in front.
            self._down[arm] = self.reachable(
                arm, self._lying(arm), heights, self._pitches_deg[arm], yaw
            )
        yield from self.go(1.1, {arm: Move(self._above(arm, HOVER_M)) for arm in PIECES})
        at = {arm: self._above(arm, piece.above_m) for arm, piece in PIECES.items()}
        yield from self.go(0.7, {arm: Move(target, straight=True) for arm, target in at.items()})
        yield from self.settle(0.5, at)
        for arm in PIECES:
            self.motion.grip(arm, 0.0)
        yield from self.motion.hold(0.6 * self.pace)
        up = {arm: fixed(raised(target(), LIFT_M)) for arm, target in at.items()}
        yield from self.go(0.6, {arm: Move(target, straight=True) for arm, target in up.items()})

    def _bring(self) -> Iterator[Vector]:
        """Holds the pieces up, on one line along x."""
        goals = {}
        for arm, side in (("left", -0.5), ("right", 0.5)):
            T_base_piece = self.pose(arm)
            where = self._meet + side * APART_M * np.eye(3)[0]
            level = pose(where, nearest_turn(T_base_piece[:3, :3]))
            goals[arm] = fixed(level @ inverse(T_base_piece) @ self.gripper(arm))
        yield from self.go(1.2, {arm: Move(goal) for arm, goal in goals.items()})

    def _insert(self) -> Iterator[Vector]:
        """Aligns the peg and pushes it in; ends early if a piece is lost."""
        alignment = _Alignment(self)
        first = fixed(alignment.target(APART_M))
        yield from self.go(0.6, {"right": Move(first)})
        period = 1.0 / self.env.contract.control_hz
        distance = APART_M
        waited = 0.0
        while distance > INSERTED_M and self._lifted():
            if alignment.update() < ALIGNED_M or waited > ALIGN_SECONDS:
                distance -= PUSH_SPEED / self.pace * period
            waited += period
            yield self.motion.step("right", alignment.target(distance))
        yield from self.motion.hold(0.4)

    def _above(self, arm: str, height: float) -> Target:
        """Returns the target of a gripper at a height above its piece."""

        def target() -> Matrix:
            T_base_piece = self.pose(arm)
            return raised(pose(T_base_piece[:3, 3], self._down[arm]), height)

        return target

    def _lying(self, arm: str) -> Vector:
        """Returns the middle of a piece on the table; an episode begins with both in the air."""
        return np.array([*self.pose(arm)[:2, 3], PIECES[arm].half_m])

    def pose(self, arm: str) -> Matrix:
        """Returns the pose (4, 4) of the piece of an arm."""
        return self.env.pose(PIECES[arm].name)

    def _lifted(self) -> bool:
        """Returns whether both pieces are in the air and at their grippers."""
        return all(
            self.pose(arm)[2, 3] > piece.half_m + LIFT_M / 2
            and np.linalg.norm((self.pose(arm) - self.gripper(arm))[:3, 3]) < HELD_M
            for arm, piece in PIECES.items()
        )


class _Alignment:
    """Keeps the peg on the axis of the socket, in spite of weak drives.

    The pose of the peg in the gripper is that of the beginning.
    """

    def __init__(self, script: InsertionScript) -> None:
        self._script = script
        self._correction = Correction()
        self._T_peg_gripper = inverse(script.pose("right")) @ script.gripper("right")

    def update(self) -> float:
        """Adds the present error to the correction; returns its distance, m."""
        T_socket_peg = self._relative()
        on_axis = pose((T_socket_peg[0, 3], 0.0, 0.0), nearest_turn(T_socket_peg[:3, :3]))
        error = twist(inverse(on_axis) @ T_socket_peg)
        self._correction.update(error)
        return float(np.linalg.norm(error[:3]))

    def target(self, distance: float) -> Matrix:
        """Returns the pose of the right gripper for a distance between both middles, m."""
        square = nearest_turn(self._relative()[:3, :3])
        T_base_peg = self._script.pose("left") @ pose((distance, 0.0, 0.0), square)
        return T_base_peg @ self._correction.transform @ self._T_peg_gripper

    def _relative(self) -> Matrix:
        return inverse(self._script.pose("left")) @ self._script.pose("right")


class InsertionExpert(GymAlohaExpert):
    """Each gripper lifts its piece; then the right arm pushes the peg into the socket."""

    task: ClassVar[str] = "gym_aloha_insertion"
    script: ClassVar[type[Script]] = InsertionScript
