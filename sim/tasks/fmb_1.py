"""Insert a yellow block, lying, into the shallow recess of a red base: FMB's first assembly."""

from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.peg import Peg
from stringline.sim.props.recessed_board import Pocket, RecessedBoard
from stringline.sim.tasks.recess_task import Range, RecessTask

RECESS = Pocket((0.204, 0.041), 0.010)
SLOTS = (
    *(Pocket((0.034, 0.104), 0.045, (x, 0.0)) for x in (-0.068, 0.068)),
    *(Pocket((0.034, 0.064), 0.045, (0.0, y)) for y in (-0.0505, 0.0505)),
)


class Fmb1(RecessTask):
    """The yellow block lies in the shallow recess of the red base.

    Start: base at x U(0, 0.1), y U(0.1, 0.2) m, yaw U(-20, 20) degrees; so heavy that it takes some 80 N to move it, in place
    of one that is screwed to the table. Block lying at x U(0.06, 0.22), y U(-0.14, -0.04) m, yaw U(-45, 45) degrees, at least
    4 cm from the base. Success: all four lower corners of the block at least 9 mm below the base's top and within the recess's
    walls (to 0.5 mm, which bounds its axis to 2.5 mm and its yaw to 1.5 degrees), the block lying along the recess, whichever
    of its equal faces is up; touched by no arm, all at rest, for 0.5 s.
    Sizes are those of FMB's first assembly (Luo et al. 2024): base 230 x 230 x 50 mm, block 200 x 37 x 37 mm, recess 204 x 41
    mm and 10 mm deep, so 2 mm of clearance on each side and at each end; the slots for its other parts are there too. Ranges
    are ours.
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
        """The block lies along the recess."""
        return np.eye(3)
