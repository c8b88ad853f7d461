"""Hand a bar over from the right KUKA arm to the left one, which lays it into the bin."""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.cells import KUKA_BIMANUAL_CELL, Cell
from stringline.sim.props.block import Block
from stringline.sim.props.storage_bin import Bin
from stringline.sim.tasks.hand_over_task import HandOverTask
from stringline.sim.tasks.judgement import in_frame, upright

BAR_X, BAR_Y, BAR_YAW_DEG = (0.14, 0.26), (-0.14, 0.14), (-40.0, 40.0)
BIN_X, BIN_Y, BIN_YAW_DEG = (-0.26, -0.14), (-0.12, 0.12), (-25.0, 25.0)


class KukaHandOver(HandOverTask):
    """The bar goes from the right gripper to the left one, off the table, and into the bin: all its corners.

    Start: bar lying at x U(0.14, 0.26), y U(-0.14, 0.14) m, yaw U(-40, 40) degrees; bin at x U(-0.26, -0.14), y U(-0.12, 0.12)
    m, yaw U(-25, 25) degrees. Success: held by the right gripper more than 2 cm off the table, then by the left one alone, then
    all corners between the walls of the upright bin, above its floor and below its rim; touched by no arm, all at rest, for
    0.5 s. A bar that falls onto the table has to be handed over again. The bar is 200 x 28 x 28 mm, the bin 260 x 180 x 60 mm
    inside, both ours.
    """

    cell: ClassVar[Cell] = KUKA_BIMANUAL_CELL
    name: ClassVar[str] = "kuka_hand_over"
    instruction: ClassVar[str] = "hand over the red bar and put it into the bin"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_bin", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.bar = Block("bar", length=0.2, width=0.028, mass=0.1)
        self.bin = Bin(inner=(0.26, 0.18), height=0.06)
        corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
        self._corners = corners * (self.bar.length / 2, self.bar.width / 2, self.bar.width / 2)
        super().__init__(control_hz, self.bar, self.bin)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where bar and bin are."""
        for prop, x, y, yaw_deg, z in (
            (self.bar, BAR_X, BAR_Y, BAR_YAW_DEG, self.bar.width / 2),
            (self.bin, BIN_X, BIN_Y, BIN_YAW_DEG, 0.0),
        ):
            yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*yaw_deg)))
            self.place(physics, prop, pose((random_state.uniform(*x), random_state.uniform(*y), z), yaw))

    def inside(self, T_base_bar: Matrix, T_base_bin: Matrix) -> bool:
        """Says whether all corners of the bar are inside the upright bin."""
        return upright(T_base_bin) and self.bin.contains(in_frame(T_base_bin, T_base_bar, self._corners))

    def lowest(self, T_base_bar: Matrix) -> float:
        """Returns the height of the bar's lowest point, metres."""
        return float((self._corners @ T_base_bar[2, :3]).min() + T_base_bar[2, 3])
