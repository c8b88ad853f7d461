"""Pick a thing up with either of two KUKA arms."""

from typing import ClassVar

from stringline.sim.cells import KUKA_BIMANUAL_CELL, Cell
from stringline.sim.tasks.kuka_pick import KukaPick


class KukaBimanualPick(KukaPick):
    """As `KukaPick`, between two arms that face each other: either may do it.

    Start: the thing at x U(-0.26, 0.26), y U(-0.16, 0.16) m and any yaw. Forms and the rule of success are those of `KukaPick`.
    """

    cell: ClassVar[Cell] = KUKA_BIMANUAL_CELL
    name: ClassVar[str] = "kuka_bimanual_pick"
    thing_x: ClassVar[tuple[float, float]] = (-0.26, 0.26)
    thing_y: ClassVar[tuple[float, float]] = (-0.16, 0.16)
