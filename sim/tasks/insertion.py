"""Tasks in which blocks are pushed into a socket that an arm holds in the air."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.rigid import Matrix, inverse
from stringline.sim.props.block import Block
from stringline.sim.props.socket import Socket
from stringline.sim.tasks.judgement import Lasting, Touching
from stringline.sim.tasks.tabletop import TabletopTask

CLEAR_M = 0.02  # Lifted means that far off the table.
DEPTH_SHARE = 0.6  # Of the block's length.
AXIS_DISTANCE_M = 0.005
AXIS_ANGLE_DEG = 5.0


@dataclass(frozen=True)
class Fit:
    """How a block lies in a socket.

    Attributes:
        depth: How much of the block's length is between the socket's ends, metres.
        axis_distance: Largest distance of the block's axis from the socket's between these ends, metres; inf where none is.
        angle_deg: Between both axes, 0 to 90.
        side: The end of the socket that the block's middle is nearer to: 1 for the one at positive x, else -1.
    """

    depth: float
    axis_distance: float
    angle_deg: float
    side: int

    def seated(self, block_length: float) -> bool:
        """Says whether it is deep enough and on the axis."""
        straight = self.axis_distance < AXIS_DISTANCE_M and self.angle_deg < AXIS_ANGLE_DEG
        return straight and self.depth >= DEPTH_SHARE * block_length


def fit(T_base_socket: Matrix, T_base_block: Matrix, socket_length: float, block_length: float) -> Fit:
    """Measures how a block lies in a socket, both along their x axes.

    Args:
        T_base_socket: (4, 4).
        T_base_block: (4, 4).
        socket_length: Metres.
        block_length: Metres.
    """
    T_socket_block = inverse(T_base_socket) @ T_base_block
    middle, along = T_socket_block[:3, 3], T_socket_block[:3, 0]
    side = 1 if middle[0] >= 0 else -1
    angle_deg = float(np.degrees(np.arccos(min(1.0, abs(along[0])))))
    if abs(along[0]) < 0.5:
        return Fit(0.0, np.inf, angle_deg, side)
    ends = np.sort((np.array([-0.5, 0.5]) * socket_length - middle[0]) / along[0])  # Along the block, from its middle.
    low, high = np.clip(ends, -block_length / 2, block_length / 2)
    if high <= low:
        return Fit(0.0, np.inf, angle_deg, side)
    axis = middle + np.array([[low], [high]]) * along
    return Fit(float(high - low), float(np.hypot(axis[:, 1], axis[:, 2]).max()), angle_deg, side)


class InsertionTask(TabletopTask):
    """Success: every block is seated, each in an end of its own, and one arm alone holds the socket in the air.

    Seated means: at least 60 % of the block's length is in the socket, and there the axes are less than 5 mm apart and less
    than 5 degrees askew. In the air means: both pads of one gripper touch the socket, which is 2 cm or more clear of the table.
    The other arm does not touch it, neither an arm nor the table touches a block, and everything is at rest, for half a second.
    So a block that is still held, half inserted, beside the socket, or in a socket that lies on the table does not count.

    Args:
        control_hz: Actions per second.
        socket: Where they go.
        blocks: What goes there; two of them at most.

    Attributes:
        holders: The arms that may hold the socket in the end.
    """

    holders: ClassVar[tuple[str, ...]] = ARMS

    def __init__(self, control_hz: float, socket: Socket, *blocks: Block) -> None:
        self.socket, self.blocks = socket, blocks
        self._rest = Lasting()
        super().__init__(control_hz, socket, *blocks)

    def initialize_episode(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Begins an episode."""
        self._rest.reset()
        super().initialize_episode(physics, random_state)

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Follows the episode's progress."""
        touching = self.touching(physics)
        lifted = any(touching.held(arm, self.socket.name) for arm in self.holders) and self._clear(physics)
        seated = self.seated(physics)
        still = lifted and seated == len(self.blocks) and self._released(touching) and self.at_rest(physics)
        self.success = self._rest.update(still, physics.time())
        self.stage = max(self.stage, len(self.stages) - 1 if self.success else self._stage(touching, lifted, seated))

    def fit(self, physics: mjcf.Physics, block: Block) -> Fit:
        """Returns how a block lies in the socket now."""
        return fit(self.pose(physics, self.socket), self.pose(physics, block), self.socket.length, block.length)

    def seated(self, physics: mjcf.Physics) -> int:
        """Returns in how many ends of the socket a block is seated now."""
        fits = [(self.fit(physics, block), block.length) for block in self.blocks]
        return len({found.side for found, length in fits if found.seated(length)})

    def _clear(self, physics: mjcf.Physics) -> bool:
        T = self.pose(physics, self.socket)
        half = 0.5 * np.array([self.socket.length, self.socket.width, self.socket.width])
        return bool(T[2, 3] - np.abs(T[2, :3]) @ half - self.table_height > CLEAR_M)

    def _released(self, touching: Touching) -> bool:
        one_holds = sum(touching.by_arm(arm, self.socket.name) for arm in ARMS) == 1
        names = [block.name for block in self.blocks]
        return one_holds and not touching.by_any_arm(names) and not any(touching.between(name, "table") for name in names)

    def _stage(self, touching: Touching, lifted: bool, seated: int) -> int:
        """Counts: socket lifted, a block taken too, then one more for each block that is seated."""
        if not lifted:
            return 0
        taken = any(touching.held(arm, block.name) for arm in ARMS for block in self.blocks)
        return 2 + seated if seated else 1 + taken
