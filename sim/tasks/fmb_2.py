"""Stand a yellow block upright in the deep square recess of a red base: a second insertion, in another orientation."""

from typing import ClassVar

import numpy as np

from stringline.datasets.embodiments.rigid import Matrix, rotation_about
from stringline.sim.props.peg import Peg
from stringline.sim.props.recessed_board import Pocket, RecessedBoard
from stringline.sim.tasks.recess_task import Range, RecessTask


class Fmb2(RecessTask):
    """The yellow block stands upright in the deep square recess of the red base.

    Start: base at x U(0, 0.12), y U(0.08, 0.18) m, yaw U(-45, 45) degrees, which for a square recess is any; so heavy that it
    takes some 80 N to move it, in place of one that is screwed to the table. Block lying at x U(0.08, 0.22), y U(-0.14, -0.02)
    m, yaw U(-45, 45) degrees, at least 5 cm from the base. Success: the block on one of its ends, all four lower corners at
    least 29 mm below the base's top and within the recess's walls (to 0.5 mm); touched by no arm, all at rest, for 0.5 s.
    The geometry is ours, since FMB's second board is not published: as tight as the first one, in another orientation. Block
    100 x 37 x 37 mm, base 160 x 160 x 50 mm, recess 41 x 41 mm and 30 mm deep, so 2 mm of clearance on each side. The gripper
    has to take the block leaning along it, so that it can rock it upright, by 90 degrees, and keep off the table and the base.
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
