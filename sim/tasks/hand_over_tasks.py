"""Tasks in which one arm hands an object to the other, which puts it into a container.

Start ranges are those of aloha_sim's HandOverBanana and HandOverPen. There the hand-over itself is
optional, here it is required.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix
from stringline.sim.props.prop import Prop
from stringline.sim.props.table_props import Banana, Bowl, Holder, Pen
from stringline.sim.tasks import handling
from stringline.sim.tasks.placement import draw_pose, draw_yaw
from stringline.sim.tasks.success import CLEAR_M, ContactState, in_frame, upright
from stringline.sim.tasks.tabletop import TabletopTask

ITEM_X = (0.12, 0.18)
CONTAINER_X = (-0.18, -0.12)
START_Y = (-0.1, 0.1)
ITEM_YAW_DEG = (-108.0, -72.0)
# A leaning pen touches the floor with its edge; the middle of its end is at most that much higher.
PEN_ABOVE_FLOOR_M = 0.02


class HandOverTask(TabletopTask):
    """The item goes from the right gripper to the left one and into the container.

    Success needs, in this order: held by the right gripper off the table; held by the left one,
    still off the table, while the right one has let go; then inside the container, touched by
    neither arm, and at rest for half a second. An item that falls onto the table has to be handed
    over again.

    The strict criterion also demands that both grippers have hold of the item for a moment, that
    some arm touches it until the left gripper has it alone, and that it is put down
    (`handling.py`). So an item that the right gripper drops, and that the left one catches or picks
    up, does not count.

    Balls at `points` (N, 3), in the item's frame, of one `radius`, metres, cover the item; the
    origin of the lying item is at the height of the radius.
    """

    may_be_strict: ClassVar[bool] = True
    drop_speed: ClassVar[float] = handling.DROP_SPEED_INTO_CONTAINER

    def __init__(
        self,
        control_hz: float,
        item: Prop,
        container: Prop,
        points: Matrix,
        radius: float = 0.0,
    ) -> None:
        self.item = item
        self.container = container
        self._points = points
        self._radius = radius
        self._phase = 0
        self._shared = False  # Whether both grippers have had hold of the item.
        super().__init__(control_hz, item, container)

    @property
    def lifted(self) -> bool:
        """Whether the right gripper has lifted the item, and it has not lain on the table since."""
        return self._phase >= 1

    @property
    def handed_over(self) -> bool:
        """Whether the item has been handed over, and has not lain on the table since."""
        return self._phase >= 2

    @abstractmethod
    def inside(self, T_base_item: Matrix, T_base_container: Matrix, /) -> bool:
        """Returns by geometry alone whether the item is inside the container; poses are (4, 4)."""

    def lowest(self, T_base_item: Matrix) -> float:
        """Returns the height of the item's lowest point in the base frame, metres."""
        return float((self._points @ T_base_item[2, :3] + T_base_item[2, 3]).min()) - self._radius

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the poses of item and container."""
        yaw = draw_yaw(random_state, ITEM_YAW_DEG)
        item = draw_pose(random_state, ITEM_X, START_Y, self._radius, rotation=yaw)
        self.place(physics, self.item, item)
        self.place(physics, self.container, draw_pose(random_state, CONTAINER_X, START_Y))

    def initialize_episode(
        self, physics: mjcf.Physics, random_state: np.random.RandomState
    ) -> None:
        """Begins an episode."""
        self._phase = 0
        self._shared = False
        super().initialize_episode(physics, random_state)

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Updates success and stage."""
        contacts = self.contact_state(physics)
        T_base_item = self.pose(physics, self.item)
        inside = self.inside(T_base_item, self.pose(physics, self.container))
        clear = self.lowest(T_base_item) - self.table_height > CLEAR_M
        self._phase = self._next_phase(contacts, clear, inside)
        put_down = self.put_down(physics, contacts)
        released = inside and put_down and not contacts.by_any_arm([self.item.name])
        resting = self.has_lasted(released and self.at_rest(physics), physics)
        self.success = self._phase == 3 and resting
        self.stage = max(self.stage, 4 if self.success else self._phase)

    def _next_phase(self, contacts: ContactState, clear: bool, inside: bool) -> int:
        item = self.item.name
        phase = self._phase
        let_go = self.strict and phase == 1 and not contacts.by_any_arm([item])
        if contacts.between(item, "table") or let_go:
            phase = 0
            self._shared = False
        if phase == 0 and clear and contacts.held("right", item):
            phase = 1
        left, right = contacts.held("left", item), contacts.by_arm("right", item)
        self._shared |= phase == 1 and left and right
        passed = clear and left and not right and (self._shared or not self.strict)
        if phase == 1 and passed:
            phase = 2
        return 3 if phase == 2 and inside else phase


class HandOverBanana(HandOverTask):
    """The banana goes from the right gripper to the left one and with its whole axis into the bowl.

    Start: the banana's middle at x 0.12 to 0.18 m and y -0.1 to 0.1 m, turned by -108 to -72
    degrees (along x, give or take 18); the bowl at x -0.18 to -0.12 m, y -0.1 to 0.1 m. Success: as
    in `HandOverTask`, with the banana's axis within the rim of the upright bowl.
    """

    name: ClassVar[str] = "hand_over_banana"
    instruction: ClassVar[str] = "hand over the banana and put it into the bowl"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_bowl", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.banana = Banana()
        self.bowl = Bowl()
        super().__init__(control_hz, self.banana, self.bowl, self.banana.points, self.banana.radius)

    def inside(self, T_base_banana: Matrix, T_base_bowl: Matrix) -> bool:
        """Returns whether the banana's axis is within the upright bowl, below its rim."""
        points = in_frame(T_base_bowl, T_base_banana, self.banana.points)
        within = np.hypot(points[:, 0], points[:, 1]) < self.bowl.rim_radius
        between = (points[:, 2] > 0) & (points[:, 2] < self.bowl.height)
        return bool(upright(T_base_bowl) and within.all() and between.all())


class HandOverPen(HandOverTask):
    """The pen goes from the right gripper to the left one and stands in the holder.

    Start: the pen's middle at x 0.12 to 0.18 m and y -0.1 to 0.1 m, turned by -108 to -72 degrees
    (along x, give or take 18); the holder at x -0.18 to -0.12 m, y -0.1 to 0.1 m. Success: as in
    `HandOverTask`; the pen's lower end is in the upright holder, no more than 2 cm above the floor,
    and its axis leaves the holder through the opening, or its upper end is inside as well.

    Sizes are aloha_sim's: pen 18 x 185 x 15.5 mm and 20 g, holder 90 x 107 mm.
    """

    name: ClassVar[str] = "hand_over_pen"
    instruction: ClassVar[str] = "hand over the pen and put it into the holder"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_holder", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.pen = Pen()
        self.holder = Holder()
        super().__init__(control_hz, self.pen, self.holder, self.pen.points, self.pen.radius)

    def inside(self, T_base_pen: Matrix, T_base_holder: Matrix) -> bool:
        """Returns whether the pen stands in the upright holder, leaving it by the opening."""
        ends = in_frame(T_base_holder, T_base_pen, self.pen.points[[0, -1]])
        low, high = ends[np.argsort(ends[:, 2])]
        share = min(1.0, (self.holder.height - low[2]) / max(high[2] - low[2], 1e-6))
        leaves = low + share * (high - low)
        radius = self.holder.inner_radius
        within = np.hypot(*low[:2]) < radius and np.hypot(*leaves[:2]) < radius
        standing = 0 < low[2] < self.holder.thickness + PEN_ABOVE_FLOOR_M
        return bool(upright(T_base_holder) and within and standing)
