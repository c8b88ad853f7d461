"""Tasks in which blocks are pushed into a socket that an arm holds in the air.

Sizes follow gym-aloha: the socket is 120 mm long with a hole of 36 mm in 44 mm, the block is 120 mm
long. Ranges follow it and mujoco_playground, where each prop starts within 10 cm of one place. The
block is 30 mm wide here, not 20: with 8 mm to spare on each side a released block would lie 8 mm
below the socket's axis, and no rule of 5 mm could hold. 3 mm are harder to hit.

No public simulation has `double_insertion`. Its parts have the same cross-sections; the socket is
160 mm long, open at both ends, and each block is half as long, so that both fit in.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.transforms import Matrix, inverse, pose
from stringline.sim.props.insertion_parts import Block, Socket
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.placement import draw_yaw
from stringline.sim.tasks.success import CLEAR_M, ContactState
from stringline.sim.tasks.tabletop import TabletopTask

DEPTH_SHARE = 0.6  # Share of a seated block's length that is in the socket.
AXIS_DISTANCE_M = 0.005
AXIS_ANGLE_DEG = 5.0
SINGLE_X = ((-0.24, -0.08), (0.08, 0.24))  # Of socket and block.
SINGLE_Y = (-0.1, 0.1)
SINGLE_YAW_DEG = (-25.0, 25.0)
YELLOW = (0.98, 0.83, 0.08, 1.0)
# Of the longer socket and the shorter blocks of the double insertion.
DOUBLE_SOCKET_LENGTH = 0.16
BLOCK_LENGTH = 0.08
DOUBLE_SOCKET_START = ((-0.20, -0.04), (0.0, 0.16))
FIRST_START = ((0.08, 0.24), (-0.1, 0.1))
SECOND_START = ((-0.22, -0.06), (-0.2, -0.04))
DOUBLE_YAW_DEG = (-20.0, 20.0)
# Smallest distance between the axes of two props, metres: an open gripper grasps one and does not
# touch the other.
APART_M = 0.075
TRIES = 200


@dataclass(frozen=True)
class Fit:
    """The pose of a block in a socket.

    Attributes:
        depth: Length of the block between the socket's ends, metres.
        axis_distance: Largest distance of the block's axis from the socket's between these ends,
            metres; inf if the block is outside.
        angle_deg: Angle between both axes, 0 to 90 degrees.
        side: End of the socket that is nearer to the block's middle: 1 at positive x, else -1.
    """

    depth: float
    axis_distance: float
    angle_deg: float
    side: int

    def seated(self, block_length: float) -> bool:
        """Returns whether the block is deep enough and on the axis."""
        straight = self.axis_distance < AXIS_DISTANCE_M and self.angle_deg < AXIS_ANGLE_DEG
        return straight and self.depth >= DEPTH_SHARE * block_length


def fit(
    T_base_socket: Matrix, T_base_block: Matrix, socket_length: float, block_length: float
) -> Fit:
    """Measures the pose of a block in a socket, both along their x axes; lengths in metres."""
    T_socket_block = inverse(T_base_socket) @ T_base_block
    middle = T_socket_block[:3, 3]
    along = T_socket_block[:3, 0]
    side = 1 if middle[0] >= 0 else -1
    angle_deg = float(np.degrees(np.arccos(min(1.0, abs(along[0])))))
    if abs(along[0]) < 0.5:
        return Fit(0.0, np.inf, angle_deg, side)
    # Along the block, from its middle.
    ends = np.sort((np.array([-0.5, 0.5]) * socket_length - middle[0]) / along[0])
    low, high = np.clip(ends, -block_length / 2, block_length / 2)
    if high <= low:
        return Fit(0.0, np.inf, angle_deg, side)
    axis = middle + np.array([[low], [high]]) * along
    return Fit(float(high - low), float(np.hypot(axis[:, 1], axis[:, 2]).max()), angle_deg, side)


class InsertionTask(TabletopTask):
    """Every block is seated in an end of its own, and one arm alone holds the socket in the air.

    Seated means: at least 60 % of the block's length is in the socket, and there the axes are less
    than 5 mm and 5 degrees apart. In the air means: both pads of one gripper touch the socket,
    which is 2 cm or more clear of the table. The other arm does not touch it, neither an arm nor
    the table touches a block, and everything is at rest, for half a second. So a block that is
    still held, half inserted, beside the socket, or in a socket that lies on the table does not
    count.

    `holders` names the arms that may hold the socket at success.
    """

    holders: ClassVar[tuple[str, ...]] = ARMS
    may_be_strict: ClassVar[bool] = True

    def __init__(self, control_hz: float, socket: Socket, *blocks: Block) -> None:
        self.socket = socket
        self.blocks = blocks
        super().__init__(control_hz, socket, *blocks)

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Updates success and stage."""
        contacts = self.contact_state(physics)
        held = any(contacts.held(arm, self.socket.name) for arm in self.holders)
        lifted = held and self._clear(physics)
        seated = self.seated(physics)
        put_down = self.put_down(physics, contacts)
        done = lifted and put_down and seated == len(self.blocks) and self._released(contacts)
        self.success = self.has_lasted(done and self.at_rest(physics), physics)
        stage = self._stage(contacts, lifted, seated)
        self.stage = max(self.stage, len(self.stages) - 1 if self.success else stage)

    def fit(self, physics: mjcf.Physics, block: Block) -> Fit:
        """Returns the pose of a block in the socket."""
        T_base_socket = self.pose(physics, self.socket)
        return fit(T_base_socket, self.pose(physics, block), self.socket.length, block.length)

    def seated(self, physics: mjcf.Physics) -> int:
        """Returns the number of ends of the socket in which a block is seated."""
        fits = [(self.fit(physics, block), block.length) for block in self.blocks]
        return len({found.side for found, length in fits if found.seated(length)})

    def _clear(self, physics: mjcf.Physics) -> bool:
        T = self.pose(physics, self.socket)
        half = 0.5 * np.array([self.socket.length, self.socket.width, self.socket.width])
        return bool(T[2, 3] - np.abs(T[2, :3]) @ half - self.table_height > CLEAR_M)

    def _released(self, contacts: ContactState) -> bool:
        one_holds = sum(contacts.by_arm(arm, self.socket.name) for arm in ARMS) == 1
        names = [block.name for block in self.blocks]
        on_table = any(contacts.between(name, "table") for name in names)
        return one_holds and not contacts.by_any_arm(names) and not on_table

    def _stage(self, contacts: ContactState, lifted: bool, seated: int) -> int:
        """Returns 1 for a lifted socket, 2 with a grasped block, and one more per seated block."""
        if not lifted:
            return 0
        taken = any(contacts.held_by_any(block.name) for block in self.blocks)
        return 2 + seated if seated else 1 + taken


class SingleInsertion(InsertionTask):
    """The block goes into the blue socket, which the left gripper holds in the air.

    See `InsertionTask` for the rule. Start: socket x -24 to -8 cm, block x 8 to 24 cm, both y -10
    to 10 cm and turned by up to 25 degrees.
    """

    name: ClassVar[str] = "single_insertion"
    instruction: ClassVar[str] = (
        "grab the blue socket with the left arm and insert the block with the right arm"
    )
    stages: ClassVar[tuple[str, ...]] = (
        "start",
        "socket_lifted",
        "block_taken",
        "inserted",
        "success",
    )
    holders: ClassVar[tuple[str, ...]] = ("left",)

    def __init__(self, control_hz: float = 50.0) -> None:
        self.block = Block()
        super().__init__(control_hz, Socket(), self.block)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of socket and block, whose ranges are too far apart for a collision."""
        for prop, range_x in zip((self.socket, self.block), SINGLE_X, strict=True):
            spot = (random_state.uniform(*range_x), random_state.uniform(*SINGLE_Y), prop.width / 2)
            self.place(physics, prop, pose(spot, draw_yaw(random_state, SINGLE_YAW_DEG)))


class DoubleInsertion(InsertionTask):
    """Both blocks go into the blue socket, each into an end of its own, and one gripper holds it.

    See `InsertionTask` for the rule. Start: socket x -20 to -4 cm, y 0 to 16 cm; red block x 8 to
    24 cm, y -10 to 10 cm; yellow block x -22 to -6 cm, y -20 to -4 cm; all turned by up to 20
    degrees and drawn again where two of them are less than 7.5 cm apart.
    """

    name: ClassVar[str] = "double_insertion"
    instruction: ClassVar[str] = (
        "grab the blue socket with the left arm, insert a block with the right arm, "
        "then insert another block into the other end"
    )
    stages: ClassVar[tuple[str, ...]] = (
        "start",
        "socket_lifted",
        "block_taken",
        "one_inserted",
        "both_inserted",
        "success",
    )

    def __init__(self, control_hz: float = 50.0) -> None:
        self.first = Block("red_block", length=BLOCK_LENGTH, mass=0.04)
        self.second = Block("yellow_block", length=BLOCK_LENGTH, mass=0.04, colour=YELLOW)
        socket = Socket(length=DOUBLE_SOCKET_LENGTH, mass=0.09)
        super().__init__(control_hz, socket, self.first, self.second)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses anew until all props are far enough apart."""
        poses = self._drawn(random_state)
        for _ in range(TRIES):
            if all(_distance(poses, *pair) > APART_M for pair in combinations(poses, 2)):
                break
            poses = self._drawn(random_state)
        for prop, T_table_prop in poses.items():
            self.place(physics, prop, T_table_prop)

    def _drawn(self, random_state: np.random.RandomState) -> dict[Prop, Matrix]:
        starts = (
            (self.socket, DOUBLE_SOCKET_START),
            (self.first, FIRST_START),
            (self.second, SECOND_START),
        )
        poses: dict[Prop, Matrix] = {}
        for prop, (range_x, range_y) in starts:
            spot = (random_state.uniform(*range_x), random_state.uniform(*range_y), prop.width / 2)
            poses[prop] = pose(spot, draw_yaw(random_state, DOUBLE_YAW_DEG))
        return poses


def _distance(poses: dict[Prop, Matrix], a: Prop, b: Prop) -> float:
    """Returns the approximate distance between the axes of two props on the table, metres."""
    along = np.linspace(-1.0, 1.0, 17)[:, None]
    points = [poses[prop][:2, 3] + along * prop.reach * poses[prop][:2, 0] for prop in (a, b)]
    return float(np.linalg.norm(points[0][:, None] - points[1][None], axis=-1).min())
