"""Tasks in which one arm hands a thing to the other, which puts it into a container."""

from abc import abstractmethod

import numpy as np
from dm_control import mjcf

from stringline.datasets.embodiments.rigid import Matrix
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.judgement import Lasting, Touching
from stringline.sim.tasks.tabletop import TabletopTask

CLEAR_M = 0.02  # Lifted means that far off the table.


class HandOverTask(TabletopTask):
    """The item goes from the right gripper to the left one and into the container.

    Success needs, in this order: held by the right gripper off the table; held by the left one, still off the table, while the
    right one has let go; then inside the container, touched by neither arm, and at rest for half a second. An item that falls
    onto the table has to be handed over again.

    Args:
        control_hz: Actions per second.
        item: What is handed over.
        container: Where it goes.
    """

    def __init__(self, control_hz: float, item: Prop, container: Prop) -> None:
        self.item, self.container = item, container
        self._phase, self._rest = 0, Lasting()
        super().__init__(control_hz, item, container)

    @abstractmethod
    def inside(self, T_base_item: Matrix, T_base_container: Matrix, /) -> bool:
        """Says by geometry alone whether the item at its pose (4, 4) is inside the container at its own."""

    @abstractmethod
    def lowest(self, T_base_item: Matrix, /) -> float:
        """Returns the height of the item's lowest point in the base frame, metres."""

    def initialize_episode(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Begins an episode."""
        self._phase = 0
        self._rest.reset()
        super().initialize_episode(physics, random_state)

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Follows the episode's progress."""
        touching = self.touching(physics)
        T_base_item = self.pose(physics, self.item)
        inside = self.inside(T_base_item, self.pose(physics, self.container))
        self._phase = self._next_phase(touching, self.lowest(T_base_item) - self.table_height > CLEAR_M, inside)
        free = inside and not touching.by_any_arm([self.item.name])
        resting = self._rest.update(free and self.at_rest(physics), physics.time())
        self.success = self._phase == 3 and resting
        self.stage = max(self.stage, 4 if self.success else self._phase)

    def _next_phase(self, touching: Touching, clear: bool, inside: bool) -> int:
        item, phase = self.item.name, self._phase
        if touching.between(item, "table"):
            phase = 0
        if phase == 0 and clear and touching.held("right", item):
            phase = 1
        if phase == 1 and clear and touching.held("left", item) and not touching.by_arm("right", item):
            phase = 2
        return 3 if phase == 2 and inside else phase
