"""Tasks in which a peg goes into the recess of a board that fits it closely."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.rigid import Matrix, inverse, pose, rotation_about
from stringline.sim.props.peg import Peg
from stringline.sim.props.recessed_board import RecessedBoard
from stringline.sim.tasks.footprints import draw_apart, gap
from stringline.sim.tasks.goal_task import GoalTask
from stringline.sim.tasks.judgement import Touching, in_frame, upright

SHORT_M = 0.001  # A seated peg may be that far off the recess's floor.
SIDE_M = 0.0005  # Its corners may be that far beyond the recess's walls, which give way a little.
TURN = np.radians(5.0)  # From the nearest seated pose; the walls and the floor hold it far closer.
CLEAR_M = 0.02  # Lifted means that far off the table.
OVER_M = 0.003  # Over the recess means that its lower corners would clear the walls if the recess were that much wider.
Range = tuple[float, float]


class RecessTask(GoalTask):
    """The peg sits in the recess: turned as it should be, its lower four corners within the walls and on the floor to 1 mm.

    Which of the peg's equal faces lies where does not matter.
    """

    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "over_recess", "inserted", "success")
    board_x: ClassVar[Range]
    board_y: ClassVar[Range]
    board_yaw_deg: ClassVar[Range]
    peg_x: ClassVar[Range]
    peg_y: ClassVar[Range]
    peg_yaw_deg: ClassVar[Range]
    least_gap: ClassVar[float]

    def __init__(self, control_hz: float, peg: Peg, board: RecessedBoard) -> None:
        self.peg, self.board = peg, board
        seated = self.seated_rotation()
        self.goals = np.array([self._goal(seated @ turn) for turn in peg.symmetries()])
        super().__init__(control_hz, peg, board)

    @abstractmethod
    def seated_rotation(self) -> Matrix:
        """Returns how the seated peg is turned (3, 3) in the board's frame."""

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where the lying peg and the board are, with room for a gripper between them."""

        def draw() -> tuple[Matrix, Matrix]:
            height = float(self.peg.half[2])
            T_peg = _drawn(random_state, self.peg_x, self.peg_y, self.peg_yaw_deg, height)
            return T_peg, _drawn(random_state, self.board_x, self.board_y, self.board_yaw_deg, 0.0)

        board = np.array(self.board.size[:2]) / 2
        poses = draw_apart(draw, lambda peg, on: gap(peg, self.peg.half[:2], on, board), self.least_gap)
        for prop, T_table_prop in zip((self.peg, self.board), poses, strict=True):
            self.place(physics, prop, T_table_prop)

    def reached(self, physics: mjcf.Physics) -> bool:
        """Says whether the peg is seated in the board."""
        return self.seated(self.pose(physics, self.peg), self.pose(physics, self.board))

    def progress(self, physics: mjcf.Physics, touching: Touching) -> int:
        """Returns the index of the stage that holds now."""
        T_base_peg, T_base_board = self.pose(physics, self.peg), self.pose(physics, self.board)
        if self.seated(T_base_peg, T_base_board):
            return 3
        lowest = in_frame(np.eye(4), T_base_peg, self.peg.corners)[:, 2].min() - self.table_height
        held = any(touching.held(arm, self.peg.name) for arm in ARMS)
        if not held or lowest < CLEAR_M:
            return 0
        return 2 if self.over(T_base_peg, T_base_board) else 1

    def depth(self, physics: mjcf.Physics) -> float:
        """Returns how far below the board's top the highest of the peg's lower four corners is, metres."""
        lower = self._lower_corners(self.pose(physics, self.peg), self.pose(physics, self.board))
        return float(self.board.height - lower[:, 2].max())

    def seated(self, T_base_peg: Matrix, T_base_board: Matrix) -> bool:
        """Says by geometry alone whether the peg at its pose (4, 4) sits in the board at its own."""
        lower = self._lower_corners(T_base_peg, T_base_board)
        deep = lower[:, 2].max() < self.board.height - self.board.recess.depth + SHORT_M
        return bool(deep and self._within(lower, SIDE_M) and self._turned(T_base_peg, T_base_board) and upright(T_base_board))

    def over(self, T_base_peg: Matrix, T_base_board: Matrix) -> bool:
        """Says whether the peg only has to go straight down."""
        lower = self._lower_corners(T_base_peg, T_base_board)
        return self._turned(T_base_peg, T_base_board) and self._within(lower, OVER_M)

    def _lower_corners(self, T_base_peg: Matrix, T_base_board: Matrix) -> NDArray[np.float64]:
        corners = in_frame(T_base_board, T_base_peg, self.peg.corners)
        return corners[np.argsort(corners[:, 2])[:4]]

    def _within(self, corners: NDArray[np.float64], beyond: float) -> bool:
        half = np.array(self.board.recess.size) / 2
        return bool((np.abs(corners[:, :2] - self.board.recess.centre) < half + beyond).all())

    def _turned(self, T_base_peg: Matrix, T_base_board: Matrix) -> bool:
        rotation = (inverse(T_base_board) @ T_base_peg)[:3, :3]
        traces = np.einsum("nij,ij->n", self.goals[:, :3, :3], rotation)
        return bool(traces.max() > 1 + 2 * np.cos(TURN))

    def _goal(self, rotation: Matrix) -> Matrix:
        rise = float(np.abs(rotation @ self.peg.half)[2])
        return pose((*self.board.recess.centre, self.board.height - self.board.recess.depth + rise), rotation)


def _drawn(random_state: np.random.RandomState, x: Range, y: Range, yaw_deg: Range, height: float) -> Matrix:
    yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*yaw_deg)))
    return pose((random_state.uniform(*x), random_state.uniform(*y), height), yaw)
