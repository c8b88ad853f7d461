"""Tasks that are done when things are where they belong: inside the goal, released and at rest."""

from abc import abstractmethod

import numpy as np
from dm_control import mjcf

from stringline.sim.props.prop import Prop
from stringline.sim.tasks.success import Lasting, Touching
from stringline.sim.tasks.tabletop import TabletopTask


class GoalTask(TabletopTask):
    """Success: the goal is reached, no arm touches any prop, and all props are at rest, for half a second.

    Subclasses draw the start in `place_props`, and say what is reached and how far things are.
    """

    def __init__(self, control_hz: float, *props: Prop) -> None:
        self._rest = Lasting()
        super().__init__(control_hz, *props)

    @abstractmethod
    def reached(self, physics: mjcf.Physics) -> bool:
        """Says by geometry alone whether everything is inside its goal."""

    @abstractmethod
    def progress(self, physics: mjcf.Physics, touching: Touching) -> int:
        """Returns the index of the stage that holds now, below success; called once after each control period."""

    def initialize_episode(
        self, physics: mjcf.Physics, random_state: np.random.RandomState
    ) -> None:
        """Begins an episode."""
        self._rest.reset()
        super().initialize_episode(physics, random_state)

    def after_step(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Follows the episode's progress."""
        touching = self.touching(physics)
        stage = self.progress(physics, touching)
        still = (
            self.reached(physics) and not touching.by_any_arm(self.props) and self.at_rest(physics)
        )
        self.success = self._rest.update(still, physics.time())
        self.stage = max(self.stage, len(self.stages) - 1 if self.success else stage)
