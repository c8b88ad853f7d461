"""Put a thing into the tray with either of two KUKA arms."""

from typing import ClassVar

from stringline.sim.cells import KUKA_BIMANUAL_CELL, Cell
from stringline.sim.tasks.kuka_place import KukaPlace


class KukaBimanualPlace(KukaPlace):
    """As `KukaPlace`, between two arms that face each other: either may do it.

    Start: the thing at x U(-0.26, 0.26), y U(-0.16, 0.16) m and any yaw, the tray in the middle at x U(-0.03, 0.03), y U(-0.1,
    0.1) m, yaw U(-45, 45) degrees, at least 4 cm apart. Forms and the rule of success are those of `KukaPlace`.
    """

    cell: ClassVar[Cell] = KUKA_BIMANUAL_CELL
    name: ClassVar[str] = "kuka_bimanual_place"
    thing_x: ClassVar[tuple[float, float]] = (-0.26, 0.26)
    thing_y: ClassVar[tuple[float, float]] = (-0.16, 0.16)
    tray_x: ClassVar[tuple[float, float]] = (-0.03, 0.03)
    tray_y: ClassVar[tuple[float, float]] = (-0.1, 0.1)
