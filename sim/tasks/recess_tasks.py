"""Tasks in which a peg goes into a close-fitting recess of a board, after the assemblies of FMB."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from dm_control import mjcf
from numpy.typing import NDArray

from stringline.datasets.embodiments.transforms import Matrix, inverse, pose, rotation_about
from stringline.sim.props.insertion_parts import Peg, Pocket, RecessedBoard
from stringline.sim.tasks.placement import Range, box_gap, draw_apart, draw_pose, draw_yaw
from stringline.sim.tasks.success import CLEAR_M, ContactState, in_frame, upright
from stringline.sim.tasks.tabletop import GoalTask

FLOOR_TOLERANCE_M = 0.001  # Largest gap between a seated peg and the recess's floor.
WALL_TOLERANCE_M = 0.0005  # Depth by which its corners may sink into the recess's walls.
# Largest angle from the nearest seated pose; walls and floor keep a seated peg far closer.
TURN_TOLERANCE = np.radians(5.0)
# A peg is over the recess if its lower corners would clear walls that are that much farther apart.
OVER_TOLERANCE_M = 0.003
RECESS = Pocket((0.204, 0.041), 0.010)
SLOTS = (
    *(Pocket((0.034, 0.104), 0.045, (x, 0.0)) for x in (-0.068, 0.068)),
    *(Pocket((0.034, 0.064), 0.045, (0.0, y)) for y in (-0.0505, 0.0505)),
)


class RecessTask(GoalTask):
    """The peg sits in the recess in one of its seated attitudes.

    Its lower four corners are within the walls and on the floor to 1 mm. Poses that differ by a
    symmetry of the peg are equal.
    """

    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "over_recess", "inserted", "success")
    may_be_strict: ClassVar[bool] = True
    board_x: ClassVar[Range]
    board_y: ClassVar[Range]
    board_yaw_deg: ClassVar[Range]
    peg_x: ClassVar[Range]
    peg_y: ClassVar[Range]
    peg_yaw_deg: ClassVar[Range]
    least_gap: ClassVar[float]

    def __init__(self, control_hz: float, peg: Peg, board: RecessedBoard) -> None:
        self.peg = peg
        self.board = board
        seated = self.seated_rotation()
        self.goals = np.array([self._goal(seated @ turn) for turn in peg.symmetries()])
        super().__init__(control_hz, peg, board)

    @abstractmethod
    def seated_rotation(self) -> Matrix:
        """Returns a rotation (3, 3) of the seated peg in the board's frame."""

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of the lying peg and the board, with room for a gripper between them."""

        def draw() -> tuple[Matrix, Matrix]:
            height = float(self.peg.half[2])
            T_peg = _drawn(random_state, self.peg_x, self.peg_y, self.peg_yaw_deg, height)
            return T_peg, _drawn(random_state, self.board_x, self.board_y, self.board_yaw_deg, 0.0)

        board = np.array(self.board.size[:2]) / 2

        def space(T_peg: Matrix, T_board: Matrix) -> float:
            return box_gap(T_peg, self.peg.half[:2], T_board, board)

        poses = draw_apart(draw, space, self.least_gap)
        for prop, T_table_prop in zip((self.peg, self.board), poses, strict=True):
            self.place(physics, prop, T_table_prop)

    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns whether the peg is seated in the board."""
        return self.seated(self.pose(physics, self.peg), self.pose(physics, self.board))

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the stage: lifted by 2 cm, held over the recess, or seated."""
        T_base_peg = self.pose(physics, self.peg)
        T_base_board = self.pose(physics, self.board)
        if self.seated(T_base_peg, T_base_board):
            return 3
        lowest = in_frame(np.eye(4), T_base_peg, self.peg.corners)[:, 2].min() - self.table_height
        if not contacts.held_by_any(self.peg.name) or lowest < CLEAR_M:
            return 0
        return 2 if self.over(T_base_peg, T_base_board) else 1

    def depth(self, physics: mjcf.Physics) -> float:
        """Returns the depth of the peg's lower end below the board's top, metres.

        It is that of the highest of its lower four corners.
        """
        lower = self._lower_corners(self.pose(physics, self.peg), self.pose(physics, self.board))
        return float(self.board.height - lower[:, 2].max())

    def seated(self, T_base_peg: Matrix, T_base_board: Matrix) -> bool:
        """Returns by geometry alone whether the peg sits in the board; poses are (4, 4)."""
        lower = self._lower_corners(T_base_peg, T_base_board)
        floor = self.board.height - self.board.recess.depth
        deep = lower[:, 2].max() < floor + FLOOR_TOLERANCE_M
        fits = self._within(lower, WALL_TOLERANCE_M) and self._turned(T_base_peg, T_base_board)
        return bool(deep and fits and upright(T_base_board))

    def over(self, T_base_peg: Matrix, T_base_board: Matrix) -> bool:
        """Returns whether the peg only has to move straight down."""
        lower = self._lower_corners(T_base_peg, T_base_board)
        return self._turned(T_base_peg, T_base_board) and self._within(lower, OVER_TOLERANCE_M)

    def _lower_corners(self, T_base_peg: Matrix, T_base_board: Matrix) -> NDArray[np.float64]:
        corners = in_frame(T_base_board, T_base_peg, self.peg.corners)
        return corners[np.argsort(corners[:, 2])[:4]]

    def _within(self, corners: NDArray[np.float64], beyond: float) -> bool:
        half = np.array(self.board.recess.size) / 2
        return bool((np.abs(corners[:, :2] - self.board.recess.centre) < half + beyond).all())

    def _turned(self, T_base_peg: Matrix, T_base_board: Matrix) -> bool:
        rotation = (inverse(T_base_board) @ T_base_peg)[:3, :3]
        traces = np.einsum("nij,ij->n", self.goals[:, :3, :3], rotation)
        return bool(traces.max() > 1 + 2 * np.cos(TURN_TOLERANCE))

    def _goal(self, rotation: Matrix) -> Matrix:
        rise = float(np.abs(rotation @ self.peg.half)[2])
        height = self.board.height - self.board.recess.depth + rise
        return pose((*self.board.recess.centre, height), rotation)


def _drawn(
    random_state: np.random.RandomState, x: Range, y: Range, yaw_deg: Range, height: float
) -> Matrix:
    yaw = draw_yaw(random_state, yaw_deg)
    return draw_pose(random_state, x, y, height, rotation=yaw)


class Fmb1(RecessTask):
    """The yellow block lies in the shallow recess of the red base.

    Start: base at x U(0, 0.1), y U(0.1, 0.2) m, yaw U(-20, 20) degrees, so heavy that it takes some
    80 N to move it; block lying at x U(0.06, 0.22), y U(-0.14, -0.04) m, yaw U(-45, 45) degrees, at
    least 4 cm from the base. Success: all four lower corners of the block at least 9 mm below the
    base's top and within the recess's walls (to 0.5 mm), the block lying along the recess,
    whichever of its equal faces is up.

    Sizes of FMB's first assembly (Luo et al., 2024): base 230 x 230 x 50, block 200 x 37 x 37,
    recess 204 x 41 mm and 10 mm deep: 2 mm of clearance on each side.
    """

    name: ClassVar[str] = "fmb_1"
    instruction: ClassVar[str] = "insert the yellow block into the recess of the red base"
    board_x: ClassVar[Range] = (0.0, 0.1)
    board_y: ClassVar[Range] = (0.1, 0.2)
    board_yaw_deg: ClassVar[Range] = (-20.0, 20.0)
    peg_x: ClassVar[Range] = (0.06, 0.22)
    peg_y: ClassVar[Range] = (-0.14, -0.04)
    peg_yaw_deg: ClassVar[Range] = (-45.0, 45.0)
    least_gap: ClassVar[float] = 0.04

    def __init__(self, control_hz: float = 50.0) -> None:
        board = RecessedBoard(size=(0.23, 0.23, 0.05), pockets=(RECESS, *SLOTS))
        super().__init__(control_hz, Peg(size=(0.2, 0.037, 0.037)), board)

    def seated_rotation(self) -> Matrix:
        """Returns the rotation of a peg that lies along the recess."""
        return np.eye(3)


class Fmb2(RecessTask):
    """The yellow block stands upright in the deep square recess of the red base.

    Start: base at x U(0, 0.12), y U(0.08, 0.18) m, yaw U(-45, 45) degrees, as heavy as in `Fmb1`;
    block lying at x U(0.08, 0.22), y U(-0.14, -0.02) m, yaw U(-45, 45) degrees, at least 5 cm from
    the base. Success: the block on one of its ends, all four lower corners at least 29 mm below the
    base's top and within the recess's walls (to 0.5 mm).

    Sizes (ours): block 100 x 37 x 37, base 160 x 160 x 50, recess 41 x 41 mm and 30 mm deep: 2 mm
    of clearance on each side.
    """

    name: ClassVar[str] = "fmb_2"
    instruction: ClassVar[str] = "stand the yellow block upright in the recess of the red base"
    board_x: ClassVar[Range] = (0.0, 0.12)
    board_y: ClassVar[Range] = (0.08, 0.18)
    board_yaw_deg: ClassVar[Range] = (-45.0, 45.0)
    peg_x: ClassVar[Range] = (0.08, 0.22)
    peg_y: ClassVar[Range] = (-0.14, -0.02)
    peg_yaw_deg: ClassVar[Range] = (-45.0, 45.0)
    least_gap: ClassVar[float] = 0.05

    def __init__(self, control_hz: float = 50.0) -> None:
        board = RecessedBoard(size=(0.16, 0.16, 0.05), pockets=(Pocket((0.041, 0.041), 0.030),))
        super().__init__(control_hz, Peg(size=(0.1, 0.037, 0.037), mass=0.08), board)

    def seated_rotation(self) -> Matrix:
        """Returns the rotation of a peg whose long side points up."""
        return rotation_about((0.0, 1.0, 0.0), -np.pi / 2)
