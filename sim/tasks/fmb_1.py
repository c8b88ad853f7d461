"""Insert a yellow block lying into the shallow recess of a red base.

Sizes are those of the first assembly of FMB (Luo et al. 2024, functional manipulation benchmark): base 230 x 230 x 50 mm, block
200 x 37 x 37 mm, recess 204 x 41 mm and 10 mm deep, so 2 mm of play on each side and at each end; the base's further slots are
there too. Start ranges are ours.
"""

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
    """The block, 200 x 37 x 37 mm, lies in the recess of the base: 9 of its 10 mm below the top at all four lower corners.

    Base: 10 x 10 cm of positions, its recess turned by +-20 degrees; heavy, in place of one that is screwed down.
    Block: lying on the table within 16 x 10 cm, turned by +-45 degrees, at least 4 cm from the base.
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
