"""Tasks in which one arm hands an object to the other, which puts it into a container.

Start ranges are those of aloha_sim's HandOverBanana; there the hand-over itself is optional, here
it is required.

Start ranges are those of aloha_sim's HandOverPen; there the hand-over itself is optional, here it
is required.
"""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.props.containers import Holder
from stringline.sim.props.dishes import Bowl
from stringline.sim.props.handheld import Banana, Pen
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.success import Lasting, Touching, in_frame, upright
from stringline.sim.tasks.tabletop import TabletopTask

CLEAR_M = 0.02  # Lifted means that far off the table.


class HandOverTask(TabletopTask):
    """The item goes from the right gripper to the left one and into the container.

    Success needs, in this order: held by the right gripper off the table; held by the left one,
    still off the table, while the right one has let go; then inside the container, touched by
    neither arm, and at rest for half a second. An item that falls onto the table has to be handed
    over again.

    Args:
        control_hz: Actions per second.
        item: What is handed over.
        container: Where it goes.
    """

    def __init__(self, control_hz: float, item: Prop, container: Prop) -> None:
        self.item = item
        self.container = container
        self._phase = 0
        self._rest = Lasting()
        super().__init__(control_hz, item, container)

    @abstractmethod
    def inside(self, T_base_item: Matrix, T_base_container: Matrix, /) -> bool:
        """Says by geometry alone whether the item at its pose (4, 4) is inside the container at its own."""

    @abstractmethod
    def lowest(self, T_base_item: Matrix, /) -> float:
        """Returns the height of the item's lowest point in the base frame, metres."""

    def initialize_episode(
        self, physics: mjcf.Physics, random_state: np.random.RandomState
    ) -> None:
        """Begins an episode."""
        self._phase = 0
        self._rest.reset()
        super().initialize_episode(physics, random_state)

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Follows the episode's progress."""
        touching = self.touching(physics)
        T_base_item = self.pose(physics, self.item)
        inside = self.inside(T_base_item, self.pose(physics, self.container))
        self._phase = self._next_phase(
            touching, self.lowest(T_base_item) - self.table_height > CLEAR_M, inside
        )
        free = inside and not touching.by_any_arm([self.item.name])
        resting = self._rest.update(free and self.at_rest(physics), physics.time())
        self.success = self._phase == 3 and resting
        self.stage = max(self.stage, 4 if self.success else self._phase)

    def _next_phase(self, touching: Touching, clear: bool, inside: bool) -> int:
        item = self.item.name
        phase = self._phase
        if touching.between(item, "table"):
            phase = 0
        if phase == 0 and clear and touching.held("right", item):
            phase = 1
        if (
            phase == 1
            and clear
            and touching.held("left", item)
            and not touching.by_arm("right", item)
        ):
            phase = 2
        return 3 if phase == 2 and inside else phase


BANANA_X = (0.12, 0.18)
BANANA_Y = (-0.1, 0.1)
BANANA_YAW_DEG = (-108.0, -72.0)
BOWL_X = (-0.18, -0.12)
BOWL_Y = (-0.1, 0.1)


class HandOverBanana(HandOverTask):
    """The banana goes from the right gripper to the left one and into the bowl: the whole of its axis, below the rim."""

    name: ClassVar[str] = "hand_over_banana"
    instruction: ClassVar[str] = "hand over the banana and put it into the bowl"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_bowl", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.banana = Banana()
        self.bowl = Bowl()
        super().__init__(control_hz, self.banana, self.bowl)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where banana and bowl are."""
        yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*BANANA_YAW_DEG)))
        spot = (
            random_state.uniform(*BANANA_X),
            random_state.uniform(*BANANA_Y),
            self.banana.radius,
        )
        self.place(physics, self.banana, pose(spot, yaw))
        self.place(
            physics,
            self.bowl,
            pose((random_state.uniform(*BOWL_X), random_state.uniform(*BOWL_Y), 0.0)),
        )

    def inside(self, T_base_banana: Matrix, T_base_bowl: Matrix) -> bool:
        """Says whether the banana's whole axis is within the upright bowl's rim and between its floor and its rim's height."""
        points = in_frame(T_base_bowl, T_base_banana, self.banana.points)
        within = np.hypot(points[:, 0], points[:, 1]) < self.bowl.rim_radius
        between = (points[:, 2] > 0) & (points[:, 2] < self.bowl.height)
        return bool(upright(T_base_bowl) and within.all() and between.all())

    def lowest(self, T_base_banana: Matrix) -> float:
        """Returns the height of the banana's lowest point, metres."""
        heights = self.banana.points @ T_base_banana[2, :3] + T_base_banana[2, 3]
        return float(heights.min()) - self.banana.radius


PEN_X = (0.12, 0.18)
PEN_Y = (-0.1, 0.1)
PEN_YAW_DEG = (-108.0, -72.0)
HOLDER_X = (-0.18, -0.12)
HOLDER_Y = (-0.1, 0.1)
# A leaning pen touches the floor with its edge; the middle of its end is that much higher at most.
ABOVE_FLOOR_M = 0.02


class HandOverPen(HandOverTask):
    """The pen goes from the right gripper to the left one and stands in the holder.

    Start: the pen's middle at x 0.12 to 0.18 m and y -0.1 to 0.1 m, turned by -108 to -72 degrees
    (along x, give or take 18); the holder at x -0.18 to -0.12 m, y -0.1 to 0.1 m.

    Success: the pen was handed over as in `HandOverTask`; its lower end is in the upright holder,
    no more than 2 cm above the floor; its axis leaves the holder through the opening, or its upper
    end is inside as well; no arm touches it and it is at rest, for half a second. Sizes are
    aloha_sim's: pen 18 x 185 x 15.5 mm, holder 90 x 107 mm; the pen weighs 20 g.

    Stages: lifted by the right gripper, handed over, in the holder, success.
    """

    name: ClassVar[str] = "hand_over_pen"
    instruction: ClassVar[str] = "hand over the pen and put it into the holder"
    stages: ClassVar[tuple[str, ...]] = ("start", "lifted", "handed_over", "in_holder", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.pen = Pen()
        self.holder = Holder()
        super().__init__(control_hz, self.pen, self.holder)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws where pen and holder are."""
        yaw = rotation_about((0.0, 0.0, 1.0), np.radians(random_state.uniform(*PEN_YAW_DEG)))
        spot = (random_state.uniform(*PEN_X), random_state.uniform(*PEN_Y), self.pen.radius)
        self.place(physics, self.pen, pose(spot, yaw))
        self.place(
            physics,
            self.holder,
            pose((random_state.uniform(*HOLDER_X), random_state.uniform(*HOLDER_Y), 0.0)),
        )

    def inside(self, T_base_item: Matrix, T_base_container: Matrix) -> bool:
        """Says whether the pen's lower end is at the bottom of the upright holder and the pen leaves it through its opening."""
        ends = in_frame(T_base_container, T_base_item, self.pen.points[[0, -1]])
        low, high = ends[np.argsort(ends[:, 2])]
        share = min(1.0, (self.holder.height - low[2]) / max(high[2] - low[2], 1e-6))
        leaves = low + share * (high - low)
        within = (
            np.hypot(*low[:2]) < self.holder.inner_radius
            and np.hypot(*leaves[:2]) < self.holder.inner_radius
        )
        return bool(
            upright(T_base_container)
            and within
            and 0 < low[2] < self.holder.thickness + ABOVE_FLOOR_M
        )

    def lowest(self, T_base_item: Matrix) -> float:
        """Returns the height of the pen's lowest point, metres."""
        heights = self.pen.points @ T_base_item[2, :3] + T_base_item[2, 3]
        return float(heights.min()) - self.pen.radius
