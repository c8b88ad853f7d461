"""Stand a yellow block upright in the deep square recess of a red base.

The geometry is ours, since none of FMB's second board is published: as tight as the first one, in another orientation. The
block is 100 x 37 x 37 mm and lies on the table; the base is 160 x 160 x 50 mm with one recess of 41 x 41 mm, 30 mm deep, so
there are 2 mm of play on each side. The gripper has to take the block so that it can rock it
upright, by 90 degrees, over the base.
"""

from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix, rotation_about
from stringline.sim.props.peg import Peg
from stringline.sim.props.recessed_board import Pocket, RecessedBoard
from stringline.sim.tasks.recess_task import Range, RecessTask


class Fmb2(RecessTask):
    """The block, 100 x 37 x 37 mm, stands on one of its ends in the square recess: 29 of its 30 mm below the top.

    Base: 12 x 10 cm of positions, turned by any angle (the recess is square: +-45 degrees); heavy, in place of one that is
    screwed down. Block: lying on the table within 14 x 12 cm, turned by +-45 degrees, at least 5 cm from the base.
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
        """The block's long side points up."""
        return rotation_about((0.0, 1.0, 0.0), -np.pi / 2)
