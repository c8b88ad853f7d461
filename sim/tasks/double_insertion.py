"""Two blocks go into the two ends of a blue socket that is held in the air.

No public simulation has this task. Socket and blocks have the cross-sections of `single_insertion`; the socket is 160 mm long,
open at both ends, and each block is half as long, so that both fit in.
"""

from itertools import combinations
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix, pose, rotation_about
from stringline.sim.props.block import Block
from stringline.sim.props.prop import Prop
from stringline.sim.props.socket import Socket
from stringline.sim.tasks.insertion import InsertionTask

SOCKET_LENGTH, BLOCK_LENGTH = 0.16, 0.08
YELLOW = (0.98, 0.83, 0.08, 1.0)
SOCKET_START = ((-0.20, -0.04), (0.0, 0.16))
FIRST_START = ((0.08, 0.24), (-0.1, 0.1))
SECOND_START = ((-0.22, -0.06), (-0.2, -0.04))
YAW_DEG = (-20.0, 20.0)
APART = 0.075  # Metres between the axes of two things, so that an open gripper goes over one and leaves the other alone.
TRIES = 200


class DoubleInsertion(InsertionTask):
    """Both blocks go into the blue socket, each into an end of its own, and one gripper holds it; see `InsertionTask`.

    Starts: socket x -20 to -4 cm, y 0 to 16 cm; red block x 8 to 24 cm, y -10 to 10 cm; yellow block x -22 to -6 cm, y -20 to
    -4 cm; all turned by up to 20 degrees and drawn again where two of them are less than 7.5 cm apart. Stages: socket lifted, a
    block held too, one block seated, both seated, success.
    """

    name: ClassVar[str] = "double_insertion"
    instruction: ClassVar[str] = (
        "grab the blue socket with the left arm, insert a block with the right arm, "
        "then insert another block into the other end"
    )
    stages: ClassVar[tuple[str, ...]] = ("start", "socket_lifted", "block_taken", "one_inserted", "both_inserted", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.first = Block("red_block", length=BLOCK_LENGTH, mass=0.04)
        self.second = Block("yellow_block", length=BLOCK_LENGTH, mass=0.04, colour=YELLOW)
        super().__init__(control_hz, Socket(length=SOCKET_LENGTH, mass=0.09), self.first, self.second)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where things are until they are apart."""
        poses = self._drawn(random_state)
        for _ in range(TRIES):
            if all(_distance(poses, *pair) > APART for pair in combinations(poses, 2)):
                break
            poses = self._drawn(random_state)
        for prop, T_table_prop in poses.items():
            self.place(physics, prop, T_table_prop)

    def _drawn(self, random_state: np.random.RandomState) -> dict[Prop, Matrix]:
        starts = ((self.socket, SOCKET_START), (self.first, FIRST_START), (self.second, SECOND_START))
        poses: dict[Prop, Matrix] = {}
        for prop, (range_x, range_y) in starts:
            spot = (random_state.uniform(*range_x), random_state.uniform(*range_y), prop.width / 2)
            yaw = np.radians(random_state.uniform(*YAW_DEG))
            poses[prop] = pose(spot, rotation_about((0.0, 0.0, 1.0), yaw))
        return poses


def _distance(poses: dict[Prop, Matrix], a: Prop, b: Prop) -> float:
    """Returns about how far the axes of two things are apart on the table, metres."""
    along = np.linspace(-1.0, 1.0, 17)[:, None]
    points = [poses[prop][:2, 3] + along * prop.reach * poses[prop][:2, 0] for prop in (a, b)]
    return float(np.linalg.norm(points[0][:, None] - points[1][None], axis=-1).min())
