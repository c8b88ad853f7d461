"""The left arm takes the blue socket, the right one pushes the block into it, both in the air.

Sizes follow gym-aloha: the socket is 120 mm long with a hole of 36 mm in 44 mm, the block is 120 mm long. Ranges follow it and
mujoco_playground, which starts within 10 cm of one place for each. The block is 30 mm wide here, not 20: with 8 mm to spare on
each side a released block lies 8 mm below the socket's axis, where no rule of 5 mm could be met. 3 mm are harder to hit.
"""

from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import pose, rotation_about
from stringline.sim.props.block import Block
from stringline.sim.props.socket import Socket
from stringline.sim.tasks.insertion import InsertionTask

SOCKET_X, BLOCK_X = (-0.24, -0.08), (0.08, 0.24)
START_Y = (-0.1, 0.1)
YAW_DEG = (-25.0, 25.0)


class SingleInsertion(InsertionTask):
    """The block goes into the blue socket, which the left gripper holds in the air; see `InsertionTask` for the rule.

    Starts: socket x -24 to -8 cm, block x 8 to 24 cm, both y -10 to 10 cm and turned by up to 25 degrees. Stages: socket lifted
    by the left gripper, block held too, block seated, success.
    """

    name: ClassVar[str] = "single_insertion"
    instruction: ClassVar[str] = "grab the blue socket with the left arm and insert the block with the right arm"
    stages: ClassVar[tuple[str, ...]] = ("start", "socket_lifted", "block_taken", "inserted", "success")
    holders: ClassVar[tuple[str, ...]] = ("left",)

    def __init__(self, control_hz: float = 50.0) -> None:
        self.block = Block()
        super().__init__(control_hz, Socket(), self.block)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where socket and block are; their ranges are too far apart for them to meet."""
        for prop, range_x in ((self.socket, SOCKET_X), (self.block, BLOCK_X)):
            spot = (random_state.uniform(*range_x), random_state.uniform(*START_Y), prop.width / 2)
            yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*YAW_DEG)))
            self.place(physics, prop, pose(spot, yaw))
